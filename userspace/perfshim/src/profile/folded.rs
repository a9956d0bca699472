// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stacks as lines of text, which inferno and flamegraph.pl make a flame graph of.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::UNKNOWN;
use crate::symbols::Frame;
use crate::symbols::Mode;

/// Samples by stack. `Display` writes a line for each: the task's name and the functions from the
/// root to the leaf with `;` between, a space, and the weight.
///
/// Kernel functions end in `_[k]` and inlined ones in `_[i]`, which flame graphs colour.
///
/// ```
/// use perfshim::profile::FoldedStacks;
///
/// let mut stacks = FoldedStacks::default();
/// stacks.add("sleepy task", &[], 3);
/// assert_eq!(stacks.to_string(), "sleepy task 3\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldedStacks {
    stacks: BTreeMap<String, u64>,
}

impl FoldedStacks {
    /// Adds a sample: the name of its task, its frames with the innermost first, and its weight.
    pub fn add(&mut self, comm: &str, frames: &[Frame], weight: u64) {
        let count = self.stacks.entry(fold(comm, frames)).or_default();
        *count = count.saturating_add(weight);
    }

    /// The stacks and their weights, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.stacks
            .iter()
            .map(|(stack, weight)| (stack.as_str(), *weight))
    }
}

impl fmt::Display for FoldedStacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter()
            .try_for_each(|(stack, weight)| writeln!(f, "{stack} {weight}"))
    }
}

fn fold(comm: &str, frames: &[Frame]) -> String {
    let mut line = clean(comm);
    for frame in frames.iter().rev() {
        line.push(';');
        line.push_str(&clean(&name(frame)));
        line.push_str(match (frame.mode, frame.inlined) {
            (Mode::Kernel, _) => "_[k]",
            (_, true) => "_[i]",
            _ => "",
        });
    }
    line
}

/// The function, or in brackets the file that it must be in.
fn name(frame: &Frame) -> String {
    if let Some(symbol) = &frame.symbol {
        return symbol.name.to_string();
    }
    let object = frame.object.as_deref().unwrap_or(UNKNOWN);
    let file = Path::new(object).file_name().and_then(|file| file.to_str());
    let file = file.unwrap_or(object);
    match file.starts_with('[') {
        true => file.to_owned(),
        false => format!("[{file}]"),
    }
}

/// Without the characters that end a frame or a line.
fn clean(text: &str) -> String {
    let harmless = |c: char| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(harmless).collect()
}
