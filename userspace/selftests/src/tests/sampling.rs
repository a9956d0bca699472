// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples: how many, and what is in them.

use std::fs::File;
use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use perfshim::symbols::{KernelSymbols, Symbolizer};
use perfshim::{
    Attr, EventConfig, Exclude, Rate, Ring, SampleFields, Software, Target, Wake, Wakeup,
};
use rustix::thread::gettid;
use workloads::{INSTRUCTIONS_PER_ITERATION, run_loop};

use crate::counters::{self, CYCLES, Within, user};
use crate::guest;
use crate::records::{Records, Sample, names};
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "sample-count",
        "there are exactly as many samples as the count has periods",
        count,
    )
    .core()
    .icount(),
    Test::new(
        "sample-instructions",
        "the same of instructions, which take an event counter",
        instructions,
    )
    .core()
    .icount(),
    Test::new(
        "sample-count-nmi",
        "the same where the overflow interrupt is an NMI",
        count_by_nmi,
    )
    .append("irqchip.gicv3_pseudo_nmi=1")
    .icount(),
    Test::new(
        "sample-fields",
        "IP is in the loop, TID, CPU and PERIOD are those of the thread, TIME is a period apart",
        fields,
    )
    .icount(),
    Test::new(
        "sample-callchain",
        "every call chain is the stack's return addresses, down to the caller of main",
        callchain,
    )
    .core()
    .icount(),
    Test::new(
        "sample-kernel",
        "samples of the kernel lie in it, but for late ones, and their chains lead to user space",
        kernel,
    )
    .icount(),
    Test::new(
        "sample-masked",
        "code that runs with interrupts off is sampled late: no sample lies in it",
        || check_masked(Masked::Late),
    )
    .icount(),
    Test::new(
        "sample-masked-nmi",
        "where the overflow interrupt is an NMI, samples lie in code that runs with interrupts off",
        || {
            guest::need_nmis()?;
            check_masked(Masked::AtOnce)
        },
    )
    .append("irqchip.gicv3_pseudo_nmi=1")
    .icount(),
    Test::new(
        "sample-frequency",
        "in frequency mode there are about as many samples a second as were asked for",
        frequency,
    )
    .core()
    .icount()
    .timeout(120),
    Test::new(
        "sample-period-change",
        "PERF_EVENT_IOC_PERIOD changes the period of an event that runs",
        period_change,
    )
    .icount(),
    Test::new(
        "sample-refresh",
        "PERF_EVENT_IOC_REFRESH lets through so many overflows, then the event stops",
        refresh,
    )
    .icount(),
    Test::new(
        "sample-wakeup",
        "a reader is woken after as many samples as it asked for",
        wakeup,
    )
    .smp(2),
    Test::new(
        "sample-several-counters",
        "counters that overflow together each get every sample, in one interrupt",
        several_counters,
    )
    .core()
    .icount(),
    Test::new(
        "sample-long-period",
        "a period of more than 31 bits gives as many samples as the count has periods",
        long_period,
    )
    .icount(),
    Test::new(
        "sample-long-period-a57",
        "the same on 32-bit counters, which overflow several times a period",
        long_period,
    )
    .icount()
    .cpu("cortex-a57"),
    Test::new(
        "sample-throttle",
        "above the allowed rate the kernel throttles, and says so",
        throttle,
    )
    .icount(),
    Test::new(
        "sample-sleeping-thread",
        "a thread that sleeps between loops is sampled by its periods, wherever they end",
        sleeping_thread,
    )
    .icount(),
];

/// A period that is a multiple of nothing here.
const PERIOD: u64 = 99_991;
const RING: usize = 1 << 20;

/// Samples of user cycles, one each `period`.
fn sampling(period: u64, fields: SampleFields) -> Attr {
    user(CYCLES).sample(Rate::Period(period), fields)
}

/// The count and the records of an event while `work` runs.
pub(super) fn sample(
    attr: &Attr,
    target: Target<'_>,
    work: impl FnOnce(),
) -> Result<(u64, Records)> {
    let _rate = guest::SampleRate::unlimited()?;
    let event = counters::open(attr, target)?;
    let mut ring = Ring::map(&event, RING)?;
    let count = counters::count(&event, work)?;
    let mut records = Records::default();
    records.drain(&mut ring, event.attr())?;
    Ok((count, records))
}

