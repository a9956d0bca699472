// SPDX-License-Identifier: MIT OR Apache-2.0
//! workload-rust: a program whose profile is known before it runs.
//!
//! ```text
//! main ─┬─ crunch ─┬─ seventy_percent
//!       │          └─ twenty_percent
//!       └─ tidy ───── ten_percent
//! ```
//!
//! The three leaves run the same loop, 7 : 2 : 1 times, in short rounds: stopped after any
//! round, the shares are the same.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A round is short against any sampling period, and their ratio is no whole number: samples at
/// even distances meet all of it.
const UNIT: u64 = 199;
/// Rounds in an iteration, which ends with a look at the clock.
const ROUNDS: u64 = 1_000;
const USAGE: &str = "usage: workload-rust --seconds S | --iterations N
Spends 70 %, 20 % and 10 % of its time in seventy_percent, twenty_percent and
ten_percent. An iteration is 1990000 turns of the same loop. S and N are above 0.";

#[inline(always)]
fn mix(mut state: u64, iterations: u64) -> u64 {
    for _ in 0..iterations {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

#[inline(never)]
fn seventy_percent(state: u64) -> u64 {
    mix(state, 7 * UNIT)
}

#[inline(never)]
fn twenty_percent(state: u64) -> u64 {
    mix(state, 2 * UNIT)
}

#[inline(never)]
fn ten_percent(state: u64) -> u64 {
    mix(state, UNIT)
}

// What follows a call keeps it from becoming a jump, which would take this function out of the
// chain.
#[inline(never)]
fn crunch(state: u64) -> u64 {
    twenty_percent(seventy_percent(state)).wrapping_add(1)
}

#[inline(never)]
fn tidy(state: u64) -> u64 {
    ten_percent(state).wrapping_add(1)
}

/// When to stop: after some time or after some iterations.
enum Limit {
    Time(Duration),
    Iterations(u64),
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Limit> {
    let (option, value) = (args.next()?, args.next()?);
    let limit = match option.as_str() {
        "--seconds" => {
            let time = Duration::try_from_secs_f64(value.parse().ok()?).ok()?;
            (!time.is_zero()).then_some(Limit::Time(time))?
        }
        "--iterations" => {
            let count = value.parse().ok()?;
            (count > 0).then_some(Limit::Iterations(count))?
        }
        _ => return None,
    };
    args.next().is_none().then_some(limit)
}

fn main() -> ExitCode {
    let Some(limit) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let mut state = 88_172_645_463_325_252;
    let mut done = 0;
    while match limit {
        Limit::Time(time) => start.elapsed() < time,
        Limit::Iterations(count) => done < count,
    } {
        for _ in 0..ROUNDS {
            state = tidy(crunch(state));
        }
        done += 1;
    }
    // Printing the state keeps the compiler from dropping the work.
    println!("workload-rust: {done} iterations, state {state:016x}");
    ExitCode::SUCCESS
}
