// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequences of operations on a few events, one at a time, so that each step has one right answer.

use std::io::{self, Write};
use std::ops::Range;

use anyhow::Result;

use crate::machine::Machine;
use crate::operation::{Operation, Role, Stream};
use crate::process::{Comparable, Patience, Process};
use crate::request::Whom;

/// Which sequences.
pub struct Plan {
    /// What they follow from.
    pub seed: u64,
    /// Their numbers.
    pub rounds: Range<u64>,
    /// Operations in each.
    pub operations: usize,
}

/// Does the operations of a plan and writes a line for each: round and step, the operation, what
/// came of it, with tabs between them.
pub fn run(machine: &Machine, plan: &Plan, out: &mut impl Write) -> Result<()> {
    for round in plan.rounds.clone() {
        let mut process = Process::new(machine, Patience::Wait);
        settle(&mut process);
        let stream = Stream::new(plan.seed, round, Role::Exact, machine.cpus);
        for (step, operation) in stream.take(plan.operations).enumerate() {
            let outcome = process.perform(&operation);
            writeln!(out, "{round}.{step}\t{operation}\t{}", Comparable(&outcome))?;
            if matches!(operation, Operation::Cpu(..)) {
                settle(&mut process);
            }
        }
        drop(process);
        machine.all_online()?;
    }
    Ok(())
}

/// Puts everybody on CPU 0: the kernel has let those whose CPU went run anywhere.
fn settle(process: &mut Process<'_>) {
    for whom in [Whom::This, Whom::Child(0), Whom::Child(1)] {
        // Children need not be there.
        let _ = process.perform(&Operation::Move(whom, 1));
    }
}

/// The operations of one round, without doing them.
pub fn list(plan: &Plan, cpus: u32, out: &mut impl Write) -> io::Result<()> {
    for round in plan.rounds.clone() {
        let stream = Stream::new(plan.seed, round, Role::Exact, cpus);
        for (step, operation) in stream.take(plan.operations).enumerate() {
            writeln!(out, "{round}.{step}\t{operation}")?;
        }
    }
    Ok(())
}
