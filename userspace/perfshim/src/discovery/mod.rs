// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which PMUs there are, and what each can count: `/sys/bus/event_source/devices`.
//!
//! Source: Documentation/ABI/testing/sysfs-bus-event_source-devices* in the kernel tree.
//!
//! A file that makes no sense costs only what it describes: the rest of its PMU, and the other
//! PMUs, are there, and what was wrong is kept as a [`Problem`] that names the file.
//!
//! ```no_run
//! use perfshim::discovery::Pmus;
//!
//! let pmus = Pmus::system()?;
//! for pmu in pmus.iter() {
//!     println!("{}: type {}, {} named events", pmu.name, pmu.type_id, pmu.events.len());
//! }
//! # Ok::<(), perfshim::discovery::Problem>(())
//! ```

mod cpulist;
mod format;

pub use cpulist::CpuList;
pub use cpulist::CpuListError;
pub use format::ConfigWord;
pub use format::Format;
pub use format::FormatError;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the kernel lists its PMUs.
pub const SYSFS_DEVICES: &str = "/sys/bus/event_source/devices";

/// No sysfs attribute is longer than a page; the largest pages are 64 KiB.
const MAX_FILE: u64 = 64 * 1024;

/// The PMUs of a machine, by name.
#[derive(Clone, Debug, Default)]
pub struct Pmus {
    pmus: BTreeMap<String, Pmu>,
    problems: Vec<Problem>,
}

impl Pmus {
    /// The PMUs of the running kernel.
    ///
    /// # Errors
    /// As [`Pmus::scan`].
    pub fn system() -> Result<Self, Problem> {
        Self::scan(Path::new(SYSFS_DEVICES))
    }

    /// The PMUs below `devices`, which is [`SYSFS_DEVICES`] or a folder made like it.
    ///
    /// # Errors
    /// Only when the folder itself cannot be listed; that of a single PMU is in
    /// [`Pmus::problems`].
    pub fn scan(devices: &Path) -> Result<Self, Problem> {
        let mut found = Self::default();
        for folder in list(devices)? {
            match Pmu::read(&folder) {
                Ok(pmu) => {
                    found.problems.extend_from_slice(&pmu.problems);
                    found.pmus.insert(pmu.name.clone(), pmu);
                }
                Err(problem) => found.problems.push(problem),
            }
        }
        Ok(found)
    }

    /// The PMU of that name.
    pub fn get(&self, name: &str) -> Option<&Pmu> {
        self.pmus.get(name)
    }

    /// The PMU that an event of this `type` belongs to.
    pub fn by_type(&self, type_id: u32) -> Option<&Pmu> {
        self.iter().find(|pmu| pmu.type_id == type_id)
    }

    /// All PMUs in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Pmu> {
        self.pmus.values()
    }

    /// The PMUs of CPU cores: one on most machines, several where the CPUs differ.
    pub fn core(&self) -> impl Iterator<Item = &Pmu> {
        self.iter().filter(|pmu| pmu.is_core())
    }

    /// What could not be understood, of all PMUs.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// One PMU as sysfs describes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pmu {
    /// The name, such as `cpu`, `armv8_pmuv3` or `uncore_imc_0`.
    pub name: String,
    /// The folder in sysfs.
    pub path: PathBuf,
    /// The value for `perf_event_attr.type`.
    pub type_id: u32,
    /// The CPUs that this PMU counts on (`cpus`); only PMUs of CPU cores say so.
    pub cpus: Option<CpuList>,
    /// The CPUs, one a domain, on which events of a system-wide PMU must be opened (`cpumask`).
    pub cpumask: Option<CpuList>,
    /// The fields of an event, by name.
    pub formats: BTreeMap<String, Format>,
    /// The named events.
    pub events: BTreeMap<String, NamedEvent>,
    /// Capabilities (`caps`): name and text, as found.
    pub caps: BTreeMap<String, String>,
    /// How many address filters an event takes; `None` when the PMU has none at all.
    pub nr_addr_filters: Option<u32>,
    /// What could not be understood in this PMU's folder.
    pub problems: Vec<Problem>,
}

