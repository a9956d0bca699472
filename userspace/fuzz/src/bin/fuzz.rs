// SPDX-License-Identifier: MIT OR Apache-2.0
//! Has processes do random operations on perf events at the same time, and sees that the kernel
//! survives it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use fuzz::gate::Gate;
use fuzz::machine::Machine;
use fuzz::puppet::serve_if_asked;
use fuzz::storm::{Plan, Tally, Until};
use fuzz::sys::name;

/// Random operations on perf events, from a seed, in a guest.
///
/// The kernel's complaints are in its log, which scripts/guest looks at; scripts/fuzz calls both.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// What the operations follow from; each process has its own sequence
    #[arg(long)]
    seed: u64,
    /// How long to go on
    #[arg(long, default_value_t = 30, conflicts_with = "operations")]
    seconds: u64,
    /// How many operations each process does, instead
    #[arg(long)]
    operations: Option<u64>,
    /// How many processes open and use events; two more take CPUs and the driver away
    #[arg(long, default_value_t = 4)]
    processes: usize,
    /// Write each operation to the kernel's log before it is done
    #[arg(long)]
    trace: bool,
    /// Only print the operations of this process
    #[arg(long, value_name = "PROCESS", requires = "operations")]
    list: Option<usize>,
}

fn main() -> ExitCode {
    serve_if_asked();
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz: seed {}: {error:#}", args.seed);
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let plan = Plan {
        seed: args.seed,
        until: match args.operations {
            Some(operations) => Until::Operations(operations),
            None => Until::Time(Duration::from_secs(args.seconds)),
        },
        users: args.processes,
        trace: args.trace,
    };
    let machine = Machine::find()?;
    if let (Some(process), Some(operations)) = (args.list, args.operations) {
        let operations = usize::try_from(operations)?;
        let stream = plan.stream(process, machine.cpus);
        for (number, operation) in stream.take(operations).enumerate() {
            println!("{process}.{number}: {operation}");
        }
        return Ok(());
    }
    eprintln!(
        "fuzz: seed {}, {} processes, {} CPUs, {}",
        args.seed,
        args.processes,
        machine.cpus,
        match machine.binding() {
            Some(_) => "the driver comes and goes",
            None => "the driver cannot be unbound",
        }
    );
    catch_traps();
    Gate::set_up().context("a semaphore")?;
    // A tick is to have time for other things than samples, whatever is asked for.
    machine.limit_sampling(2000, 25)?;
    let tally = plan.run(&machine)?;
    print(&tally);
    check(&tally)?;
    finish(&machine)
}

/// `sigtrap` events interrupt whom they count; here that does nothing.
fn catch_traps() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the handler does nothing, which is allowed at any time.
    unsafe { libc::signal(libc::SIGTRAP, nothing as usize) };
}

fn print(tally: &Tally) {
    let total: u64 = tally.kinds.iter().map(|kind| kind.1).sum();
    println!("operation      tried       done");
    for (name, tried, done) in &tally.kinds {
        println!("{name:<9} {tried:>10} {done:>10}");
    }
    let refused: Vec<_> = tally
        .refused
        .iter()
        .map(|&(errno, count)| format!("{} {count}", name(errno)))
        .collect();
    println!("events refused: {}", refused.join(", "));
    println!(
        "{total} operations in {:.1} s, {:.0} a second; {} samples, {} counts above 0",
        tally.time.as_secs_f64(),
        total as f64 / tally.time.as_secs_f64(),
        tally.samples,
        tally.counted
    );
}

/// Fails when so much was tried that something must have been done, and nothing was.
fn check(tally: &Tally) -> Result<()> {
    const MANY: u64 = 200;
    let mut opened = 0;
    for &(name, tried, done) in &tally.kinds {
        ensure!(
            tried < MANY || done > 0,
            "each of {tried} tries of {name} was refused"
        );
        if name == "open" {
            opened = done;
        }
    }
    ensure!(
        opened < MANY || tally.samples > 0,
        "{opened} events, and no sample"
    );
    ensure!(
        opened < MANY || tally.counted > 0,
        "{opened} events, and nothing was counted"
    );
    Ok(())
}

/// Afterwards all must be as before.
fn finish(machine: &Machine) -> Result<()> {
    machine.check_counts().context("after the storm")?;
    let Some(binding) = machine.binding() else {
        return Ok(());
    };
    binding.unbind().context("unbinding after the storm")?;
    binding.bind().context("binding after the storm")?;
    machine
        .check_counts()
        .context("after a last unbind and bind")?;
    machine.reload()?;
    machine.check_counts().context("after rmmod and insmod")
}