/// Fails unless there are as many samples as the count has periods, and none was lost.
pub(super) fn check_number(records: &Records, count: u64, period: u64) -> Result<()> {
    let (got, want) = (records.samples.len() as u64, count / period);
    ensure!(
        got == want,
        "{count} events at a period of {period} gave {got} samples, not {want}"
    );
    ensure!(got > 0, "there was no sample");
    records.check_nothing_lost()
}

/// Fails unless sampling that event by several periods gives as many samples as its count has.
pub(super) fn check_numbers(event: EventConfig) -> Result<()> {
    for period in [PERIOD, 10 * PERIOD, 10_007] {
        let attr = user(event.clone()).sample(Rate::Period(period), SampleFields::IP);
        let (count, records) = sample(&attr, Target::ThisThread, || run_loop(1_000_000))?;
        check_number(&records, count, period)?;
    }
    Ok(())
}

fn count() -> Result<()> {
    check_numbers(CYCLES.into())
}

fn instructions() -> Result<()> {
    let pmu = guest::Pmu::find()?;
    pmu.need_instructions()?;
    check_numbers(pmu.instructions())
}

fn count_by_nmi() -> Result<()> {
    guest::need_nmis()?;
    count()
}

/// Iterations that end half a period after the last sample, so that all samples are in the loop.
fn iterations(samples: u64) -> u64 {
    (samples * PERIOD + PERIOD / 2) / INSTRUCTIONS_PER_ITERATION
}

/// Fails unless the address is in the counted loop.
fn check_in_loop(address: u64) -> Result<()> {
    let range = workloads::loop_range();
    ensure!(
        range.contains(&address),
        "the address {address:#x} is not in the loop, {range:#x?}"
    );
    Ok(())
}

fn fields() -> Result<()> {
    let fields = SampleFields::IP
        | SampleFields::TID
        | SampleFields::TIME
        | SampleFields::CPU
        | SampleFields::PERIOD;
    let attr = sampling(PERIOD, fields);
    let (_, records) = sample(&attr, Target::ThisThread, || run_loop(iterations(100)))?;
    ensure!(
        records.samples.len() == 100,
        "{} samples, not 100",
        records.samples.len()
    );
    let (pid, tid) = (
        std::process::id(),
        gettid().as_raw_nonzero().get().unsigned_abs(),
    );
    for sample in &records.samples {
        check_in_loop(sample.ip()?)?;
        ensure!(
            sample.pid == Some(pid) && sample.tid == Some(tid),
            "sample of {:?}/{:?} in thread {pid}/{tid}",
            sample.pid,
            sample.tid
        );
        ensure!(
            sample.cpu == Some(0),
            "CPU {:?} in a guest with one",
            sample.cpu
        );
        ensure!(
            sample.period == Some(PERIOD),
            "period {:?}, not {PERIOD}",
            sample.period
        );
    }
    for pair in records.samples.windows(2) {
        let (earlier, later) = (pair[0].time()?, pair[1].time()?);
        // A cycle is a nanosecond, and the kernel has its share.
        ensure!(
            later >= earlier + PERIOD,
            "samples at {earlier} and {later} ns are nearer than {PERIOD} cycles"
        );
    }
    Ok(())
}

/// Frames of the C function between main and the loop.
const DEPTH: u64 = 7;

fn callchain() -> Result<()> {
    let fields = SampleFields::IP | SampleFields::CALLCHAIN;
    let attr = sampling(PERIOD, fields).exclude(Exclude::CALLCHAIN_KERNEL);
    let mut stack = Vec::new();
    let (_, records) = sample(&attr, Target::ThisThread, || {
        stack = workloads::return_addresses(256);
        workloads::run_calls(DEPTH, iterations(50));
    })?;
    ensure!(
        records.samples.len() == 50,
        "{} samples, not 50",
        records.samples.len()
    );
    // Returns to return_addresses and to the closure; then come the closure's callers.
    let callers = stack.get(2..).context("the stack is not walkable")?;
    let mut symbolizer = Symbolizer::new();
    symbolizer.load_process(std::process::id())?;
    for sample in &records.samples {
        let chain = &sample.user_chain;
        let names = names(&mut symbolizer, std::process::id(), chain);
        check_chain(sample, callers, &names)
            .with_context(|| format!("the chain is {chain:#x?}, {names:?}"))?;
    }
    Ok(())
}

