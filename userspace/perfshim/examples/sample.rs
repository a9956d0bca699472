// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shortest program that shows how sampling works.
//!
//! ```text
//! sample [--event EVENT] [--count N] [--timeout SECONDS] [PID]
//! ```
//!
//! A counter counts an event, such as CPU cycles. Each time it has counted a period's worth, it
//! overflows; the interrupt that this raises makes the kernel write a sample of what the CPU was
//! just doing to a ring in memory, which this program reads. Where the samples fall most, most
//! of the event happens.

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use perfshim::discovery::Pmus;
use perfshim::record::{CpuMode, Misc};
use perfshim::{
    Attr, Decoder, Event, Rate, Record, Ring, Sample, SampleFields, Target, Wake, Wakeup, spec,
    wait_any,
};

const USAGE: &str = "usage: sample [--event EVENT] [--count N] [--timeout SECONDS] [PID]

Samples the threads that the process PID has now; without PID, this program's own thread while
it does sums. Prints N samples (10) in full and how many there were. Stops when none came for
SECONDS (5). EVENT (cycles) is written as perf writes it, for example cpu-clock, cycles:u or r11.";

struct Options {
    event: String,
    count: u64,
    timeout: Duration,
    pid: Option<u32>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .iter()
        .any(|argument| argument == "--help" || argument == "-h")
    {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let result = match parse(&arguments) {
        Ok(options) => sample(&options),
        Err(problem) => {
            eprintln!("sample: {problem} (see sample --help)");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sample: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Samples as the options say; `false` if fewer samples came than were asked for.
fn sample(options: &Options) -> Result<bool, Box<dyn Error>> {
    // 1. Say what to count, when to sample, and what a sample is to hold. The kernel writes the
    //    fields in its own order, whatever the order here; the decoder knows that order.
    let attr = attributes(&options.event)?;

    // 2. Open the event. To the kernel, a "pid" is a single thread, so a process takes one event
    //    for each of its threads. They start disabled.
    let mut events = Vec::new();
    match options.pid {
        None => events.push(Event::open(&attr, Target::ThisThread)?),
        Some(pid) => {
            for tid in threads(pid)? {
                events.push(Event::open(&attr, Target::Thread(tid))?);
            }
        }
    }

    // 3. Map a ring for each event: the kernel writes at its head, this program reads at its tail.
    let mut rings = Vec::new();
    for event in &events {
        rings.push(Ring::map(event, 64 * 1024)?);
    }

    // 4. Start counting, now that samples have somewhere to go.
    for event in &events {
        event.enable()?;
    }

    // 5. Wait until there is something to read, and read it.
    let decoder = Decoder::new(&attr);
    let (mut taken, mut lost) = (0, 0);
    let mut last = Instant::now();
    while taken < options.count {
        let left = options.timeout.saturating_sub(last.elapsed());
        if left.is_zero() {
            println!("no sample came for {} s", options.timeout.as_secs_f64());
            break;
        }
        let woken = match options.pid {
            Some(_) => wait_any(&rings, Some(left))?,
            // A thread that sleeps counts nothing, so this one does not wait.
            None => work(),
        };
        for ring in &mut rings {
            // A record is read where it lies in the ring. When `unread` goes out of scope, the
            // bytes of those that were read are given back to the kernel.
            let mut unread = ring.read()?;
            while let Some(record) = unread.next_record()? {
                let decoded = decoder.decode(record)?;
                match decoded.record {
                    Record::Sample(sample) => {
                        taken += 1;
                        last = Instant::now();
                        if taken <= options.count {
                            print(taken, decoded.misc, &sample);
                        }
                    }
                    // The ring was full, and this is how many samples found no room.
                    Record::Lost(found) => lost += found.lost,
                    // Throttling and the like.
                    _ => {}
                }
            }
        }
        // What a thread left behind was read just now; more will not come.
        for (ended, _) in woken.iter().rev().filter(|(_, wake)| wake.is_final()) {
            rings.remove(*ended);
        }
        if rings.is_empty() {
            println!("all threads have ended");
            break;
        }
    }

    // 6. Stop counting, and compare the samples with the count.
    let mut counted = 0;
    for event in &events {
        event.disable()?;
        counted += event.read()?.value;
    }
    println!("{taken} samples, {lost} lost; the event was counted {counted} times");
    Ok(taken >= options.count)
}

fn attributes(text: &str) -> Result<Attr, Box<dyn Error>> {
    let groups = spec::resolve(text, &Pmus::system()?)?;
    let events: Vec<_> = groups.iter().flat_map(|group| &group.events).collect();
    let [event] = events[..] else {
        let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
        return Err(format!("name one event; `{text}` stands for {}", names.join(", ")).into());
    };
    let fields = SampleFields::IP
        | SampleFields::TID
        | SampleFields::TIME
        | SampleFields::CPU
        | SampleFields::PERIOD
        | SampleFields::CALLCHAIN;
    // About a thousand samples a second: the kernel sees which period that takes. A reader is
    // woken by each one, which suits a program that prints them.
    Ok(event
        .sampling(Rate::Frequency(1000), fields)
        .wakeup(Wakeup::Samples(1)))
}

fn threads(pid: u32) -> Result<Vec<u32>, Box<dyn Error>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| format!("the process {pid} cannot be sampled: {error}"))?;
    let names = tasks
        .flatten()
        .filter_map(|task| task.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// Something to be sampled. Wakes nobody.
fn work() -> Vec<(usize, Wake)> {
    black_box((0..1_000_000u64).fold(0, |sum, term| black_box(sum + term)));
    Vec::new()
}

/// Prints all fields that were asked for.
fn print(number: u64, misc: Misc, sample: &Sample<'_>) {
    let where_it_was = match misc.cpu_mode() {
        CpuMode::Kernel => "in the kernel",
        CpuMode::User => "in user space",
        _ => "elsewhere",
    };
    println!("sample {number}, {where_it_was}");
    println!("  ip      {:#x}", sample.ip.unwrap_or_default());
    let thread = sample.thread.unwrap_or_default();
    println!("  pid/tid {}/{}", thread.pid, thread.tid);
    println!("  time    {} ns", sample.time.unwrap_or_default());
    println!("  cpu     {}", sample.cpu.unwrap_or_default());
    println!("  period  {}", sample.period.unwrap_or_default());
    println!("  call chain");
    // The chain begins with its length and has markers between its addresses; `frames` has taken
    // both away, and says of each address where it belongs.
    for frame in sample.callchain.unwrap_or_default().frames() {
        println!("    {:#x} ({:?})", frame.address, frame.context);
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        event: "cycles".to_owned(),
        count: 10,
        timeout: Duration::from_secs(5),
        pid: None,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--event" => options.event = value()?.clone(),
            "--count" => options.count = number(value()?, "--count")?,
            "--timeout" => {
                options.timeout = Duration::from_secs(number(value()?, "--timeout")?);
            }
            pid if !pid.starts_with('-') && options.pid.is_none() => {
                let pid = number(pid, "PID")?;
                options.pid = Some(u32::try_from(pid).map_err(|_| "that PID is too large")?);
            }
            other => return Err(format!("`{other}` is not expected")),
        }
    }
    Ok(options)
}

/// A number from 1 on.
fn number(text: &str, what: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("{what} is a number from 1 on, not `{text}`")),
        Ok(number) => Ok(number),
    }
}
