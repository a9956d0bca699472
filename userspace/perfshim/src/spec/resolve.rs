// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what was written to what the PMUs of a machine can count.

use super::Entry;
use super::EventSpec;
use super::GroupSpec;
use super::Modifiers;
use super::Span;
use super::SpecError;
use super::Term;
use super::names;
use super::names::Generic;
use super::parse;
use super::terms::Settings;
use crate::Attr;
use crate::EventConfig;
use crate::Exclude;
use crate::Precision;
use crate::Rate;
use crate::SampleFields;
use crate::discovery::CpuList;
use crate::discovery::Pmu;
use crate::discovery::Pmus;
use crate::sys;

/// Events to open: one, or the members of a group with the leader first.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedGroup {
    /// The events; never empty.
    pub events: Vec<ResolvedEvent>,
    /// Whether they were written in braces.
    pub braces: bool,
}

/// An event that some PMU of this machine serves.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResolvedEvent {
    /// What to call it: the term `name=`, or else the event as it was written. One written name
    /// that several PMUs serve becomes several events, called `PMU/NAME/`.
    pub name: String,
    /// The PMU that was asked for; `None` where the kernel picks it.
    pub pmu: Option<String>,
    /// Type and config words.
    pub config: EventConfig,
    /// Where not to count, from the modifiers.
    pub exclude: Exclude,
    /// The terms `period=` and `freq=`.
    pub rate: Option<Rate>,
    /// The modifiers `p`, `pp`, `ppp` and `P`.
    pub precision: Precision,
    /// The modifier `D`.
    pub pinned: bool,
    /// The modifier `e`.
    pub exclusive: bool,
    /// The modifier `S`.
    pub sample_read: bool,
    /// The terms `inherit` (true) and `no-inherit` (false).
    pub inherit: Option<bool>,
    /// The CPUs that the PMU counts on, where it is not simply all of them. An event of a
    /// [system-wide](Self::system_wide) PMU has to be opened on each of these; one for a task
    /// counts while the task runs on them.
    pub cpus: Option<CpuList>,
    /// Whether the PMU belongs to no CPU's instruction stream, so that its events cannot be
    /// opened for a task.
    pub system_wide: bool,
    /// The unit of the scaled count.
    pub unit: Option<String>,
    /// What a count is multiplied with to get it in that unit.
    pub scale: f64,
    /// Whether a reading is a level at that moment, of which no differences are taken.
    pub snapshot: bool,
}

impl ResolvedEvent {
    /// Attributes that count this event. Rate and precision, which only samples have, are left
    /// out.
    pub fn counting(&self) -> Attr {
        let mut attr = Attr::new(self.config.clone()).exclude(self.exclude);
        if self.pinned {
            attr = attr.pinned();
        }
        if self.exclusive {
            attr = attr.exclusive();
        }
        if self.inherit == Some(true) {
            attr = attr.inherit();
        }
        attr
    }

    /// Attributes that take samples of `fields`, at the event's own rate if it was given one and
    /// otherwise at `rate`.
    pub fn sampling(&self, rate: Rate, fields: SampleFields) -> Attr {
        let mut attr = self.counting().sample(self.rate.unwrap_or(rate), fields);
        if self.sample_read {
            attr = attr.fields(SampleFields::READ);
        }
        if self.precision != Precision::Arbitrary {
            attr = attr.precision(self.precision);
        }
        attr
    }
}

/// What an event is before modifiers and terms that do not concern the PMU.
struct Base<'a> {
    config: EventConfig,
    pmu: Option<&'a Pmu>,
    settings: Settings,
    /// How to write it so that it means this one only, where one text means several.
    spelled: String,
}

pub(super) fn entry(entry: &Entry, pmus: &Pmus) -> Result<Vec<ResolvedGroup>, SpecError> {
    match entry {
        Entry::Event(spec) => {
            let events = event(spec, pmus, &Modifiers::default())?;
            let alone = |event| ResolvedGroup {
                events: vec![event],
                braces: false,
            };
            Ok(events.into_iter().map(alone).collect())
        }
        Entry::Group(spec) => group(spec, pmus),
    }
}

