// SPDX-License-Identifier: MIT OR Apache-2.0
//! From text to [`EventList`]: one function for each rule of the grammar in the module's page.

use super::Entry;
use super::EventList;
use super::EventSpec;
use super::GroupSpec;
use super::Modifiers;
use super::Span;
use super::SpecError;
use super::Term;
use super::ast::is_value_char;

/// Reads a list of events.
pub(super) fn event_list(text: &str) -> Result<EventList, SpecError> {
    let mut parser = Parser { text, at: 0 };
    let list = parser.list();
    list.map_err(|error| error.in_text(text))
}

/// Reads what stands between the slashes, or in a file of a PMU's `events` folder.
pub(super) fn terms(text: &str) -> Result<Vec<Term>, SpecError> {
    let mut parser = Parser { text, at: 0 };
    let terms = parser.terms().and_then(|terms| match parser.peek() {
        None => Ok(terms),
        Some(_) => Err(parser.unexpected("`,` or the end")),
    });
    terms.map_err(|error| error.in_text(text))
}

struct Parser<'a> {
    text: &'a str,
    /// Index of the next byte; always at a character's beginning.
    at: usize,
}

impl<'a> Parser<'a> {
    fn list(&mut self) -> Result<EventList, SpecError> {
        let mut entries = Vec::new();
        loop {
            entries.push(self.entry()?);
            match self.peek() {
                None => return Ok(EventList { entries }),
                Some(',') => self.skip(','),
                Some('}') => return Err(self.unexpected("an opening brace before this one")),
                Some(_) => return Err(self.unexpected("`,` or the end")),
            };
        }
    }

    fn entry(&mut self) -> Result<Entry, SpecError> {
        if self.skip('{') {
            return self.group().map(Entry::Group);
        }
        self.event().map(Entry::Event)
    }

    /// What follows an opening brace.
    fn group(&mut self) -> Result<GroupSpec, SpecError> {
        let mut members = Vec::new();
        loop {
            if self.peek() == Some('{') {
                return Err(self.unexpected("an event: a group holds no groups"));
            }
            members.push(self.event()?);
            if self.skip('}') {
                break;
            }
            if !self.skip(',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        let modifiers = self.colon_and_modifiers()?;
        Ok(GroupSpec { members, modifiers })
    }

    fn event(&mut self) -> Result<EventSpec, SpecError> {
        let (head, span) = self.word(is_head_char);
        if head.is_empty() {
            return Err(self.unexpected("an event such as cycles, r11 or pmu/event/"));
        }
        let terms = self.slashes()?;
        let modifiers = match terms {
            // `pmu/event/u` and `pmu/event/:u` are the same.
            Some(_) if self.peek() != Some(':') => self.modifiers()?,
            _ => self.colon_and_modifiers()?,
        };
        Ok(EventSpec {
            head: head.to_owned(),
            terms,
            modifiers,
            span,
        })
    }

    /// `/terms/`, if there is a slash.
    fn slashes(&mut self) -> Result<Option<Vec<Term>>, SpecError> {
        if !self.skip('/') {
            return Ok(None);
        }
        let terms = match self.peek() {
            Some('/') => Vec::new(),
            _ => self.terms()?,
        };
        if !self.skip('/') {
            return Err(self.unexpected("`,` or the closing `/`"));
        }
        Ok(Some(terms))
    }

    fn terms(&mut self) -> Result<Vec<Term>, SpecError> {
        let mut terms = vec![self.term()?];
        while self.skip(',') {
            terms.push(self.term()?);
        }
        Ok(terms)
    }

    fn term(&mut self) -> Result<Term, SpecError> {
        let (name, span) = self.word(is_term_char);
        if name.is_empty() {
            return Err(self.unexpected("a term such as an event's name or event=0x11"));
        }
        let mut term = Term {
            name: name.to_owned(),
            span,
            ..Term::default()
        };
        if self.skip('=') {
            let (value, value_span) = self.value()?;
            term.value = Some(value);
            term.value_span = value_span;
        }
        Ok(term)
    }

    fn value(&mut self) -> Result<(String, Span), SpecError> {
        if self.peek() == Some('\'') {
            return self.quoted();
        }
        let (value, span) = self.word(is_value_char);
        if value.is_empty() {
            return Err(self.unexpected("a value"));
        }
        Ok((value.to_owned(), span))
    }

    fn quoted(&mut self) -> Result<(String, Span), SpecError> {
        let at = self.at;
        let inner = &self.text[at + 1..];
        let Some(len) = inner.find('\'') else {
            let span = Span { at, len: 1 };
            return Err(SpecError::new(
                span,
                "a quote is not closed",
                "a second `'`",
            ));
        };
        self.at += len + 2;
        let span = Span { at, len: len + 2 };
        Ok((inner[..len].to_owned(), span))
    }

    fn colon_and_modifiers(&mut self) -> Result<Modifiers, SpecError> {
        if !self.skip(':') {
            return Ok(Modifiers::default());
        }
        if !self.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
            return Err(self.unexpected(LETTERS));
        }
        self.modifiers()
    }

    fn modifiers(&mut self) -> Result<Modifiers, SpecError> {
        let (letters, span) = self.word(is_head_char);
        let mut modifiers = Modifiers {
            span,
            ..Modifiers::default()
        };
        for (index, letter) in letters.char_indices() {
            let span = Span {
                at: span.at + index,
                len: letter.len_utf8(),
            };
            set_modifier(&mut modifiers, letter, span)?;
        }
        Ok(modifiers)
    }

    /// The longest run of such characters, with no white space around it.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> (&'a str, Span) {
        self.skip_space();
        let rest = &self.text[self.at..];
        let len = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        let span = Span { at: self.at, len };
        self.at += len;
        (&rest[..len], span)
    }

