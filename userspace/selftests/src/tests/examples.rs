// SPDX-License-Identifier: MIT OR Apache-2.0
//! The example program `sample` of perfshim, as a person would start it.

use std::ops::Range;
use std::process::{Command, Output};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use perfshim::symbols::Symbolizer;

use crate::process::{Victim, wait_asleep};
use crate::records::names;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "example-self",
        "`sample` prints samples of itself in full, and they fit the final count",
        own_thread,
    )
    .kernels("release,stock")
    .icount(),
    Test::new(
        "example-process",
        "`sample PID` finds a program in its functions, with call chains to its entry",
        process,
    )
    .kernels("release,stock")
    .icount(),
    Test::new(
        "example-end",
        "`sample PID` ends with the process, and says so",
        end,
    )
    .kernels("release")
    .icount(),
    Test::new(
        "example-nothing",
        "`sample PID` gives up when nothing comes, and says so",
        nothing,
    )
    .kernels("release")
    .icount(),
];

/// A sample as it is printed.
#[derive(Debug, Default)]
struct Shown {
    kernel: bool,
    ip: u64,
    pid: u32,
    tid: u32,
    time: u64,
    period: u64,
    /// Address, and whether it is in the kernel.
    chain: Vec<(u64, bool)>,
}

/// What `sample` printed.
#[derive(Debug, Default)]
struct Told {
    samples: Vec<Shown>,
    /// What is neither a sample nor the last line.
    remarks: Vec<String>,
    taken: u64,
    lost: u64,
    counted: u64,
}

/// Runs `sample` and reads what it prints. The second value is its exit status.
fn run_sample(arguments: &[&str]) -> Result<(Told, Option<i32>)> {
    let output: Output = Command::new("sample").args(arguments).output()?;
    let text = String::from_utf8(output.stdout)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let told = parse(&text).with_context(|| format!("it printed: {text}{errors}"))?;
    ensure!(told.lost == 0, "{} samples were lost", told.lost);
    Ok((told, output.status.code()))
}

fn number<T: FromStr<Err = std::num::ParseIntError>>(text: &str) -> Result<T> {
    text.parse()
        .with_context(|| format!("{text:?} is no number"))
}

fn address(text: &str) -> Result<u64> {
    let digits = text.strip_prefix("0x").context("no address")?;
    Ok(u64::from_str_radix(digits, 16)?)
}

fn parse(text: &str) -> Result<Told> {
    let mut told = Told::default();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let last = told.samples.last_mut();
        match (words.as_slice(), last) {
            (["sample", place, rest @ ..], _) => {
                let place: usize = number(place.trim_end_matches(','))?;
                ensure!(place == told.samples.len() + 1, "{line:?} is out of order");
                told.samples.push(Shown {
                    kernel: rest == ["in", "the", "kernel"],
                    ..Shown::default()
                });
            }
            (["ip", ip], Some(sample)) => sample.ip = address(ip)?,
            (["pid/tid", pair], Some(sample)) => {
                let (pid, tid) = pair.split_once('/').context("pid/tid")?;
                (sample.pid, sample.tid) = (number(pid)?, number(tid)?);
            }
            (["time", time, "ns"], Some(sample)) => sample.time = number(time)?,
            (["cpu", "0"] | ["call", "chain"], Some(_)) => {}
            (["period", period], Some(sample)) => sample.period = number(period)?,
            ([place, "(Kernel)"], Some(sample)) => sample.chain.push((address(place)?, true)),
            ([place, "(User)"], Some(sample)) => sample.chain.push((address(place)?, false)),
            ([taken, "samples,", lost, "lost;", rest @ ..], _) => {
                let ["the", "event", "was", "counted", counted, "times"] = rest else {
                    anyhow::bail!("{line:?} is no summary");
                };
                (told.taken, told.lost) = (number(taken)?, number(lost)?);
                told.counted = number(counted)?;
            }
            _ => told.remarks.push(line.to_owned()),
        }
    }
    Ok(told)
}

