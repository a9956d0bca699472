// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands between the slashes: a PMU's named events and fields, and what any event takes.

use super::Span;
use super::SpecError;
use super::Term;
use super::names::Generic;
use super::near;
use super::resolve::event_terms;
use super::resolve::raw_number;
use crate::EventConfig;
use crate::Rate;
use crate::discovery::ConfigWord;
use crate::discovery::Format;
use crate::discovery::NamedEvent;
use crate::discovery::Pmu;
use crate::discovery::Pmus;

/// The terms that have a meaning for any event; `config` is among them for a PMU's own.
const COMMON: [&str; 5] = ["name", "period", "freq", "inherit", "no-inherit"];

/// What the terms of one event say together.
pub(super) struct Settings {
    /// What the term that names an event stands for.
    event: Words,
    /// What the other terms set, over that.
    own: Words,
    /// An event that the kernel names, such as `cycles` in `cpu/cycles/`.
    generic: Option<Generic>,
    /// The first term that named an event.
    named: Option<String>,
    /// Fields that the named event wants a value for.
    required: Vec<String>,
    pub(super) name: Option<String>,
    pub(super) rate: Option<Rate>,
    pub(super) inherit: Option<bool>,
    pub(super) unit: Option<String>,
    pub(super) scale: f64,
    pub(super) snapshot: bool,
}

impl Settings {
    fn new() -> Self {
        Self {
            event: Words::default(),
            own: Words::default(),
            generic: None,
            named: None,
            required: Vec::new(),
            name: None,
            rate: None,
            inherit: None,
            unit: None,
            scale: 1.0,
            snapshot: false,
        }
    }

    /// The terms of an event of that PMU; `span` is where the PMU's name stands.
    pub(super) fn of_pmu(pmu: &Pmu, terms: &[Term], span: Span) -> Result<Self, SpecError> {
        let mut settings = Self::new();
        for term in terms {
            settings.pmu_term(pmu, term)?;
        }
        if let Some(field) = settings.required.first() {
            let event = settings.named.unwrap_or_default();
            let problem = format!("the event `{event}` needs a value for `{field}`");
            return Err(SpecError::new(
                span,
                problem,
                format!("a term {field}=NUMBER"),
            ));
        }
        Ok(settings)
    }

    /// The terms of an event that the kernel names, or of a raw one.
    pub(super) fn generic(terms: &[Term]) -> Result<Self, SpecError> {
        let mut settings = Self::new();
        for term in terms {
            let word = ConfigWord::from_name(&term.name).filter(|word| *word != ConfigWord::Config);
            if let Some(word) = word {
                settings.own.word(word, number(term)?, term)?;
            } else if !settings.common_term(term)? {
                let expected = format!("{} or config1 to config4", COMMON.join(", "));
                let problem = format!(
                    "no term `{}` for an event that is named without its PMU",
                    term.name
                );
                return Err(SpecError::new(term.span, problem, expected));
            }
        }
        Ok(settings)
    }

    /// The words for an event of that PMU, which is perhaps the only one of CPUs among `pmus`.
    pub(super) fn config(&self, pmu: &Pmu, pmus: &Pmus) -> EventConfig {
        let config = match self.generic {
            // Needs no number in `config`, which kernels before 5.13 do not know.
            Some(event) if pmus.core().count() == 1 => event.config(),
            Some(event) => event.on_pmu(pmu.type_id),
            None => EventConfig::new(pmu.type_id, 0),
        };
        self.extend(config)
    }

    /// `config` with what the terms say.
    pub(super) fn extend(&self, mut config: EventConfig) -> EventConfig {
        let words = self.own.over(&self.event);
        let [zero, one, two, three, four] = words;
        config.config |= zero;
        config.config1 = one;
        config.config2 = two;
        config.config3 = three;
        config.config4 = four;
        config
    }