/// Fails unless the chain is: the IP in the loop, a return into each of DEPTH calls, one into
/// run_calls and one into the closure that called it, and then the closure's `callers`, among them
/// main and what called that.
fn check_chain(sample: &Sample, callers: &[u64], names: &[String]) -> Result<()> {
    let chain = &sample.user_chain;
    let (ip, returns) = chain.split_first().context("it is empty")?;
    ensure!(*ip == sample.ip()?, "it begins at {ip:#x}, not at the IP");
    check_in_loop(*ip)?;
    let ours = returns.strip_suffix(callers);
    let ours = ours.with_context(|| format!("it does not end in the callers {callers:#x?}"))?;
    ensure!(
        ours.len() as u64 == DEPTH + 2,
        "there are {} frames, not {}, between the loop and the callers",
        ours.len(),
        DEPTH + 2
    );
    let (depth, rest) = names[1..].split_at(DEPTH as usize);
    ensure!(
        names[0] == "workload_loop" && depth.iter().all(|name| name == "workload_calls"),
        "the functions on the way are not the {DEPTH} calls"
    );
    ensure!(
        rest[0] == "workloads::run_calls",
        "the calls are not by run_calls"
    );
    let main = names.iter().position(|name| name == "main");
    let beyond = main.and_then(|main| names.get(main + 1));
    ensure!(beyond.is_some(), "it does not end in the caller of main");
    ensure!(
        names.last().is_some_and(|name| name == "_start"),
        "it does not reach the program's entry"
    );
    Ok(())
}

fn kernel() -> Result<()> {
    let fields = SampleFields::IP | SampleFields::CALLCHAIN;
    let attr = Attr::new(CYCLES)
        .sample(Rate::Period(PERIOD), fields)
        .exclude(Exclude::USER);
    // Most of a read of /dev/zero is a loop in the kernel with interrupts on.
    let mut zero = File::open("/dev/zero")?;
    let mut buffer = vec![0; 1 << 16];
    let mut read = Ok(());
    let switched = counters::open(&Attr::new(Software::ContextSwitches), Target::ThisThread)?;
    switched.enable()?;
    let (count, records) = sample(&attr, Target::ThisThread, || {
        for _ in 0..500 {
            if let Err(error) = zero.read_exact(&mut buffer) {
                read = Err(error);
            }
        }
    })?;
    let switches = counters::read(&switched)?.value;
    read.context("reading /dev/zero")?;
    // Interrupts are off where the event leaves its counter, when another task gets the CPU and at
    // the end. A period that ends there gives no sample, under the C driver neither.
    let (got, most) = (records.samples.len() as u64, count / PERIOD);
    ensure!(
        got <= most && most - got <= switches + 1,
        "{count} events at a period of {PERIOD}, taken off a counter {switches} times and at the \
         end, gave {got} samples, not {most}"
    );
    records.check_nothing_lost()?;
    let mut in_kernel = 0;
    for sample in &records.samples {
        let ip = sample.ip()?;
        // The kernel has the upper half of the address space.
        ensure!(
            sample.in_kernel == (ip >> 63 == 1),
            "the header of the sample at {ip:#x} says the opposite"
        );
        // On its way back to user space the kernel masks interrupts: what overflows there
        // interrupts user space.
        if !sample.in_kernel {
            continue;
        }
        in_kernel += 1;
        let (kernel, user) = (&sample.kernel_chain, &sample.user_chain);
        ensure!(
            !kernel.is_empty() && kernel.iter().all(|address| address >> 63 == 1),
            "kernel frames in user space, or none: {kernel:#x?}"
        );
        ensure!(
            !user.is_empty() && user.iter().all(|address| address >> 63 == 0),
            "the chain does not lead to the caller in user space: {user:#x?}"
        );
    }
    ensure!(
        in_kernel * 2 > records.samples.len(),
        "of {} samples of the kernel only {in_kernel} are in it",
        records.samples.len()
    );
    Ok(())
}

/// When code that runs with interrupts off is sampled.
enum Masked {
    /// When they are on again.
    Late,
    AtOnce,
}