/// One group, or where a member is served by several PMUs, one for each of those: the kernel
/// does not mix hardware PMUs in a group. Members that the kernel counts in software, or leaves to
/// the PMU that it picks, are in each.
fn group(spec: &GroupSpec, pmus: &Pmus) -> Result<Vec<ResolvedGroup>, SpecError> {
    let members = spec.members.iter();
    let members: Vec<_> = members
        .map(|member| event(member, pmus, &spec.modifiers))
        .collect::<Result<_, _>>()?;
    let mut of_pmu: Vec<Option<&str>> = Vec::new();
    for event in members.iter().filter(|member| member.len() > 1).flatten() {
        if !of_pmu.contains(&event.pmu.as_deref()) {
            of_pmu.push(event.pmu.as_deref());
        }
    }
    let group = |events| ResolvedGroup {
        events,
        braces: true,
    };
    if of_pmu.is_empty() {
        return Ok(vec![group(members.into_iter().flatten().collect())]);
    }
    let belongs = |event: &&ResolvedEvent, pmu: &Option<&str>| {
        event.pmu.is_none() || event.pmu.as_deref() == *pmu
    };
    for (member, spec) in members.iter().zip(&spec.members) {
        if !member
            .iter()
            .any(|event| of_pmu.iter().any(|pmu| belongs(&event, pmu)))
        {
            let problem = "this event is of another PMU than the rest of its group";
            return Err(SpecError::new(
                spec.span,
                problem,
                "events of one PMU in a group",
            ));
        }
    }
    let events = |pmu| {
        let all = members.iter().flatten();
        all.filter(|event| belongs(event, &pmu)).cloned().collect()
    };
    Ok(of_pmu.into_iter().map(|pmu| group(events(pmu))).collect())
}

/// Every PMU's event that the description stands for; never empty.
fn event(
    spec: &EventSpec,
    pmus: &Pmus,
    group: &Modifiers,
) -> Result<Vec<ResolvedEvent>, SpecError> {
    let served_by = match spec.terms {
        Some(_) => find_pmus(&spec.head, pmus),
        None => Vec::new(),
    };
    let mut bases = match served_by.is_empty() {
        true => plain(spec, pmus)?,
        false => {
            let base = |pmu| of_pmu(pmu, pmus, renamed(spec, pmu));
            served_by.into_iter().map(base).collect::<Result<_, _>>()?
        }
    };
    if let [only] = &mut bases[..] {
        only.spelled = spec.to_string();
    }
    let finish = |base| finish(spec, base, group, pmus);
    bases.into_iter().map(finish).collect()
}

/// The PMU of that name, or those whose names are that with `_0`, `_1`, `_1f` and so on.
fn find_pmus<'a>(name: &str, pmus: &'a Pmus) -> Vec<&'a Pmu> {
    if let Some(pmu) = pmus.get(name) {
        return vec![pmu];
    }
    let numbered = |pmu: &&Pmu| {
        let number = pmu
            .name
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('_'));
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    pmus.iter().filter(numbered).collect()
}

/// `spec` with this PMU for its head.
fn renamed(spec: &EventSpec, pmu: &Pmu) -> EventSpec {
    let head = pmu.name.clone();
    EventSpec {
        head,
        ..spec.clone()
    }
}

/// `spec`, which names just an event, as `PMU/EVENT/`.
fn with_pmu(spec: &EventSpec, pmu: &Pmu) -> EventSpec {
    let mut whole = renamed(spec, pmu);
    let event = Term {
        name: spec.head.clone(),
        span: spec.span,
        ..Term::default()
    };
    whole.terms.get_or_insert_default().insert(0, event);
    whole
}

/// An event whose head is this PMU.
fn of_pmu<'a>(pmu: &'a Pmu, pmus: &Pmus, spec: EventSpec) -> Result<Base<'a>, SpecError> {
    let terms = spec.terms.as_deref().unwrap_or_default();
    let settings = Settings::of_pmu(pmu, terms, spec.span)?;
    Ok(Base {
        config: settings.config(pmu, pmus),
        pmu: Some(pmu),
        settings,
        spelled: spec.to_string(),
    })
}