impl Told {
    /// Fails unless the samples are `count` of the main thread of `pid`, and are what a kernel can
    /// have written: ordered by time, each chain beginning where the sample was, and their periods
    /// a part of what was counted.
    fn check(&self, count: Range<usize>, pid: Option<u32>) -> Result<()> {
        ensure!(
            count.contains(&self.samples.len()) && self.taken >= self.samples.len() as u64,
            "{} samples are shown of {}, not {count:?}",
            self.samples.len(),
            self.taken
        );
        let mut time = 0;
        for sample in &self.samples {
            let pid = pid.unwrap_or(sample.tid);
            ensure!(
                sample.pid == pid && sample.tid == pid,
                "thread {}/{}, not {pid}",
                sample.pid,
                sample.tid
            );
            ensure!(sample.time > time, "{} ns after {time} ns", sample.time);
            time = sample.time;
            let first = (sample.ip, sample.kernel);
            ensure!(
                sample.chain.first() == Some(&first),
                "the chain {:x?} does not begin with {first:x?}",
                sample.chain
            );
            let mut frames = sample.chain.iter();
            ensure!(
                frames.all(|(address, kernel)| (address >> 63 == 1) == *kernel),
                "frames on the wrong side: {:x?}",
                sample.chain
            );
        }
        let periods: u64 = self.samples.iter().map(|sample| sample.period).sum();
        ensure!(
            periods > 0 && periods <= self.counted,
            "samples of {periods} events, and {} were counted",
            self.counted
        );
        Ok(())
    }
}

fn own_thread() -> Result<()> {
    let (told, status) = run_sample(&["--count", "50"])?;
    ensure!(status == Some(0), "it ended with {status:?}");
    told.check(50..51, None)?;
    ensure!(told.remarks.is_empty(), "it says {:?}", told.remarks);
    // It does sums, so it is the user's code that takes the time.
    let user = told.samples.iter().filter(|sample| !sample.kernel).count();
    ensure!(user > 25, "{user} of 50 samples are in user space");
    Ok(())
}

/// What workload-c spends its time in, by the functions that call it.
const CALLERS: [(&str, &str); 3] = [
    ("seventy_percent", "crunch"),
    ("twenty_percent", "crunch"),
    ("ten_percent", "tidy"),
];

fn process() -> Result<()> {
    const COUNT: usize = 200;
    let victim = Victim::start("workload-c", &["--seconds", "1000"])?;
    let count = COUNT.to_string();
    let pid = victim.pid().to_string();
    let (told, status) = run_sample(&["--event", "cycles:u", "--count", &count, &pid])?;
    ensure!(status == Some(0), "it ended with {status:?}");
    told.check(COUNT..COUNT + 1, Some(victim.pid()))?;
    let mut symbolizer = Symbolizer::new();
    symbolizer.load_process(victim.pid())?;
    let mut known = [0; 3];
    for sample in &told.samples {
        let chain: Vec<u64> = sample.chain.iter().map(|(address, _)| *address).collect();
        let names = names(&mut symbolizer, victim.pid(), &chain);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for ((leaf, caller), known) in CALLERS.iter().zip(&mut known) {
            let whole = names.starts_with(&[leaf, caller, "main"]) && names.ends_with(&["_start"]);
            *known += usize::from(whole);
        }
    }
    // The rest is the program's start, and functions that have just been called or are about to
    // return: these have no frame, so their caller is not in the chain.
    ensure!(
        known.iter().sum::<usize>() * 20 > COUNT * 19 && known.iter().all(|samples| *samples > 0),
        "of {COUNT} samples, {known:?} have the right call chains to the functions that take 70, 20 \
         and 10 %"
    );
    Ok(())
}

fn end() -> Result<()> {
    let victim = Victim::start("workload-c", &["--iterations", "20"])?;
    let pid = victim.pid().to_string();
    let (told, status) = run_sample(&["--count", "1000000", &pid])?;
    ensure!(status == Some(1), "it ended with {status:?}");
    ensure!(
        told.remarks == ["all threads have ended"],
        "it says {:?}",
        told.remarks
    );
    told.check(20..1_000_000, Some(victim.pid()))
}

fn nothing() -> Result<()> {
    let victim = Victim::start("sleep", &["1000"])?;
    wait_asleep(victim.pid())?;
    let pid = victim.pid().to_string();
    let (told, status) = run_sample(&["--timeout", "2", &pid])?;
    ensure!(status == Some(1), "it ended with {status:?}");
    ensure!(
        told.remarks == ["no sample came for 2 s"],
        "it says {:?}",
        told.remarks
    );
    ensure!(
        told.taken == 0 && told.counted == 0,
        "a process that sleeps has {} samples, and {} cycles",
        told.taken,
        told.counted
    );
    Ok(())
}