    fn pmu_term(&mut self, pmu: &Pmu, term: &Term) -> Result<(), SpecError> {
        if let Some(word) = ConfigWord::from_name(&term.name) {
            return self.own.word(word, number(term)?, term);
        }
        if self.common_term(term)? {
            return Ok(());
        }
        if let Some(event) = named_event(pmu, term) {
            return self.named_event(pmu, event, term);
        }
        if let Some(format) = pmu.formats.get(&term.name) {
            self.required.retain(|field| *field != term.name);
            return self.own.field(format, term);
        }
        if term.value.is_none() {
            if let Some(event) = kernel_event(pmu, &term.name) {
                self.names_event(term)?;
                self.generic = Some(event);
                return Ok(());
            }
            if let Some(raw) = raw_number(&term.name, term.span)? {
                return self.own.word(ConfigWord::Config, raw, term);
            }
        }
        Err(unknown(pmu, term))
    }

    /// Takes a term that any event may have; says whether it was one.
    fn common_term(&mut self, term: &Term) -> Result<bool, SpecError> {
        let twice = match term.name.as_str() {
            "name" => self
                .name
                .replace(value(term, "a name")?.to_owned())
                .is_some(),
            "period" => self.rate.replace(Rate::Period(positive(term)?)).is_some(),
            "freq" => self
                .rate
                .replace(Rate::Frequency(positive(term)?))
                .is_some(),
            "inherit" => self.inherit.replace(flag(term)?).is_some(),
            "no-inherit" => self.inherit.replace(!flag(term)?).is_some(),
            _ => return Ok(false),
        };
        if twice {
            let problem = format!("`{}` contradicts an earlier term", term.name);
            return Err(SpecError::new(term.span, problem, "one term of that kind"));
        }
        Ok(true)
    }

    fn named_event(&mut self, pmu: &Pmu, event: &NamedEvent, term: &Term) -> Result<(), SpecError> {
        self.names_event(term)?;
        self.unit.clone_from(&event.unit);
        self.scale = event.scale;
        self.snapshot = event.snapshot;
        for part in event_terms(pmu, event, term.span)? {
            // Faults in the PMU's file are shown where the event is named.
            let part = Term {
                span: term.span,
                value_span: term.span,
                ..part
            };
            if part.value.as_deref() == Some("?") {
                self.required.push(part.name);
            } else if let Some(word) = ConfigWord::from_name(&part.name) {
                self.event.word(word, number(&part)?, &part)?;
            } else if let Some(format) = pmu.formats.get(&part.name) {
                self.event.field(format, &part)?;
            } else {
                return Err(unknown(pmu, &part));
            }
        }
        Ok(())
    }

    /// Notes that `term` names an event, of which there is one at most.
    fn names_event(&mut self, term: &Term) -> Result<(), SpecError> {
        let written = term.to_string();
        if let Some(first) = &self.named {
            let problem = format!("`{written}` is a second event beside `{first}`");
            return Err(SpecError::new(term.span, problem, "one event"));
        }
        self.named = Some(written);
        Ok(())
    }
}

/// The config words, and which of their bits were set on purpose.
#[derive(Default)]
struct Words {
    values: [u64; 5],
    claimed: [u64; 5],
    /// Words that were given as a whole.
    whole: [bool; 5],
}

impl Words {
    fn word(&mut self, word: ConfigWord, value: u64, term: &Term) -> Result<(), SpecError> {
        self.claim(word, value, value, term)?;
        self.whole[word.index()] = true;
        Ok(())
    }

    fn field(&mut self, format: &Format, term: &Term) -> Result<(), SpecError> {
        let value = match &term.value {
            Some(_) => number(term)?,
            None => 1,
        };
        let bits = format.encode(value).ok_or_else(|| {
            let problem = format!("{value} does not fit in the field `{}`", term.name);
            SpecError::new(
                term.value_span,
                problem,
                format!("0 to {:#x}", format.max()),
            )
        })?;
        self.claim(format.word, format.mask, bits, term)
    }

    fn claim(
        &mut self,
        word: ConfigWord,
        mask: u64,
        bits: u64,
        term: &Term,
    ) -> Result<(), SpecError> {
        let index = word.index();
        let both = self.claimed[index] & mask;
        if self.values[index] & both != bits & both {
            let problem = format!("`{}` contradicts an earlier term", term.name);
            let expected = format!("each bit of {} to be set once", word.name());
            return Err(SpecError::new(term.span, problem, expected));
        }
        self.claimed[index] |= mask;
        self.values[index] |= bits;
        Ok(())
    }