/// An event that was written without a PMU.
fn plain<'a>(spec: &EventSpec, pmus: &'a Pmus) -> Result<Vec<Base<'a>>, SpecError> {
    // With one kind of CPU the kernel finds the PMU; with several it would take just one of them.
    let core: Vec<&Pmu> = pmus.core().collect();
    let places: Vec<Option<&Pmu>> = match core.len() > 1 {
        true => core.into_iter().map(Some).collect(),
        false => vec![None],
    };
    let base = |pmu: Option<&'a Pmu>, config| {
        let settings = Settings::generic(spec.terms.as_deref().unwrap_or_default())?;
        Ok(Base {
            config: settings.extend(config),
            pmu,
            settings,
            spelled: pmu.map_or_else(|| spec.to_string(), |pmu| with_pmu(spec, pmu).to_string()),
        })
    };
    if let Some(event @ Generic::Software(_)) = Generic::find(&spec.head) {
        return Ok(vec![base(None, event.config())?]);
    }
    if let Some(event) = Generic::find(&spec.head) {
        let config = |pmu: &Pmu| event.on_pmu(pmu.type_id);
        let on = |pmu: Option<&'a Pmu>| base(pmu, pmu.map_or_else(|| event.config(), config));
        return places.into_iter().map(on).collect();
    }
    if let Some(raw) = raw_number(&spec.head, spec.span)? {
        let config = |pmu: &Pmu| EventConfig::new(pmu.type_id, raw);
        let on = |pmu: Option<&'a Pmu>| base(pmu, pmu.map_or(EventConfig::raw(raw), config));
        return places.into_iter().map(on).collect();
    }
    let found = find_named(&spec.head, pmus);
    if found.is_empty() {
        return Err(unknown(spec, pmus));
    }
    let on = |pmu| of_pmu(pmu, pmus, with_pmu(spec, pmu));
    found.into_iter().map(on).collect()
}

/// The PMUs that list an event of that name; those of CPU cores if there are such.
fn find_named<'a>(name: &str, pmus: &'a Pmus) -> Vec<&'a Pmu> {
    let lists = |pmu: &&Pmu| pmu.events.contains_key(name);
    let core: Vec<_> = pmus.core().filter(lists).collect();
    if core.is_empty() {
        return pmus.iter().filter(lists).collect();
    }
    core
}

/// The number of `r11` or `r0x11`; `None` when the name is no such number.
pub(super) fn raw_number(name: &str, span: Span) -> Result<Option<u64>, SpecError> {
    let Some(digits) = name.strip_prefix('r') else {
        return Ok(None);
    };
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let number = u64::from_str_radix(digits, 16);
    number.map(Some).map_err(|_| {
        let expected = "at most 16 hexadecimal digits after the r";
        SpecError::new(span, format!("`{name}` does not fit in 64 bits"), expected)
    })
}

fn finish(
    spec: &EventSpec,
    base: Base<'_>,
    group: &Modifiers,
    pmus: &Pmus,
) -> Result<ResolvedEvent, SpecError> {
    let pmu = base.pmu;
    let settings = base.settings;
    let hardware = base.config.pmu != sys::PERF_TYPE_SOFTWARE;
    let precise_pmu = pmu.or_else(|| pmus.core().next().filter(|_| hardware));
    Ok(ResolvedEvent {
        name: settings.name.unwrap_or(base.spelled),
        pmu: pmu.map(|pmu| pmu.name.clone()),
        config: base.config,
        exclude: exclude(&spec.modifiers, group),
        rate: settings.rate,
        precision: precision(spec, group, precise_pmu)?,
        pinned: spec.modifiers.pinned || group.pinned,
        exclusive: spec.modifiers.exclusive || group.exclusive,
        sample_read: spec.modifiers.sample_read || group.sample_read,
        inherit: settings.inherit,
        cpus: pmu.and_then(|pmu| pmu.cpumask.clone().or_else(|| pmu.cpus.clone())),
        system_wide: pmu.is_some_and(|pmu| pmu.cpumask.is_some()),
        unit: settings.unit,
        scale: settings.scale,
        snapshot: settings.snapshot,
    })
}

