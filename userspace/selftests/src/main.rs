// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a CPU PMU driver through perf_event_open(2), for a guest.
//!
//! `selftests --list` names every test with the guest that it needs; `selftests NAME...` runs
//! some in the guest at hand and prints TAP. Each test holds for any driver of the PMU: one that
//! fails under the C driver is itself wrong.

mod counters;
mod guest;
mod process;
mod records;
mod registry;
mod tap;
mod tests;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use registry::Test;

/// Tests of a CPU PMU driver, to be run in a guest.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true
)]
struct Args {
    /// Print a line for each test: name, kernels, drivers, clock, CPU model, CPUs, seconds, device
    /// tree, command line, summary, separated by tabs
    #[arg(long, conflicts_with = "names")]
    list: bool,
    /// Tests to run
    names: Vec<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Print what sysfs says of the PMU, to be compared between drivers
    SysfsDump,
    /// Run a workload under test and nothing else; the tests start themselves in this way
    #[command(hide = true)]
    Child {
        /// Iterations of the counted loop
        iterations: u64,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.command {
        Some(Command::SysfsDump) => tests::sysfs::dump().map(|text| {
            print!("{text}");
            true
        }),
        Some(Command::Child { iterations }) => {
            workloads::run_loop(iterations);
            Ok(true)
        }
        None if args.list => {
            registry::all().for_each(|test| println!("{test}"));
            Ok(true)
        }
        None => run(&args.names),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("selftests: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(names: &[String]) -> anyhow::Result<bool> {
    let chosen: Vec<&Test> = names
        .iter()
        .map(|name| {
            registry::all()
                .find(|test| test.name == name)
                .ok_or_else(|| {
                    anyhow::anyhow!("no test is named {name:?}; `selftests --list` names them all")
                })
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(tap::run(&mut io::stdout().lock(), chosen.into_iter())?)
}
