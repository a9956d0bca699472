// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a recording: text for people, files for tools, and whether it is as expected.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use perfshim::discovery::Pmus;
use perfshim::profile::{FoldedStacks, Profile};
use perfshim::spec::ResolvedEvent;
use perfshim::symbols::Frame;
use serde::Serialize;

use crate::record::Recording;
use crate::system;
use crate::text::grouped;

/// How many samples are printed in full.
const SHOWN_SAMPLES: usize = 10;
/// How many functions are printed.
const SHOWN_FUNCTIONS: usize = 20;
/// The least share of all samples, in percent, of a function that is printed.
const SHOWN_SHARE: f64 = 0.1;
/// How far a share may be from what is expected, in points of percentage.
pub const TOLERANCE: f64 = 5.0;

/// A sample with its functions.
pub struct Sample {
    /// From 1 in the order of time.
    pub number: usize,
    /// The name of the task.
    pub program: Arc<str>,
    /// Instruction pointer.
    pub ip: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Nanoseconds of the kernel's scheduler clock.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// How many events it stands for.
    pub period: u64,
    /// The call chain, innermost first; without call chains the one function of the IP.
    pub frames: Vec<Frame>,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanoseconds) = (self.time / 1_000_000_000, self.time % 1_000_000_000);
        writeln!(f, "sample {} of {}", self.number, self.program)?;
        writeln!(f, "  IP {:#x}  PID {}  TID {}", self.ip, self.pid, self.tid)?;
        writeln!(
            f,
            "  TIME {seconds}.{nanoseconds:09}  CPU {}  PERIOD {}",
            self.cpu, self.period
        )?;
        for frame in &self.frames {
            writeln!(f, "    {:>16x} {frame}", frame.address)?;
        }
        Ok(())
    }
}

/// Where a recording was made.
pub struct Machine {
    pmu: Vec<String>,
    event: String,
    interrupts: Option<u64>,
}

impl Machine {
    /// The PMUs that serve these events, and the PMU's interrupts before and after.
    pub fn new(pmus: &Pmus, events: &[ResolvedEvent], interrupts: Option<(u64, u64)>) -> Self {
        let names = events.iter().map(|event| event.name.as_str());
        let mut pmu: Vec<String> = events
            .iter()
            .filter_map(|event| match &event.pmu {
                Some(name) => Some(name.clone()),
                None => pmus.by_type(event.config.pmu).map(|pmu| pmu.name.clone()),
            })
            .collect();
        if pmu.is_empty() {
            // The kernel's own hardware events go to the CPU's PMU.
            pmu.extend(pmus.core().map(|pmu| pmu.name.clone()));
        }
        Self {
            pmu,
            event: names.collect::<Vec<_>>().join(","),
            interrupts: interrupts.map(|(before, after)| after.saturating_sub(before)),
        }
    }
}

/// The summary of a recording. What of it is in summary.json, and under which names, is a promise to
/// other programs.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The kernel's release.
    pub kernel: String,
    /// The driver of the CPU's PMU.
    pub driver: Option<String>,
    /// The PMU, or several where CPUs differ.
    #[serde(skip)]
    pub pmu: Vec<String>,
    /// The event that was sampled.
    #[serde(skip)]
    pub event: String,
    /// The number of samples.
    pub samples: usize,
    /// The number of records that were lost because a ring was full.
    pub lost: u64,
    /// How often the kernel stopped sampling for a while.
    pub throttled: u64,
    /// How often the PMU interrupted, all its users together.
    pub interrupts: Option<u64>,
    /// The functions that were sampled, those with most samples first.
    pub functions: Vec<Function>,
    /// Ten samples in full, spread over the recording.
    #[serde(skip)]
    shown: Vec<String>,
    /// The exit status of the command, if there was one that ended by itself.
    #[serde(skip)]
    pub exit_status: Option<i32>,
}