    /// These values where they were set, those of `below` elsewhere.
    fn over(&self, below: &Self) -> [u64; 5] {
        std::array::from_fn(|index| {
            let hidden = match self.whole[index] {
                true => u64::MAX,
                false => self.claimed[index],
            };
            below.values[index] & !hidden | self.values[index]
        })
    }
}

/// The event of the PMU that a term names: `cpu_cycles` or `event=cpu_cycles`. A field of the
/// same name goes first, as in perf.
fn named_event<'a>(pmu: &'a Pmu, term: &Term) -> Option<&'a NamedEvent> {
    match &term.value {
        None if pmu.formats.contains_key(&term.name) => None,
        None => pmu.events.get(&term.name),
        Some(value) if term.name == "event" => pmu.events.get(value),
        Some(_) => None,
    }
}

/// The kernel's own events are those of CPU cores; software events need no PMU.
fn kernel_event(pmu: &Pmu, name: &str) -> Option<Generic> {
    let event = Generic::find(name)?;
    let hardware = !matches!(event, Generic::Software(_));
    (pmu.is_core() && hardware).then_some(event)
}

fn value<'a>(term: &'a Term, expected: &str) -> Result<&'a str, SpecError> {
    term.value.as_deref().ok_or_else(|| {
        let problem = format!("the term `{}` has no value", term.name);
        SpecError::new(term.span, problem, format!("`=` and {expected}"))
    })
}

fn number(term: &Term) -> Result<u64, SpecError> {
    let expected = "a decimal number or a hexadecimal one with 0x in front, up to 64 bits";
    let text = value(term, expected)?;
    let parsed = match text.strip_prefix("0x") {
        // `from_str_radix` would take a sign.
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    parsed.ok_or_else(|| {
        let problem = format!("`{}` is no number", text.escape_debug());
        SpecError::new(term.value_span, problem, expected)
    })
}

fn positive(term: &Term) -> Result<u64, SpecError> {
    match number(term)? {
        0 => {
            let problem = format!("`{}` is 0", term.name);
            Err(SpecError::new(term.value_span, problem, "1 or more"))
        }
        number => Ok(number),
    }
}

fn flag(term: &Term) -> Result<bool, SpecError> {
    match term.value.as_deref() {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => {
            let problem = format!("`{}` is on or off", term.name);
            Err(SpecError::new(term.value_span, problem, "no value, 1 or 0"))
        }
    }
}

fn unknown(pmu: &Pmu, term: &Term) -> SpecError {
    let name = &term.name;
    if term.value.is_some() {
        if pmu.events.contains_key(name) {
            let problem = format!("the event `{name}` takes no value");
            return SpecError::new(term.value_span, problem, format!("just `{name}`"));
        }
        let common = COMMON.iter().map(|name| (*name).to_owned());
        let words = ConfigWord::ALL.iter().map(|word| word.name().to_owned());
        let near = near::names(name, pmu.formats.keys().cloned().chain(common).chain(words));
        let problem = format!("the PMU `{}` has no field `{name}`", pmu.name);
        let expected = match pmu.formats.is_empty() {
            true => "config=NUMBER: this PMU names no fields".to_owned(),
            false => format!("one of {}", near::some_of(pmu.formats.keys())),
        };
        return SpecError::new(term.span, problem, expected).suggest(near);
    }
    let known = pmu.events.keys().chain(pmu.formats.keys()).cloned();
    let near = near::names(name, known);
    let problem = format!("the PMU `{}` has no event or field `{name}`", pmu.name);
    let expected = match (pmu.events.is_empty(), near.is_empty()) {
        (true, _) => "a field with a value: this PMU names no events".to_owned(),
        (false, true) => format!("one of {}", near::some_of(pmu.events.keys())),
        (false, false) => format!("one of its {} events", pmu.events.len()),
    };
    SpecError::new(term.span, problem, expected).suggest(near)
}
