// SPDX-License-Identifier: MIT OR Apache-2.0
//! pmu: lists, counts and samples hardware events. Parses arguments, calls the library, prints.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use perfshim::Rate;
use perfshim::discovery::CpuList;
use pmu::watch::Request;
use pmu::{list, record, report, stat};
use serde::Serialize;

/// List, count and sample hardware events
///
/// Events are written as for perf: cycles, r11, armv8_pmuv3/cpu_cycles/, with modifiers such as
/// :u (user mode) and :k (kernel), groups in braces. `pmu list` names those of this machine.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the PMUs and their events
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Count events
    ///
    /// Exits with the command's own status, or 128 and the number of the signal that ended it.
    /// Counts that stand for a part of the time, because events shared a counter, are scaled up
    /// and marked.
    Stat {
        /// Events to count, separated by commas; may be given several times
        #[arg(short, long, value_name = "EVENTS")]
        event: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        what: What,
    },
    /// Take samples, and write a profile
    ///
    /// Leaves in the folder: samples.txt (every sample), profile.folded, flamegraph.svg and
    /// summary.json.
    Record(Record),
}

#[derive(Args)]
struct Record {
    /// The event to sample
    #[arg(short, long, value_name = "EVENT", default_value = "cycles")]
    event: String,
    /// Take a sample each PERIOD events
    #[arg(short = 'c', long, value_name = "PERIOD", conflicts_with = "frequency")]
    period: Option<u64>,
    /// Take about so many samples a second
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 1000)]
    frequency: u64,
    /// Keep call chains
    #[arg(short = 'g', long)]
    call_chain: bool,
    /// The folder to write to; it is made if it is not there
    #[arg(short, long, value_name = "DIR", default_value = "pmu.data")]
    output: PathBuf,
    /// Size of the ring for each CPU or thread, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 1024)]
    ring: usize,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Fail unless the function NAME has SHARE % of the samples, give or take 5 points; may be
    /// given several times
    #[arg(long, value_name = "NAME=SHARE")]
    expect: Vec<report::Expected>,
    #[command(flatten)]
    what: What,
}

/// What to watch and for how long.
#[derive(Args)]
struct What {
    /// Watch all CPUs
    #[arg(short, long, conflicts_with_all = ["cpu", "pid"])]
    all: bool,
    /// Watch these CPUs, such as 0-3,7
    #[arg(short = 'C', long, value_name = "CPUS", conflicts_with = "pid")]
    cpu: Option<CpuList>,
    /// Watch a process with all its threads
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,
    /// Stop after so many seconds
    #[arg(short, long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// The command to run; without -a and -C, it is what is watched
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid")]
    command: Vec<OsString>,
}

impl What {
    fn request(self) -> Result<Request> {
        match self {
            What {
                cpu: Some(cpus),
                command,
                ..
            } => Ok(Request::Cpus(cpus, command)),
            What { pid: Some(pid), .. } => Ok(Request::Process(pid)),
            What {
                all: true, command, ..
            } => Ok(Request::System(command)),
            What { command, .. } if !command.is_empty() => Ok(Request::Command(command)),
            _ => anyhow::bail!(
                "nothing to watch: give a command after `--`, or -a for all CPUs, -C CPUS or -p PID"
            ),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("a number of seconds above 0, not {text:?}");
    let seconds = text.parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(wrong()),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("pmu: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { json } => {
            let list = list::read()?;
            print(json, &list)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Stat { event, json, what } => {
            let report = stat::run(stat::Options {
                events: (!event.is_empty()).then(|| event.join(",")),
                limit: what.seconds,
                request: what.request()?,
            })?;
            print(json, &report)?;
            Ok(exit_code(report.exit_status))
        }
        Command::Record(args) => record_command(args),
    }
}

fn record_command(args: Record) -> Result<ExitCode> {
    let rate = match args.period {
        Some(period) => Rate::Period(period),
        None => Rate::Frequency(args.frequency),
    };
    let report = record::run(record::Options {
        event: args.event,
        rate,
        call_chain: args.call_chain,
        ring_bytes: args.ring.saturating_mul(1024),
        limit: args.what.seconds,
        output: args.output,
        request: args.what.request()?,
    })?;
    print(args.json, &report)?;
    let wrong = report.check(&args.expect);
    for problem in &wrong {
        eprintln!("pmu: {problem}");
    }
    Ok(match wrong.is_empty() {
        true => exit_code(report.exit_status),
        false => ExitCode::FAILURE,
    })
}

/// Prints for people, or for programs.
fn print(json: bool, value: &(impl fmt::Display + Serialize)) -> Result<()> {
    let text = match json {
        true => serde_json::to_string_pretty(value)?,
        false => value.to_string(),
    };
    match writeln!(io::stdout().lock(), "{text}") {
        // The reader had enough, as `head` has.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// The command's own exit status, 128 and the signal's number for one that a signal ended; 0
/// without a command, and for one that was stopped here.
fn exit_code(status: Option<i32>) -> ExitCode {
    match status {
        Some(status) => u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from),
        None => ExitCode::SUCCESS,
    }
}