/// A function's part in the samples of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function {
    /// The function's name, demangled.
    pub name: String,
    /// Its samples in percent of its program's, rounded to hundredths.
    pub share: f64,
    /// The name of the task that ran it.
    #[serde(skip)]
    pub program: String,
    /// The file that it is in.
    #[serde(skip)]
    pub object: Option<String>,
    /// Its samples in percent of all, rounded to hundredths.
    #[serde(skip)]
    pub share_of_all: f64,
}

/// What a function's share should be: `NAME=SHARE`, or `PROGRAM:NAME=SHARE`, in percent.
///
/// NAME is the function's full name or, for Rust and C++, its last part.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    program: Option<String>,
    name: String,
    share: f64,
}

impl FromStr for Expected {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("NAME=SHARE or PROGRAM:NAME=SHARE with a SHARE from 0 to 100, not {text:?}");
        let (left, share) = text.rsplit_once('=').ok_or_else(wrong)?;
        let share = share.parse().map_err(|_| wrong())?;
        // A path has two colons.
        let (program, name) = match left.split_once(':') {
            Some((program, name)) if !name.starts_with(':') => (Some(program.to_owned()), name),
            _ => (None, left),
        };
        if name.is_empty() || !(0.0..=100.0).contains(&share) {
            return Err(wrong());
        }
        Ok(Self {
            program,
            name: name.to_owned(),
            share,
        })
    }
}

impl Expected {
    fn is_about(&self, function: &Function) -> bool {
        let last = function.name.rsplit("::").next();
        (function.name == self.name || last == Some(self.name.as_str()))
            && self
                .program
                .as_ref()
                .is_none_or(|program| *program == function.program)
    }
}

impl Report {
    /// What is not as expected, a line each. Where something is expected, a recording without
    /// samples or with lost records is not as it should be either.
    pub fn check(&self, expected: &[Expected]) -> Vec<String> {
        let mut wrong = Vec::new();
        if expected.is_empty() {
            return wrong;
        }
        if self.samples == 0 {
            wrong.push("there were no samples".to_owned());
            return wrong;
        }
        if self.lost > 0 {
            wrong.push(format!(
                "{} records were lost: use a larger ring (--ring)",
                self.lost
            ));
        }
        for expected in expected {
            let found: Vec<&Function> = self
                .functions
                .iter()
                .filter(|function| expected.is_about(function))
                .collect();
            if found.is_empty() {
                wrong.push(format!("no sample was in {}", expected.name));
            }
            for function in found {
                if (function.share - expected.share).abs() > TOLERANCE {
                    wrong.push(format!(
                        "{} has {:.1} % of the samples of {}, not {:.0} % give or take {TOLERANCE}",
                        function.name, function.share, function.program, expected.share
                    ));
                }
            }
        }
        wrong
    }
}

/// Writes samples.txt, profile.folded, flamegraph.svg and summary.json into `folder`.
///
/// # Errors
/// When a file cannot be written; the error names it.
pub fn write(
    mut recording: Recording,
    machine: Machine,
    exit_status: Option<i32>,
    folder: &Path,
) -> Result<Report> {
    let mut profiles: HashMap<Arc<str>, Profile> = HashMap::new();
    let mut folded = FoldedStacks::default();
    let mut shown = Vec::new();
    let total = recording.len();
    let path = folder.join("samples.txt");
    let failed = || format!("writing {}", path.display());
    let mut file = BufWriter::new(File::create(&path).with_context(failed)?);
    recording.for_each(|sample| {
        writeln!(file, "{sample}").with_context(failed)?;
        if is_shown(sample.number, total) {
            shown.push(sample.to_string());
        }
        folded.add(&sample.program, &sample.frames, 1);
        profiles
            .entry(sample.program)
            .or_default()
            .add(&sample.frames, 1);
        Ok(())
    })?;
    file.flush().with_context(failed)?;

    let report = Report {
        kernel: system::kernel_release(),
        driver: system::driver(),
        pmu: machine.pmu,
        event: machine.event,
        samples: total,
        lost: recording.lost,
        throttled: recording.throttled,
        interrupts: machine.interrupts,
        functions: functions(&profiles),
        shown,
        exit_status,
    };
    let text = folded.to_string();
    save(&folder.join("profile.folded"), text.as_bytes())?;
    save(
        &folder.join("flamegraph.svg"),
        &flame_graph(&text, &report)?,
    )?;
    let summary = serde_json::to_string_pretty(&report)? + "\n";
    save(&folder.join("summary.json"), summary.as_bytes())?;
    Ok(report)
}

fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Whether a sample is one of those that are shown: all of a few, else ten evenly spread ones.
fn is_shown(number: usize, total: usize) -> bool {
    // Each step of this quotient, of which there are so many as are shown, is at one sample.
    let step = |number: usize| number * SHOWN_SAMPLES / total.max(1);
    total <= SHOWN_SAMPLES || step(number) != step(number - 1)
}

/// The functions of all programs, those with most samples first.
fn functions(profiles: &HashMap<Arc<str>, Profile>) -> Vec<Function> {
    let all: u64 = profiles.values().map(Profile::weight).sum();
    let mut functions = Vec::new();
    for (program, profile) in profiles {
        for function in profile.functions() {
            if function.self_weight == 0 {
                continue;
            }
            functions.push(Function {
                name: function.name.to_string(),
                share: hundredths(function.self_share * 100.0),
                program: program.to_string(),
                object: function.object.map(|object| object.to_string()),
                share_of_all: hundredths(function.self_weight as f64 / all.max(1) as f64 * 100.0),
            });
        }
    }
    let names = |f: &Function| (f.program.clone(), f.name.clone());
    functions.sort_by(|a, b| {
        let by_share = b.share_of_all.total_cmp(&a.share_of_all);
        by_share.then_with(|| names(a).cmp(&names(b)))
    });
    functions
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// The flame graph of folded stacks.
fn flame_graph(folded: &str, report: &Report) -> Result<Vec<u8>> {
    let mut svg = Vec::new();
    if folded.is_empty() {
        // inferno refuses to draw nothing.
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\"><text y=\"20\">no samples</text></svg>"
        )?;
        return Ok(svg);
    }
    let mut options = inferno::flamegraph::Options::default();
    options.title = format!("{}: {} samples", report.event, report.samples);
    options.subtitle = Some(format!(
        "kernel {}, PMU driver {}",
        report.kernel,
        report.driver()
    ));
    options.count_name = "samples".to_owned();
    inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut svg)
        .context("drawing the flame graph")?;
    Ok(svg)
}

