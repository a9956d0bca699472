// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which PMUs and events this machine has.

use std::fmt;

use anyhow::Result;
use perfshim::discovery::Pmus;
use perfshim::{Event, Target, spec};
use serde::Serialize;

/// The PMUs, their events, and the kernel's own names for events.
#[derive(Debug, Serialize)]
pub struct List {
    /// The PMUs in sysfs.
    pub pmus: Vec<Pmu>,
    /// The names that stand for an event on any machine.
    pub kernel_events: Vec<KernelEvent>,
    /// What in sysfs could not be understood.
    pub problems: Vec<String>,
}

/// A PMU.
#[derive(Debug, Serialize)]
pub struct Pmu {
    /// Its name in event descriptions.
    pub name: String,
    /// The number for `perf_event_attr.type`.
    pub r#type: u32,
    /// The CPUs that it counts on; `None` where it does not say.
    pub cpus: Option<String>,
    /// Its named events, as `PMU/EVENT/`.
    pub events: Vec<String>,
    /// The fields of an event: name and place.
    pub fields: Vec<(String, String)>,
}

/// An event of the kernel's own.
#[derive(Debug, Serialize)]
pub struct KernelEvent {
    /// Its name.
    pub name: String,
    /// Whether it can be counted here, by this user.
    pub available: bool,
}

/// Reads sysfs, and tries each of the kernel's events.
///
/// # Errors
/// When sysfs does not list PMUs.
pub fn read() -> Result<List> {
    let pmus = Pmus::system()?;
    let problems = pmus.problems().iter().map(ToString::to_string).collect();
    let available = |name: &str| {
        let groups = spec::resolve(name, &pmus).unwrap_or_default();
        let mut events = groups.iter().flat_map(|group| &group.events);
        events.any(|event| Event::open(&event.counting(), Target::ThisThread).is_ok())
    };
    let kernel_events = spec::kernel_event_names()
        .map(|name| KernelEvent {
            available: available(&name),
            name,
        })
        .collect();
    Ok(List {
        pmus: pmus.iter().map(pmu).collect(),
        kernel_events,
        problems,
    })
}

fn pmu(pmu: &perfshim::discovery::Pmu) -> Pmu {
    let fields = pmu.formats.iter();
    Pmu {
        name: pmu.name.clone(),
        r#type: pmu.type_id,
        cpus: pmu
            .cpus
            .as_ref()
            .or(pmu.cpumask.as_ref())
            .map(ToString::to_string),
        events: pmu
            .events
            .keys()
            .map(|event| format!("{}/{event}/", pmu.name))
            .collect(),
        fields: fields
            .map(|(name, format)| (name.clone(), format.to_string()))
            .collect(),
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pmu in &self.pmus {
            write!(f, "{} (type {}", pmu.name, pmu.r#type)?;
            match &pmu.cpus {
                Some(cpus) => writeln!(f, ", CPUs {cpus})")?,
                None => writeln!(f, ")")?,
            }
            for event in &pmu.events {
                writeln!(f, "  {event}")?;
            }
            for (name, place) in &pmu.fields {
                writeln!(f, "  field {name}: {place}")?;
            }
        }
        let names = |available| {
            let events = self.kernel_events.iter();
            let names: Vec<&str> = events
                .filter(|event| event.available == available)
                .map(|event| event.name.as_str())
                .collect();
            names.join(" ")
        };
        writeln!(
            f,
            "\nThe kernel's own events, counted here:\n  {}",
            names(true)
        )?;
        write!(f, "\nNot counted here:\n  {}", names(false))?;
        for problem in &self.problems {
            write!(f, "\nnot understood: {problem}")?;
        }
        Ok(())
    }
}