fn check_masked(masked: Masked) -> Result<()> {
    /// Functions of the scheduler that it calls with the lock of its queue held, and so with
    /// interrupts off, when a thread yields. Which of them are functions at all is up to the
    /// compiler.
    const FUNCTIONS: [&str; 6] = [
        "update_curr",
        "update_rq_clock",
        "yield_task_fair",
        "pick_task_fair",
        "pick_next_task_fair",
        "update_load_avg",
    ];
    let kernel = KernelSymbols::running()?;
    let attr = Attr::new(CYCLES)
        .sample(Rate::Period(10_007), SampleFields::IP)
        .exclude(Exclude::USER);
    let (_, records) = sample(&attr, Target::ThisThread, || {
        (0..2_000).for_each(|_| thread::yield_now());
    })?;
    // Not as many as periods: interrupts may be off for longer than one.
    records.check_nothing_lost()?;
    let mut inside = 0;
    for sample in &records.samples {
        let function = kernel.function_at(sample.ip()?);
        inside += usize::from(function.is_some_and(|it| FUNCTIONS.contains(&&*it.name)));
    }
    let all = records.samples.len();
    ensure!(all > 100, "there were only {all} samples");
    match masked {
        Masked::Late => ensure!(
            inside == 0,
            "{inside} of {all} samples lie in code that runs with interrupts off"
        ),
        // Other code runs with interrupts off as well, lockdep's most of all. When they come late it
        // is none at all.
        Masked::AtOnce => ensure!(
            inside * 200 > all,
            "of {all} samples only {inside} lie in {FUNCTIONS:?}"
        ),
    }
    Ok(())
}

fn frequency() -> Result<()> {
    const HZ: u64 = 1_000;
    let _rate = guest::SampleRate::unlimited()?;
    let attr = user(CYCLES).sample(Rate::Frequency(HZ), SampleFields::IP | SampleFields::PERIOD);
    let event = counters::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, RING)?;
    // About a second of guest time.
    counters::count(&event, || run_loop(100_000_000))?;
    let running = counters::read(&event)?.running;
    let mut records = Records::default();
    records.drain(&mut ring, event.attr())?;
    let (got, want) = (records.samples.len() as u64, running * HZ / 1_000_000_000);
    ensure!(want >= 900, "the loop took only {running} ns");
    // The kernel begins with a period of 1 and needs some samples to find the right one.
    ensure!(
        got.within(10.0, want),
        "{got} samples in {running} ns on the counter, not about {want}"
    );
    records.check_nothing_lost()
}

fn period_change() -> Result<()> {
    let _rate = guest::SampleRate::unlimited()?;
    let attr = sampling(PERIOD, SampleFields::IP | SampleFields::PERIOD);
    let event = counters::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, RING)?;
    event.enable()?;
    run_loop(iterations(20));
    event.set_period(2 * PERIOD)?;
    run_loop(iterations(20));
    event.disable()?;
    let mut records = Records::default();
    records.drain(&mut ring, event.attr())?;
    let periods: Vec<u64> = records
        .samples
        .iter()
        .filter_map(|sample| sample.period)
        .collect();
    let before = periods
        .iter()
        .take_while(|period| **period == PERIOD)
        .count();
    ensure!(
        periods[before..].iter().all(|period| *period == 2 * PERIOD),
        "periods are {periods:?}"
    );
    ensure!(
        before.abs_diff(20) <= 1 && (periods.len() - before).abs_diff(10) <= 1,
        "{before} samples before the period doubled and {} after it, not 20 and 10",
        periods.len() - before
    );
    Ok(())
}

fn refresh() -> Result<()> {
    let _rate = guest::SampleRate::unlimited()?;
    let attr = sampling(PERIOD, SampleFields::IP);
    let event = counters::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, RING)?;
    for overflows in [1, 5] {
        event.refresh(overflows)?;
        run_loop(iterations(20));
        let mut records = Records::default();
        records.drain(&mut ring, event.attr())?;
        ensure!(
            records.samples.len() == overflows as usize,
            "after a refresh of {overflows} there are {} samples",
            records.samples.len()
        );
    }
    Ok(())
}

fn wakeup() -> Result<()> {
    guest::need_cpus(2)?;
    let _rate = guest::SampleRate::unlimited()?;
    const SAMPLES: u32 = 10;
    let attr = Attr::new(CYCLES)
        .sample(Rate::Period(1_000_000), SampleFields::IP)
        .wakeup(Wakeup::Samples(SAMPLES));
    let event = counters::open(&attr, Target::Cpu(1))?;
    let mut ring = Ring::map(&event, RING)?;
    let _stay = guest::Pinned::to(0)?;
    ensure!(
        ring.wait(Some(Duration::ZERO))? == Wake::TimedOut,
        "a disabled event has something to read"
    );
    event.enable()?;
    thread::scope(|scope| {
        let worker = scope.spawn(|| -> Result<()> {
            let _stay = guest::Pinned::to(1)?;
            workloads::run_for(Duration::from_millis(200));
            Ok(())
        });
        let wake = ring.wait(Some(Duration::from_secs(60)))?;
        let mut records = Records::default();
        records.drain(&mut ring, event.attr())?;
        worker.join().ok().context("the worker ended early")??;
        ensure!(wake == Wake::Ready, "the reader was woken by {wake:?}");
        ensure!(
            records.samples.len() >= SAMPLES as usize,
            "the reader was woken by {} samples, not {SAMPLES}",
            records.samples.len()
        );
        Ok(())
    })
}

