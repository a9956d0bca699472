// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with an event description, and where.

use std::fmt;

/// A part of the text: where it begins, and how long it is, in bytes.
///
/// Equal to every other: where something was written is no part of what it says, so that two
/// descriptions that say the same compare equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Index of the first byte.
    pub at: usize,
    /// Number of bytes; 0 where something is missing.
    pub len: usize,
}

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Span {}

/// An event description that cannot be understood or that this machine cannot serve.
///
/// Its `Display` is one line with everything; [`SpecError::pointer`] shows the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    text: String,
    span: Span,
    problem: String,
    expected: String,
    suggestions: Vec<String>,
}

impl SpecError {
    pub(super) fn new(span: Span, problem: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            text: String::new(),
            span,
            problem: problem.into(),
            expected: expected.into(),
            suggestions: Vec::new(),
        }
    }

    pub(super) fn suggest(mut self, suggestions: Vec<String>) -> Self {
        self.suggestions = suggestions;
        self
    }

    /// Adds the text that the span refers to.
    pub(super) fn in_text(mut self, text: &str) -> Self {
        text.clone_into(&mut self.text);
        self
    }

    /// The place of the fault in [`SpecError::text`].
    pub fn span(&self) -> Span {
        self.span
    }

    /// The whole description.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is wrong.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What would be right there.
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// Names that may have been meant, the likeliest first.
    pub fn suggestions(&self) -> &[String] {
        &self.suggestions
    }

    /// The description with a line of `^` below the fault, two lines without a final newline.
    pub fn pointer(&self) -> String {
        let end = self.span.at + self.span.len;
        let chars = |from, to| {
            self.text
                .get(from..to)
                .map_or(0, |part| part.chars().count())
        };
        let marks = "^".repeat(chars(self.span.at, end).max(1));
        let indent = " ".repeat(chars(0, self.span.at));
        // A control character would move the marks away from their place.
        let shown: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        format!("{shown}\n{indent}{marks}")
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.span.at).unwrap_or_default();
        let column = before.chars().count() + 1;
        let text = self.text.escape_debug();
        write!(f, "event `{text}`, column {column}: {}", self.problem)?;
        if !self.expected.is_empty() {
            write!(f, "; expected {}", self.expected)?;
        }
        if !self.suggestions.is_empty() {
            write!(f, "; did you mean {}?", self.suggestions.join(" or "))?;
        }
        Ok(())
    }
}

impl std::error::Error for SpecError {}
