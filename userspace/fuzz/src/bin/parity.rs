// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints what a driver does with many events, in lines that are equal for two equal drivers.

use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use fuzz::interleaving;
use fuzz::machine::Machine;
use fuzz::puppet::serve_if_asked;
use fuzz::sweep::{Combination, Sweep};

/// What a driver does, for comparison with another driver.
///
/// Each line has three columns with tabs between them: a number, what was asked for, what came of
/// it. A number after `~` differs a little between drivers. scripts/parity compares.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Events and groups of all kinds, one after the other. Counts are exact under -icount
    Sweep {
        #[command(flatten)]
        which: Which,
    },
    /// Sequences of operations on a few events
    Interleave {
        #[command(flatten)]
        which: Which,
        /// Operations in each sequence
        #[arg(long, default_value_t = 60)]
        operations: usize,
        /// Only print the operations
        #[arg(long)]
        list: bool,
    },
}

#[derive(Args)]
struct Which {
    /// What all follow from
    #[arg(long)]
    seed: u64,
    /// How many
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// Only the one of this number
    #[arg(long)]
    only: Option<u64>,
}

impl Which {
    fn numbers(&self) -> Range<u64> {
        match self.only {
            Some(only) => only..only + 1,
            None => 0..self.count,
        }
    }
}

fn main() -> ExitCode {
    serve_if_asked();
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("parity: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, io::stdout().lock());
    let machine = Machine::find()?;
    match &cli.command {
        Command::Sweep { which } => {
            let sweep = Sweep::new(&machine)?;
            for number in which.numbers() {
                let combination = Combination::new(which.seed, number, machine.cpus);
                let report = sweep.measure(&combination)?;
                writeln!(out, "{number}\t{combination}\t{}", report.results)?;
                if let Some(places) = report.places {
                    writeln!(out, "{number}.places\tcounters of the one above\t{places}")?;
                }
            }
        }
        Command::Interleave {
            which,
            operations,
            list,
        } => {
            let plan = interleaving::Plan {
                seed: which.seed,
                rounds: which.numbers(),
                operations: *operations,
            };
            if *list {
                interleaving::list(&plan, machine.cpus, &mut out)?;
            } else {
                // No throttling: its moment differs.
                machine.limit_sampling(10_000_000, 0)?;
                interleaving::run(&machine, &plan, &mut out)?;
            }
        }
    }
    Ok(out.flush()?)
}
