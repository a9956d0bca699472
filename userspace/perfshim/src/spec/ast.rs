// SPDX-License-Identifier: MIT OR Apache-2.0
//! An event description as written, before any PMU is asked; `Display` writes it again.

use std::fmt;

use super::Span;

/// A list of events and groups, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventList {
    /// The entries in the order in which they were written; never empty when parsed.
    pub entries: Vec<Entry>,
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An event on its own.
    Event(EventSpec),
    /// Events in braces, which are scheduled together.
    Group(GroupSpec),
}

/// `{a,b}:u`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSpec {
    /// The members, the leader first; never empty when parsed.
    pub members: Vec<EventSpec>,
    /// What applies to all members, on top of their own modifiers.
    pub modifiers: Modifiers,
}

/// `cycles:u`, `r11`, `pmu/event,config1=0x1/k`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSpec {
    /// What stands before a slash or colon: a PMU, the name of an event, or `r` and a raw number.
    pub head: String,
    /// What stands between the slashes; `None` without slashes.
    pub terms: Option<Vec<Term>>,
    /// The letters after the last slash or colon.
    pub modifiers: Modifiers,
    /// Where the head stands.
    pub span: Span,
}

/// `name` or `name=value`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Term {
    /// The name.
    pub name: String,
    /// The value as written, without quotes.
    pub value: Option<String>,
    /// Where the name stands.
    pub span: Span,
    /// Where the value stands.
    pub value_span: Span,
}

/// The letters behind an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// `u`: count in user space; with any of u, k and h, nowhere else than in those named.
    pub user: bool,
    /// `k`: count in the kernel.
    pub kernel: bool,
    /// `h`: count in the hypervisor.
    pub hypervisor: bool,
    /// `G`: count in guests; with G or H, nowhere else than in those named.
    pub guest: bool,
    /// `H`: count in the host.
    pub host: bool,
    /// `I`: do not count while the CPU is idle.
    pub non_idle: bool,
    /// `p`, up to three times: how little a sample may be away from the instruction.
    pub precise: u8,
    /// `P`: the most precise that the PMU offers.
    pub precise_max: bool,
    /// `S`: a sample holds the counts of the whole group.
    pub sample_read: bool,
    /// `D`: pinned to the PMU; an error state instead of multiplexing.
    pub pinned: bool,
    /// `e`: no other group counts on the PMU at the same time.
    pub exclusive: bool,
    /// Where the letters stand.
    pub span: Span,
}

impl Modifiers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for EventList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        separated(f, &self.entries)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => event.fmt(f),
            Self::Group(group) => group.fmt(f),
        }
    }
}

impl fmt::Display for GroupSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{")?;
        separated(f, &self.members)?;
        write!(f, "}}")?;
        with_colon(f, &self.modifiers)
    }
}

impl fmt::Display for EventSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.head)?;
        let Some(terms) = &self.terms else {
            return with_colon(f, &self.modifiers);
        };
        write!(f, "/")?;
        separated(f, terms)?;
        write!(f, "/{}", self.modifiers)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match &self.value {
            None => Ok(()),
            Some(value) if is_bare_value(value) => write!(f, "={value}"),
            Some(value) => write!(f, "='{value}'"),
        }
    }
}

impl fmt::Display for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (self.user, "u"),
            (self.kernel, "k"),
            (self.hypervisor, "h"),
            (self.guest, "G"),
            (self.host, "H"),
            (self.non_idle, "I"),
            (self.precise >= 1, "p"),
            (self.precise >= 2, "p"),
            (self.precise >= 3, "p"),
            (self.precise_max, "P"),
            (self.sample_read, "S"),
            (self.pinned, "D"),
            (self.exclusive, "e"),
        ];
        let set = letters.into_iter().filter(|(set, _)| *set);
        set.into_iter()
            .try_for_each(|(_, letter)| f.write_str(letter))
    }
}

/// Whether a value can stand without quotes.
pub(super) fn is_bare_value(value: &str) -> bool {
    !value.is_empty() && value.chars().all(is_value_char)
}

pub(super) fn is_value_char(c: char) -> bool {
    !matches!(c, ',' | '/' | '=' | '\'' | '{' | '}') && !c.is_whitespace() && !c.is_control()
}

fn separated<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{item}")?;
    }
    Ok(())
}

fn with_colon(f: &mut fmt::Formatter<'_>, modifiers: &Modifiers) -> fmt::Result {
    if modifiers.is_empty() {
        return Ok(());
    }
    write!(f, ":{modifiers}")
}
