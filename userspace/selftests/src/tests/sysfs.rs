// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the PMU shows in sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::guest::{self, Pmu};
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "sysfs-contents",
        "every file of the PMU, and its place in sysfs, is as the C driver has it",
        || contents(include_str!("sysfs-max.txt")),
    )
    .core()
    .smp(2),
    Test::new(
        "sysfs-contents-a57",
        "the same on a CPU that counts fewer events",
        || contents(include_str!("sysfs-cortex-a57.txt")),
    )
    .cpu("cortex-a57")
    .smp(2),
    Test::new(
        "sysfs-format",
        "the format folder describes config and config1 as the PMUv3 ABI has them",
        format,
    ),
    Test::new(
        "sysfs-events",
        "every file in the events folder holds the architecture's number for its name",
        events,
    ),
    Test::new(
        "sysfs-caps",
        "the caps folder holds the fields of PMMIR_EL1 in hexadecimal",
        caps,
    ),
    Test::new(
        "sysfs-cpus",
        "the PMU claims all CPUs, and its type is one that the kernel gave out",
        cpus,
    )
    .smp(4),
];

/// Fails at the first line that differs from `want`, whose comments do not count.
fn contents(want: &str) -> Result<()> {
    let got = dump()?;
    let mut got = got.lines();
    let mut want = want.lines().filter(|line| !line.starts_with('#'));
    loop {
        match (got.next(), want.next()) {
            (None, None) => return Ok(()),
            (got, want) => ensure!(got == want, "sysfs has {got:?} where C has {want:?}"),
        }
    }
}

/// The files of one folder of the PMU, by name.
fn folder(name: &str) -> Result<BTreeMap<String, String>> {
    let path = Pmu::find()?.folder().join(name);
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, guest::read(entry.path())?);
    }
    Ok(files)
}

fn format() -> Result<()> {
    // Documented in the kernel's drivers/perf/arm_pmuv3.c as user ABI.
    let want = [
        ("event", "config:0-15"),
        ("long", "config1:0"),
        ("rdpmc", "config1:1"),
        ("threshold", "config1:5-16"),
        ("threshold_compare", "config1:3-4"),
        ("threshold_count", "config1:2"),
    ];
    let want: BTreeMap<_, _> = want.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let got = folder("format")?;
    ensure!(got == want, "format holds {got:?}, not {want:?}");
    Ok(())
}

fn events() -> Result<()> {
    let got = folder("events")?;
    // The numbers are those of the Arm ARM, section "PMU events and event numbers".
    for (name, number, always) in [
        ("inst_retired", 0x08, false),
        ("cpu_cycles", 0x11, true),
        ("stall_frontend", 0x23, false),
        ("stall_backend", 0x24, false),
        ("stall", 0x3c, false),
    ] {
        let want = format!("event=0x{number:04x}");
        match got.get(name) {
            Some(text) => ensure!(*text == want, "{name} holds {text:?}, not {want:?}"),
            None => ensure!(!always, "there is no {name}, which every PMUv3 counts"),
        }
    }
    for name in ["sw_incr", "chain"] {
        ensure!(
            !got.contains_key(name),
            "{name} is shown, and is of no use alone"
        );
    }
    for (name, text) in &got {
        let number = text
            .strip_prefix("event=0x")
            .filter(|digits| digits.len() >= 4);
        let number = number.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        ensure!(number.is_some(), "{name} holds {text:?}, not event=0xNNNN");
    }
    Ok(())
}

fn caps() -> Result<()> {
    let got = folder("caps")?;
    for name in ["slots", "bus_slots", "bus_width", "threshold_max"] {
        let text = got
            .get(name)
            .with_context(|| format!("there is no caps/{name}"))?;
        let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 8);
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        ensure!(
            value.is_some(),
            "{name} holds {text:?}, not eight hexadecimal digits"
        );
    }
    Ok(())
}

fn cpus() -> Result<()> {
    let pmu = Pmu::find()?;
    let (got, want) = (
        guest::read(pmu.folder().join("cpus"))?,
        guest::read("/sys/devices/system/cpu/possible")?,
    );
    ensure!(got == want, "cpus holds {got:?}, the machine has {want:?}");
    // PERF_TYPE_MAX: smaller numbers are fixed kinds of event.
    ensure!(
        pmu.type_id() >= 6,
        "type is {}, which is a fixed one",
        pmu.type_id()
    );
    Ok(())
}

/// Files that the driver core and perf core make; `type` is treated apart.
const CORE_FILES: [&str; 5] = [
    "power",
    "uevent",
    "subsystem",
    "type",
    "perf_event_mux_interval_ms",
];

/// Everything that sysfs says of the PMU, one file a line, in a form that two drivers can be
/// compared by: the type is left out when the kernel picked it, since the order of registration
/// decides it.
pub fn dump() -> Result<String> {
    let pmu = Pmu::find()?;
    let real = fs::canonicalize(pmu.folder())?;
    let mut lines = vec![
        format!("name {}", pmu.name()),
        format!("path {}", real.display()),
    ];
    lines.push(match pmu.type_id() {
        fixed @ 0..6 => format!("type {fixed}"),
        _ => "type dynamic".to_owned(),
    });
    let mut files = Vec::new();
    collect(&real, Path::new(""), &mut files)?;
    files.sort();
    lines.extend(files);
    Ok(lines.join("\n") + "\n")
}

/// Adds a line for each readable file below `top`/`below`: its name and its text.
fn collect(top: &Path, below: &Path, lines: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(top.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        let kind = entry.file_type()?;
        // What the driver core and perf core add to every PMU says nothing of this one.
        if CORE_FILES.iter().any(|core| name.starts_with(core)) {
            continue;
        }
        if kind.is_dir() {
            collect(top, &name, lines)?;
        } else if kind.is_file() {
            let text = guest::read(entry.path())?.replace('\n', "\\n");
            lines.push(format!("{} {text}", name.display()));
        } else if kind.is_symlink() {
            lines.push(format!("{} ->", name.display()));
        }
    }
    Ok(())
}