fn several_counters() -> Result<()> {
    const EVENTS: usize = 4;
    let _rate = guest::SampleRate::unlimited()?;
    // One gets the cycle counter, the others event counters.
    let attr = sampling(PERIOD, SampleFields::IP | SampleFields::ID);
    let attrs = [(); EVENTS].map(|()| attr.clone());
    let group = counters::open_group(&attrs, Target::ThisThread)?;
    let mut rings = group
        .events()
        .map(|event| Ring::map(event, RING))
        .collect::<perfshim::Result<Vec<_>>>()?;
    let interrupts = || -> Result<u64> {
        pmu::interrupts::count()?.context("/proc/interrupts has no line for the PMU")
    };
    let before = interrupts()?;
    group.enable()?;
    run_loop(iterations(100));
    group.disable()?;
    let interrupts = interrupts()? - before;
    let counts = counters::read_group(&group)?;
    for ((event, ring), count) in group.events().zip(&mut rings).zip(&counts) {
        let mut records = Records::default();
        records.drain(ring, event.attr())?;
        check_number(&records, count.value, PERIOD)?;
    }
    let overflows = counts[0].value / PERIOD;
    ensure!(
        interrupts == overflows,
        "{EVENTS} counters that overflowed together {overflows} times took {interrupts} interrupts"
    );
    Ok(())
}

fn long_period() -> Result<()> {
    // More than half of a 32-bit counter: the driver cannot program it in one go.
    const PERIOD: u64 = 3_000_000_000;
    let attr = Attr::new(CYCLES).sample(Rate::Period(PERIOD), SampleFields::IP);
    // QEMU's CPUs have cycles while they sleep too, and with -icount a sleep takes no time.
    let (count, records) = sample(&attr, Target::Cpu(0), || {
        thread::sleep(Duration::from_secs(7));
    })?;
    ensure!(count > 2 * PERIOD, "7 s gave only {count} cycles");
    check_number(&records, count, PERIOD)
}

fn throttle() -> Result<()> {
    // The kernel rounds this up to whole samples a tick.
    const RATE: u32 = 2_000;
    const PERIOD: u64 = 20_000;
    let _rate = guest::SampleRate::limit(RATE)?;
    let attr = Attr::new(CYCLES).sample(
        Rate::Period(PERIOD),
        SampleFields::IP | SampleFields::TIME | SampleFields::TID,
    );
    let event = counters::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, RING)?;
    let start = Instant::now();
    counters::count(&event, || {
        workloads::run_for(Duration::from_millis(200));
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    let mut records = Records::default();
    records.drain(&mut ring, event.attr())?;
    let samples = records.samples.len();
    ensure!(
        records.throttled > 0,
        "{} samples a second were asked for, {RATE} allowed: nothing was throttled, and there are \
         {samples} samples",
        1_000_000_000 / PERIOD
    );
    ensure!(
        records.unthrottled > 0 && records.unthrottled.abs_diff(records.throttled) <= 1,
        "throttled {} times, unthrottled {} times",
        records.throttled,
        records.unthrottled
    );
    // A throttled event has one sample more than its limit in a tick; ticks are 1 to 10 ms.
    let limit = f64::from(RATE) * elapsed * 2.0;
    ensure!(
        (samples as f64) < limit,
        "{samples} samples in {elapsed:.2} s at a limit of {RATE} a second"
    );
    Ok(())
}

fn sleeping_thread() -> Result<()> {
    // Less than a period between sleeps: what is left of it has to be kept.
    let slice = PERIOD / INSTRUCTIONS_PER_ITERATION / 3;
    let attr = sampling(PERIOD, SampleFields::IP);
    let (count, records) = sample(&attr, Target::ThisThread, || {
        workloads::run_with_sleeps(100, slice, Duration::from_micros(200));
    })?;
    check_number(&records, count, PERIOD)
}