/// As perf has it: naming a place excludes the others of its kind; no place named, none excluded.
fn exclude(own: &Modifiers, group: &Modifiers) -> Exclude {
    let places = [
        (own.user || group.user, Exclude::USER),
        (own.kernel || group.kernel, Exclude::KERNEL),
        (own.hypervisor || group.hypervisor, Exclude::HV),
    ];
    let machines = [
        (own.guest || group.guest, Exclude::GUEST),
        (own.host || group.host, Exclude::HOST),
    ];
    let idle = match own.non_idle || group.non_idle {
        true => Exclude::IDLE,
        false => Exclude::empty(),
    };
    idle | others(&places) | others(&machines)
}

fn others(places: &[(bool, Exclude)]) -> Exclude {
    if places.iter().all(|(named, _)| !named) {
        return Exclude::empty();
    }
    let not_named = places.iter().filter(|(named, _)| !named);
    not_named.map(|(_, exclude)| *exclude).collect()
}

/// The `p` of event and group add up; `P` is the best that the PMU says it can.
fn precision(
    spec: &EventSpec,
    group: &Modifiers,
    pmu: Option<&Pmu>,
) -> Result<Precision, SpecError> {
    let own = &spec.modifiers;
    let mut level = own.precise + group.precise;
    if own.precise_max || group.precise_max {
        level = level.max(pmu.map_or(0, Pmu::max_precise));
    }
    match level {
        0 => Ok(Precision::Arbitrary),
        1 => Ok(Precision::ConstantSkid),
        2 => Ok(Precision::RequestZeroSkid),
        3 => Ok(Precision::RequireZeroSkid),
        _ => {
            let problem = "event and group together have more than three `p`";
            Err(SpecError::new(own.span, problem, "at most `ppp`"))
        }
    }
}

/// A head that is neither PMU nor event.
fn unknown(spec: &EventSpec, pmus: &Pmus) -> SpecError {
    let name = &spec.head;
    if let Some(problem) = pmus.problems().iter().find(|problem| {
        let folder = problem.file.parent().and_then(|folder| folder.file_name());
        folder.is_some_and(|folder| folder == name.as_str())
    }) {
        let text = format!("the PMU `{name}` cannot be used: {problem}");
        return SpecError::new(spec.span, text, "");
    }
    let pmu_names = || pmus.iter().map(|pmu| format!("{}/", pmu.name));
    if spec.terms.is_some() {
        let known: Vec<_> = pmus.iter().map(|pmu| pmu.name.as_str()).collect();
        let expected = match known.is_empty() {
            true => "a PMU or event; this machine lists no PMU".to_owned(),
            false => format!("an event or one of the PMUs {}", known.join(", ")),
        };
        let near = super::near::names(&format!("{name}/"), pmu_names());
        return SpecError::new(spec.span, format!("no PMU `{name}`"), expected).suggest(near);
    }
    let named = pmus.iter().flat_map(|pmu| pmu.events.keys().cloned());
    let near = super::near::names(name, names::all().chain(named).chain(pmu_names()));
    let expected = match pmus.get(name) {
        Some(_) => format!("slashes behind a PMU: {name}/EVENT/"),
        None => "an event such as cycles, r11 or pmu/event/".to_owned(),
    };
    SpecError::new(spec.span, format!("no event `{name}`"), expected).suggest(near)
}

/// Terms that a PMU's named event stands for.
pub(super) fn event_terms(
    pmu: &Pmu,
    event: &crate::discovery::NamedEvent,
    span: Span,
) -> Result<Vec<Term>, SpecError> {
    parse::terms(&event.terms).map_err(|error| {
        let file = pmu.path.join("events").join(&event.name);
        let problem = format!("{}: {}", file.display(), error.problem());
        SpecError::new(span, problem, error.expected())
    })
}