    /// Moves past `c` if it comes next.
    fn skip(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.text[self.at..].chars().next()
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at = self.text.len() - rest.trim_start().len();
    }

    fn unexpected(&mut self, expected: &str) -> SpecError {
        let next = self.peek();
        let span = Span {
            at: self.at,
            len: next.map_or(0, char::len_utf8),
        };
        let problem = match next {
            Some(c) => format!("unexpected `{}`", c.escape_debug()),
            None => "the text ends too early".to_owned(),
        };
        SpecError::new(span, problem, expected)
    }
}

fn is_head_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_term_char(c: char) -> bool {
    is_head_char(c) || c == ':'
}

const LETTERS: &str = "letters out of u k h G H I p P S D e";

fn set_modifier(modifiers: &mut Modifiers, letter: char, span: Span) -> Result<(), SpecError> {
    let flag = match letter {
        'u' => &mut modifiers.user,
        'k' => &mut modifiers.kernel,
        'h' => &mut modifiers.hypervisor,
        'G' => &mut modifiers.guest,
        'H' => &mut modifiers.host,
        'I' => &mut modifiers.non_idle,
        'P' => &mut modifiers.precise_max,
        'S' => &mut modifiers.sample_read,
        'D' => &mut modifiers.pinned,
        'e' => &mut modifiers.exclusive,
        'p' => {
            if modifiers.precise == 3 {
                return Err(SpecError::new(span, "too many `p`", "at most `ppp`"));
            }
            modifiers.precise += 1;
            return Ok(());
        }
        'W' | 'b' | 'R' | 'X' => {
            let problem = format!("`{letter}` tells the tool perf what to do, not the kernel");
            return Err(SpecError::new(span, problem, LETTERS));
        }
        _ => {
            let problem = format!("no modifier `{letter}` (nor are tracepoints events here)");
            return Err(SpecError::new(span, problem, LETTERS));
        }
    };
    if *flag {
        let problem = format!("modifier `{letter}` given twice");
        return Err(SpecError::new(span, problem, "it once"));
    }
    *flag = true;
    Ok(())
}