impl Pmu {
    /// Reads one PMU's folder.
    ///
    /// # Errors
    /// When its type cannot be read, for without it no event can be opened.
    pub fn read(folder: &Path) -> Result<Self, Problem> {
        let name = utf8_name(folder)?;
        let mut pmu = Self {
            name,
            path: folder.to_owned(),
            type_id: parse_file(&folder.join("type"), "a number")?,
            cpus: None,
            cpumask: None,
            formats: BTreeMap::new(),
            events: BTreeMap::new(),
            caps: BTreeMap::new(),
            nr_addr_filters: None,
            problems: Vec::new(),
        };
        pmu.cpus = pmu.optional("cpus", "a CPU list");
        pmu.cpumask = pmu.optional("cpumask", "a CPU list");
        pmu.nr_addr_filters = pmu.optional("nr_addr_filters", "a number");
        pmu.read_formats();
        pmu.read_events();
        pmu.read_caps();
        Ok(pmu)
    }

    /// Whether this is the PMU of CPU cores, which serves the kernel's generic hardware events.
    ///
    /// sysfs does not say so outright: like perf, this goes by the name `cpu` or a file `cpus`.
    pub fn is_core(&self) -> bool {
        self.name == "cpu" || self.cpus.is_some()
    }

    /// The highest `precise_ip` that the PMU grants (`caps/max_precise`), 0 when it says nothing.
    pub fn max_precise(&self) -> u8 {
        let cap = self.caps.get("max_precise");
        cap.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn optional<T: FromStr>(&mut self, file: &str, expected: &'static str) -> Option<T> {
        let path = self.path.join(file);
        match parse_file(&path, expected) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.note(problem);
                None
            }
        }
    }

    /// Keeps a problem, unless it is just that an optional file is not there.
    fn note(&mut self, problem: Problem) {
        if !matches!(&problem.kind, ProblemKind::Io(io::ErrorKind::NotFound, _)) {
            self.problems.push(problem);
        }
    }

    /// The files of a folder with their names; problems are noted and the file left out.
    fn files(&mut self, folder: &str) -> Vec<(String, PathBuf)> {
        let paths = list(&self.path.join(folder)).unwrap_or_else(|problem| {
            self.note(problem);
            Vec::new()
        });
        let named = paths.into_iter().map(|path| Ok((utf8_name(&path)?, path)));
        named
            .filter_map(|file| file.map_err(|problem| self.note(problem)).ok())
            .collect()
    }

    fn read_formats(&mut self) {
        for (name, path) in self.files("format") {
            let expected = "a field of an event such as config1:0-7,32-35 with bits 0 to 63";
            match parse_file(&path, expected) {
                Ok(format) => drop(self.formats.insert(name, format)),
                Err(problem) => self.note(problem),
            }
        }
    }

    fn read_events(&mut self) {
        // `x.unit` and the like describe the event `x`; events come first in the sorted list.
        for (name, path) in self.files("events") {
            let (event, suffix) = match name.rsplit_once('.') {
                Some((event, suffix)) if EVENT_SUFFIXES.contains(&suffix) => (event, suffix),
                _ => (name.as_str(), ""),
            };
            if let Err(problem) = self.read_event_file(event, suffix, &path) {
                self.note(problem);
            }
        }
    }

    fn read_event_file(&mut self, event: &str, suffix: &str, path: &Path) -> Result<(), Problem> {
        let text = read_text(path)?;
        if suffix.is_empty() {
            let event = NamedEvent::new(event, text);
            self.events.insert(event.name.clone(), event);
            return Ok(());
        }
        let Some(event) = self.events.get_mut(event) else {
            return Err(Problem::malformed(
                path,
                &text,
                "an event of that name beside it",
            ));
        };
        match suffix {
            "unit" => event.unit = Some(text),
            "scale" => {
                let scale = text.parse().ok().filter(|scale: &f64| scale.is_finite());
                event.scale =
                    scale.ok_or_else(|| Problem::malformed(path, &text, "a finite number"))?;
            }
            "snapshot" => event.snapshot = flag(path, &text)?,
            _ => event.per_package = flag(path, &text)?,
        }
        Ok(())
    }

    fn read_caps(&mut self) {
        for (name, path) in self.files("caps") {
            match read_text(&path) {
                Ok(text) => drop(self.caps.insert(name, text)),
                Err(problem) => self.note(problem),
            }
        }
    }
}