impl Report {
    fn driver(&self) -> &str {
        self.driver.as_deref().unwrap_or("none")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "kernel {}, PMU driver {}, PMU {}, event {}\n",
            self.kernel,
            self.driver(),
            self.pmu.join(" "),
            self.event
        )?;
        writeln!(
            f,
            "{} of {} samples:\n",
            self.shown.len(),
            grouped(self.samples as u64)
        )?;
        for sample in &self.shown {
            writeln!(f, "{sample}")?;
        }
        writeln!(
            f,
            "hottest functions, by their share of all samples and of their program's:\n"
        )?;
        writeln!(
            f,
            "  of all  of program  {:<16} {:<32} object",
            "program", "function"
        )?;
        let hot = self
            .functions
            .iter()
            .filter(|function| function.share_of_all >= SHOWN_SHARE);
        let shown = hot.clone().count().min(SHOWN_FUNCTIONS);
        for function in hot.take(SHOWN_FUNCTIONS) {
            writeln!(
                f,
                "{:>6.2} %    {:>6.2} %  {:<16} {:<32} {}",
                function.share_of_all,
                function.share,
                function.program,
                function.name,
                function.object.as_deref().unwrap_or("-")
            )?;
        }
        if self.functions.len() > shown {
            writeln!(
                f,
                "{:>10} {} more in summary.json",
                "",
                self.functions.len() - shown
            )?;
        }
        let mut interrupts = String::new();
        match self.interrupts {
            Some(count) => write!(interrupts, "{}", grouped(count))?,
            None => write!(interrupts, "an unknown number of")?,
        }
        write!(
            f,
            "\n{} samples, {interrupts} interrupts, {} lost records, {} throttles",
            grouped(self.samples as u64),
            grouped(self.lost),
            grouped(self.throttled)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(program: &str, name: &str, share: f64) -> Function {
        Function {
            name: name.to_owned(),
            share,
            program: program.to_owned(),
            object: None,
            share_of_all: share,
        }
    }

    fn report(functions: Vec<Function>) -> Report {
        Report {
            kernel: "7.3".to_owned(),
            driver: None,
            pmu: vec!["armv8_pmuv3".to_owned()],
            event: "cycles".to_owned(),
            samples: 100,
            lost: 0,
            throttled: 0,
            interrupts: None,
            functions,
            shown: Vec::new(),
            exit_status: None,
        }
    }

    fn expected(texts: &[&str]) -> Vec<Expected> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn expectations_are_read_or_refused() {
        let parse = |text: &str| text.parse::<Expected>();
        let plain = parse("hot=70").unwrap();
        assert_eq!(
            (plain.program, plain.name.as_str(), plain.share),
            (None, "hot", 70.0)
        );
        let of_program = parse("workload-c:hot=12.5").unwrap();
        assert_eq!(of_program.program.as_deref(), Some("workload-c"));
        let path = parse("a::b=1").unwrap();
        assert_eq!((path.program, path.name.as_str()), (None, "a::b"));
        for wrong in [
            "", "hot", "hot=", "=70", "hot=101", "hot=-1", "hot=NaN", "p:=1",
        ] {
            let message = parse(wrong).unwrap_err();
            assert!(message.contains(&format!("{wrong:?}")), "{message}");
        }
    }

    #[test]
    fn shares_within_five_points_are_as_expected() {
        let report = report(vec![
            function("c", "hot", 74.9),
            function("rust", "workload::hot", 65.1),
        ]);
        assert!(report.check(&expected(&["hot=70", "c:hot=75"])).is_empty());
        assert_eq!(report.check(&expected(&["hot=71"])).len(), 1);
        assert_eq!(
            report.check(&expected(&["c:hot=60", "rust:hot=60"])).len(),
            2
        );
        assert_eq!(
            report.check(&expected(&["cold=0"])),
            ["no sample was in cold"]
        );
        assert_eq!(
            report.check(&expected(&["other:hot=70"])),
            ["no sample was in hot"]
        );
    }

    #[test]
    fn lost_records_and_no_samples_are_not_as_expected() {
        let mut report = report(vec![function("c", "hot", 70.0)]);
        report.lost = 1;
        assert!(report.check(&[]).is_empty());
        assert_eq!(report.check(&expected(&["hot=70"])).len(), 1);
        report.samples = 0;
        assert_eq!(
            report.check(&expected(&["hot=70"])),
            ["there were no samples"]
        );
    }

    #[test]
    fn ten_samples_are_shown_or_all() {
        for total in [1, 9, 10, 11, 19, 20, 21, 1_000, 1_022] {
            let shown = (1..=total)
                .filter(|&number| is_shown(number, total))
                .count();
            assert_eq!(shown, total.min(10), "of {total}");
        }
    }

    #[test]
    fn a_flame_graph_of_nothing_is_a_picture_too() {
        let empty = flame_graph("", &report(Vec::new())).unwrap();
        assert!(empty.starts_with(b"<svg"));
        let some = flame_graph("main;hot 3\n", &report(Vec::new())).unwrap();
        assert!(String::from_utf8(some).unwrap().contains("hot"));
    }

    #[test]
    fn the_summary_is_what_other_programs_read() {
        let json = serde_json::to_value(report(vec![function("c", "hot", 70.0)])).unwrap();
        let expected = serde_json::json!({
            "kernel": "7.3",
            "driver": null,
            "samples": 100,
            "lost": 0,
            "throttled": 0,
            "interrupts": null,
            "functions": [{ "name": "hot", "share": 70.0 }],
        });
        assert_eq!(json, expected);
    }
}
