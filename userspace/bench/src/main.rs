// SPDX-License-Identifier: MIT OR Apache-2.0
//! Does each operation on events a few times between two markers, for scripts/bench to measure.
//!
//! `bench OPERATION...` prints a line for each interval between a first and a second marker, in their
//! order: the operation, a tab, and how often it was done. The instructions that it took are what the
//! plugin in qemu/plugins counted meanwhile. The operation `empty` does nothing, and `loop` is the loop
//! of the overflows without their event: what these take belongs to the others, too.

mod operations;
mod settle;

use std::process::ExitCode;

use anyhow::{Context, Result};
use workloads::el0::marker;

/// Rounds of each operation, of which the median is taken.
const ROUNDS: usize = 31;

/// The intervals so far.
#[derive(Default)]
struct Intervals(Vec<(&'static str, u64)>);

impl Intervals {
    /// Does `work` between two markers, which is `times` the operation.
    fn measure(
        &mut self,
        operation: &'static str,
        times: u64,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        marker();
        let done = work();
        marker();
        done.with_context(|| operation.to_owned())?;
        self.0.push((operation, times));
        Ok(())
    }

    /// The same, several times over: each round is `times` calls of `work`.
    fn rounds(
        &mut self,
        operation: &'static str,
        times: u64,
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        for _ in 0..ROUNDS {
            self.measure(operation, times, || (0..times).try_for_each(|_| work()))?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.first().is_some_and(|name| name == operations::ECHO) {
        return exit(operations::echo());
    }
    exit(run(&names))
}

fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(names: &[String]) -> Result<()> {
    let mut chosen = Vec::new();
    for name in names {
        let operation = operations::ALL.iter().find(|(known, _)| known == name);
        chosen.push(operation.with_context(|| {
            let known: Vec<_> = operations::ALL.iter().map(|(name, _)| *name).collect();
            format!(
                "there is no operation '{name}', there are {}",
                known.join(", ")
            )
        })?);
    }
    // The plugin begins to count.
    marker();
    let mut intervals = Intervals::default();
    for (_, measure) in chosen {
        measure(&mut intervals)?;
    }
    for (operation, times) in intervals.0 {
        println!("{operation}\t{times}");
    }
    Ok(())
}