const EVENT_SUFFIXES: [&str; 4] = ["per-pkg", "scale", "snapshot", "unit"];

/// An event that a PMU has a name for (a file in its `events` folder).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NamedEvent {
    /// The name.
    pub name: String,
    /// What the name stands for: terms such as `event=0x11`, as found.
    pub terms: String,
    /// The unit of a scaled count, such as `MiB`.
    pub unit: Option<String>,
    /// What a count is multiplied with to get it in that unit; 1 unless the PMU says otherwise.
    pub scale: f64,
    /// Whether a reading is a level at that moment, of which no differences are taken.
    pub snapshot: bool,
    /// Whether one CPU of a package counts for the whole package.
    pub per_package: bool,
}

impl NamedEvent {
    fn new(name: &str, terms: String) -> Self {
        Self {
            name: name.to_owned(),
            terms,
            unit: None,
            scale: 1.0,
            snapshot: false,
            per_package: false,
        }
    }
}

/// Something in sysfs that could not be read or understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or folder.
    pub file: PathBuf,
    /// What is wrong with it.
    pub kind: ProblemKind,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// It cannot be read; the text is the system's.
    Io(io::ErrorKind, String),
    /// It holds something else than it should.
    Malformed {
        /// The beginning of what is in it.
        found: String,
        /// What should be.
        expected: &'static str,
    },
}

impl Problem {
    fn io(file: &Path, error: &io::Error) -> Self {
        Self {
            file: file.to_owned(),
            kind: ProblemKind::Io(error.kind(), error.to_string()),
        }
    }

    fn malformed(file: &Path, found: &str, expected: &'static str) -> Self {
        let found = found.chars().take(60).collect();
        Self {
            file: file.to_owned(),
            kind: ProblemKind::Malformed { found, expected },
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        match &self.kind {
            ProblemKind::Io(io::ErrorKind::NotFound, text) if self.file.ends_with("devices") => {
                write!(f, "{text}; is sysfs mounted, and perf in the kernel?")
            }
            ProblemKind::Io(_, text) => write!(f, "{text}"),
            ProblemKind::Malformed { found, expected } => {
                write!(f, "expected {expected}, found `{}`", found.escape_debug())
            }
        }
    }
}

impl std::error::Error for Problem {}

/// What lies in a folder, by name.
fn list(folder: &Path) -> Result<Vec<PathBuf>, Problem> {
    let entries = fs::read_dir(folder).map_err(|error| Problem::io(folder, &error))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> = paths
        .collect::<Result<_, _>>()
        .map_err(|error| Problem::io(folder, &error))?;
    paths.sort();
    Ok(paths)
}

fn utf8_name(path: &Path) -> Result<String, Problem> {
    let name = path.file_name().unwrap_or_default();
    let text = name.to_str().map(str::to_owned);
    text.ok_or_else(|| Problem::malformed(path, &name.to_string_lossy(), "a name in UTF-8"))
}

/// A file's text without the white space around it.
fn read_text(path: &Path) -> Result<String, Problem> {
    let io = |error: io::Error| Problem::io(path, &error);
    let file = fs::File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    let text = String::from_utf8_lossy(&bytes);
    if bytes.len() as u64 > MAX_FILE {
        return Err(Problem::malformed(path, &text, "at most 64 KiB"));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(_) => Err(Problem::malformed(path, &text, "text in UTF-8")),
    }
}

fn parse_file<T: FromStr>(path: &Path, expected: &'static str) -> Result<T, Problem> {
    let text = read_text(path)?;
    let value = text.parse().ok();
    value.ok_or_else(|| Problem::malformed(path, &text, expected))
}

fn flag(path: &Path, text: &str) -> Result<bool, Problem> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(Problem::malformed(path, text, "0 or 1")),
    }
}
