// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a PMU can have beyond what QEMU's CPUs count by themselves: 32-bit counters in pairs,
//! thresholds, branches, the instruction counter, counters that user space may see or not. QEMU has
//! it with qemu/patches, where properties of the CPU turn it on. And what a machine can lack: the
//! interrupt, a cycle counter of one's own, CPUs of one kind, registers that outlive an idle state.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perfshim::discovery::{self, Pmus};
use perfshim::{
    Attr, Count, Event, EventConfig, Exclude, Hardware, Rate, Ring, SampleFields, Target,
};
use rustix::io::Errno;
use rustix::process::Signal;
use workloads::{INSTRUCTIONS_PER_ITERATION, el0, run_loop};

use super::counting::{N, check_exact};
use super::sampling::check_numbers;
use crate::counters::{self, CYCLES, Within, user};
use crate::guest::{self, Pmu};
use crate::process::Stopped;
use crate::records::Records;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "chain-count",
        "64-bit events on pairs of 32-bit counters carry into the upper half to the instruction",
        chain_count,
    )
    .icount()
    .cpu("cortex-a57"),
    Test::new(
        "chain-sample",
        "when the upper counter of a pair overflows, that is a sample",
        chain_sample,
    )
    .icount()
    .cpu("cortex-a57"),
    Test::new(
        "threshold-count",
        "a counter with a threshold counts the cycles, or the events in them, that meet it",
        threshold_count,
    )
    .icount()
    .cpu("max,pmu-thwidth=12"),
    Test::new(
        "threshold-idle",
        "cycles with an instruction and cycles without one add up to all, sleep included",
        threshold_idle,
    )
    .icount()
    .cpu("max,pmu-thwidth=12"),
    Test::new(
        "threshold-width",
        "thresholds have as many bits as caps/threshold_max says, and no more",
        threshold_width,
    )
    .cpu("max,pmu-thwidth=4"),
    Test::new(
        "branches-count",
        "branches are counted exactly, taken or not, in user mode and in the kernel",
        branches_count,
    )
    .icount()
    .cpu("max,pmu-br-retired=on"),
    Test::new(
        "branches-sample",
        "of branches there are as many samples as the count has periods",
        branches_sample,
    )
    .icount()
    .cpu("max,pmu-br-retired=on"),
    Test::new(
        "instruction-counter",
        "with the instruction counter one more instruction event fits, and all are exact",
        instruction_counter,
    )
    .icount()
    .cpu("max,pmu-v3p9=on,pmu-icntr=on"),
    Test::new(
        "instruction-counter-sample",
        "the instruction counter gives as many samples as the count has periods",
        instruction_counter_sample,
    )
    .icount()
    .cpu("max,pmu-v3p9=on,pmu-icntr=on"),
    Test::new(
        "no-interrupt",
        "a PMU without an interrupt counts, and sampling is refused",
        no_interrupt,
    )
    .icount()
    .dts("no-irq"),
    Test::new(
        "idle-loses-pmu",
        "events of a CPU count and sample on across idle states that lose the PMU's registers",
        idle,
    )
    .core()
    .icount()
    .dts("idle")
    .cpu("max,pmu-lost-in-suspend=on")
    .smp(2),
    Test::new(
        "user-access-own",
        "user space reads its own counter by instruction, and the others as 0",
        user_access_own,
    )
    .icount()
    .cpu("max,pmu-v3p9=on"),
    Test::new(
        "user-access-clears",
        "where all counters are open to user space, those without an event are 0",
        user_access_clears,
    )
    .icount(),
    Test::new(
        "user-access-count",
        "where user space may read its counters, a count without a system call is what one returns",
        || user_access_count(Counters::Bits64),
    )
    .core()
    .icount(),
    Test::new(
        "user-access-count-a57",
        "the same on counters of 32 bits",
        || user_access_count(Counters::Bits32),
    )
    .icount()
    .cpu("cortex-a57"),
    Test::new(
        "user-access-mapped-late",
        "the page of an event that was read before it was mapped takes the counter for signed, as it \
         says (C: 2^32 too little)",
        user_access_mapped_late,
    )
    .drivers("rust")
    .icount(),
    Test::new(
        "user-access-fallback",
        "where it may not, or the event is not for that, the same call counts by a system call",
        user_access_fallback,
    )
    .icount(),
    Test::new(
        "user-access-changes",
        "a count outlives that user access is allowed or forbidden while its event is on a counter",
        user_access_changes,
    )
    .icount(),
    Test::new(
        "user-access-moves",
        "counts without a system call go on from CPU to CPU, and other threads are told them too",
        user_access_moves,
    )
    .icount()
    .smp(2),
    Test::new(
        "user-access-refused",
        "reading a counter ends a thread without such an event, and any thread once that is forbidden",
        user_access_refused,
    ),
    Test::new(
        "cycles-threads",
        "on a core with several threads cycles take an event counter",
        cycles_on_event_counter,
    )
    .icount()
    .smp(2)
    .dts("threads"),
    Test::new(
        "cycles-olympus",
        "on NVIDIA's Olympus cycles take an event counter",
        cycles_on_event_counter,
    )
    .icount()
    .cpu("max,midr=0x4e0f0100"),
    Test::new(
        "two-kinds",
        "of two kinds of CPU each has a PMU, whose events count there and nowhere else",
        || check_kinds([("armv8_cortex_a53", "0-1"), ("armv8_cortex_a57", "2-3")]),
    )
    .icount()
    .smp(4)
    .dts("heterogeneous"),
];

/// Numbers of the Arm ARM, section "PMU events and event numbers".
const CPU_CYCLES: u64 = 0x11;
const STALL: u64 = 0x3c;
const INST_RETIRED: u64 = 0x08;

/// Fields of config1, as the PMU's format folder gives them.
const LONG: u64 = 1 << 0;
const USER_ACCESS: u64 = 1 << 1;

fn with(event: EventConfig, config1: u64) -> EventConfig {
    EventConfig { config1, ..event }
}

fn chain_count() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    // A sampling event starts a period below the overflow. That is more than 32 bits of a period
    // here, of which the lower ones say after how many instructions the lower counter carries.
    let long = |carry: u64| {
        let attr = user(with(pmu.instructions(), LONG));
        attr.sample(Rate::Period((1 << 32) + carry), SampleFields::IP)
    };
    let attrs = [user(pmu.instructions()), long(10_007), long(999_983)];
    check_exact("32-bit and 64-bit instructions", &attrs)?;
    let [short, early, late] = counters::count_group(&attrs, Target::ThisThread, || run_loop(N))?;
    ensure!(
        early == short && late == short,
        "of {short} instructions, a pair that carries early counted {early}, one that carries late {late}"
    );
    Ok(())
}

fn chain_sample() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    check_numbers(with(pmu.instructions(), LONG))
}

/// How the number of events in a cycle is compared with a threshold.
#[derive(Clone, Copy)]
enum Compare {
    NotEqual,
    Equal,
    NoLess,
    Less,
}

/// What a counter adds in a cycle that meets the threshold.
#[derive(Clone, Copy)]
enum Adds {
    Events,
    One,
}

fn threshold(pmu: &Pmu, event: u64, compare: Compare, threshold: u64, adds: Adds) -> EventConfig {
    let config1 = threshold << 5 | (compare as u64) << 3 | (adds as u64) << 2;
    with(EventConfig::new(pmu.type_id(), event), config1)
}

fn threshold_count() -> Result<()> {
    use Adds::{Events, One};
    use Compare::{Equal, Less, NoLess, NotEqual};

    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let user = |event, compare, value, adds| user(threshold(&pmu, event, compare, value, adds));
    let count = |attrs| counters::count_group(&attrs, Target::ThisThread, || run_loop(N));

    // In user mode each cycle has one instruction.
    let [all, at_least_1, exactly_1, at_least_2, none, not_2] = count([
        counters::user(pmu.instructions()),
        user(INST_RETIRED, NoLess, 1, Events),
        user(INST_RETIRED, Equal, 1, One),
        user(INST_RETIRED, NoLess, 2, Events),
        user(INST_RETIRED, Less, 1, One),
        user(INST_RETIRED, NotEqual, 2, One),
    ])?;
    ensure!(
        [at_least_1, exactly_1, at_least_2, none, not_2] == [all, all, 0, 0, all],
        "of {all} cycles with one instruction each, {at_least_1} had at least 1, {exactly_1} \
         exactly 1, {at_least_2} at least 2, {none} none, and {not_2} not 2"
    );

    // Each cycle is a cycle, and none is stalled.
    let [all, at_least_1, not_1, at_least_2, running, stalled] = count([
        counters::user(CYCLES),
        user(CPU_CYCLES, NoLess, 1, Events),
        user(CPU_CYCLES, NotEqual, 1, One),
        user(CPU_CYCLES, NoLess, 2, One),
        user(STALL, Less, 1, One),
        user(STALL, NoLess, 1, One),
    ])?;
    ensure!(
        [at_least_1, not_1, at_least_2, running, stalled] == [all, 0, 0, all, 0],
        "of {all} cycles {at_least_1} were at least 1, {not_1} not 1, {at_least_2} at least 2, \
         {running} without a stall, {stalled} with one"
    );
    Ok(())
}

fn threshold_idle() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let attrs = [
        Attr::new(CYCLES),
        Attr::new(pmu.instructions()),
        Attr::new(threshold(&pmu, INST_RETIRED, Compare::Less, 1, Adds::One)),
    ];
    let [cycles, with, without] = counters::count_group(&attrs, Target::Cpu(0), || {
        workloads::run_with_sleeps(10, 1_000, Duration::from_millis(2));
    })?;
    ensure!(
        with.checked_add(without) == Some(cycles),
        "{with} cycles with an instruction and {without} without one are not {cycles}"
    );
    ensure!(
        without >= 10_000_000,
        "{without} cycles without an instruction in 20 ms of sleep"
    );
    Ok(())
}

fn threshold_width() -> Result<()> {
    let pmu = Pmu::find()?;
    let text = guest::read(pmu.folder().join("caps/threshold_max"))?;
    ensure!(text == "0x0000000f", "4 bits, and threshold_max is {text}");
    for (value, want) in [(15, None), (16, Some(Errno::INVAL))] {
        let attr = Attr::new(threshold(
            &pmu,
            CPU_CYCLES,
            Compare::NoLess,
            value,
            Adds::One,
        ));
        let got = counters::refusal(&attr, Target::ThisThread)?;
        ensure!(got == want, "a threshold of {value}: {got:?}, not {want:?}");
    }
    Ok(())
}

fn branches_count() -> Result<()> {
    let all = Attr::new(Hardware::BranchInstructions);
    let attrs = [
        all.clone(),
        all.clone().exclude(Exclude::KERNEL),
        all.clone().exclude(Exclude::USER),
    ];
    let count = |n| {
        counters::count_group(&attrs, Target::ThisThread, || {
            for _ in 0..100 {
                run_loop(n);
                std::hint::black_box(rustix::process::getppid());
            }
        })
    };
    let (once, twice) = (count(N / 100)?, count(N / 50)?);
    for [all, user, kernel] in [once, twice] {
        ensure!(
            user + kernel == all,
            "user {user} and kernel {kernel} add up to {}, all are {all}",
            user + kernel
        );
        // A system call branches at least to its handler and back.
        ensure!(kernel >= 200, "{kernel} branches in 100 system calls");
    }
    // An iteration ends with the loop's one branch.
    ensure!(
        twice[1].wrapping_sub(once[1]) == N,
        "{N} iterations branched {} times in user mode, {} {}",
        once[1],
        2 * N,
        twice[1]
    );
    Ok(())
}

fn branches_sample() -> Result<()> {
    check_numbers(Hardware::BranchInstructions.into())
}

fn instruction_counter() -> Result<()> {
    let pmu = Pmu::find()?;
    // Six event counters and the one for instructions.
    check_exact("instructions", &[(); 7].map(|()| user(pmu.instructions())))
}

fn instruction_counter_sample() -> Result<()> {
    check_numbers(Pmu::find()?.instructions())
}

fn user_access_own() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let _allowed = guest::Sysctl::set("kernel/perf_user_access", 1)?;
    // Others first, so that the counters next to the own one are in use.
    let others = [
        user(CYCLES).enabled(),
        user(pmu.instructions()).enabled(),
        user(pmu.instructions()).enabled(),
    ];
    let others: Vec<_> = others
        .iter()
        .map(|attr| counters::open(attr, Target::ThisThread))
        .collect::<Result<_>>()?;
    let (_own, ring) = open_readable(pmu.instructions())?;
    let counter = counter_of(&ring)?;
    check_loops(&ring)?;
    for other in others_than(counter) {
        let value = raw(other)?;
        ensure!(
            value == 0,
            "counter {other} of somebody else reads as {value:#x}"
        );
    }
    for other in &others {
        ensure!(counters::read(other)?.value > 0, "an event counted nothing");
    }
    Ok(())
}

/// Opens an event that its thread reads by instruction, on a counter from now on.
fn open_readable(event: impl Into<EventConfig>) -> Result<(Event, Ring)> {
    open_mapped(&user(with(event.into(), USER_ACCESS)))
}

/// Opens an event of this thread and maps its page.
fn open_mapped(attr: &Attr) -> Result<(Event, Ring)> {
    let event = counters::open(&attr.clone().enabled(), Target::ThisThread)?;
    let ring = Ring::map(&event, 0)?;
    Ok((event, ring))
}

/// What a counter holds, whosever it is.
fn raw(counter: u32) -> Result<u64> {
    el0::read_counter(counter).context("QEMU's CPUs have no such counter")
}

/// All counters of QEMU's CPUs but one.
fn others_than(counter: u32) -> impl Iterator<Item = u32> {
    let all = (0..6).chain([el0::CYCLE_COUNTER]);
    all.filter(move |&other| other != counter)
}

/// What a ring counts while the loop runs.
fn count_loops(ring: &Ring, iterations: u64) -> Result<u64> {
    let before = ring.count()?.value;
    run_loop(iterations);
    Ok(ring.count()?.value - before)
}

/// Fails unless a ring counts the loop's instructions to the last.
fn check_loops(ring: &Ring) -> Result<()> {
    let (once, twice) = (count_loops(ring, N)?, count_loops(ring, 2 * N)?);
    ensure!(
        twice.wrapping_sub(once) == N * INSTRUCTIONS_PER_ITERATION,
        "{N} iterations counted {once}, {} {twice}",
        2 * N
    );
    Ok(())
}

/// The number of the counter that the page in front of the ring names.
fn counter_of(ring: &Ring) -> Result<u32> {
    let index = ring.page().state().index;
    index.checked_sub(1).context("the event is on no counter")
}

fn user_access_clears() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let _allowed = guest::Sysctl::set("kernel/perf_user_access", 1)?;
    // Leaves something in every counter.
    let mut all = vec![user(CYCLES)];
    all.resize(7, user(pmu.instructions()));
    let group = counters::open_group(&all, Target::ThisThread)?;
    group.enable()?;
    run_loop(N);
    group.disable()?;
    for reading in counters::read_group(&group)? {
        ensure!(reading.value > N, "a counter that was used has {reading:?}");
    }
    drop(group);

    let (_own, ring) = open_readable(pmu.instructions())?;
    let counter = counter_of(&ring)?;
    run_loop(N);
    ensure!(ring.count()?.value > N, "the own counter does not count");
    for other in others_than(counter) {
        let value = raw(other)?;
        ensure!(
            value == 0,
            "counter {other}, of no event, reads as {value:#x}"
        );
    }
    Ok(())
}

/// How wide event counters are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counters {
    Bits32,
    Bits64,
}

fn user_access_count(counters: Counters) -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let _allowed = guest::Sysctl::set("kernel/perf_user_access", 1)?;
    // On all counters at once; 64 bits wide, too, where the hardware has that.
    let long = match counters {
        Counters::Bits32 => USER_ACCESS,
        Counters::Bits64 => USER_ACCESS | LONG,
    };
    let attr = |config1| user(with(pmu.instructions(), config1));
    let attrs = [
        user(with(CYCLES.into(), USER_ACCESS)),
        attr(USER_ACCESS),
        attr(USER_ACCESS),
        attr(long),
        attr(long),
        // These start near their overflow, which comes many times in a loop.
        attr(USER_ACCESS).sample(Rate::Period(99_991), SampleFields::IP),
        attr(long).sample(Rate::Period(1_000_003), SampleFields::IP),
    ];
    let events = attrs.iter().map(open_mapped).collect::<Result<Vec<_>>>()?;
    let mut used = events
        .iter()
        .map(|(_, ring)| counter_of(ring))
        .collect::<Result<Vec<_>>>()?;
    used.sort_unstable();
    ensure!(
        used == [0, 1, 2, 3, 4, 5, el0::CYCLE_COUNTER],
        "the events are on the counters {used:?}"
    );
    for (i, (event, ring)) in events.iter().enumerate() {
        check_ways(event, ring).with_context(|| format!("event {i}"))?;
    }
    drop(events);

    let (_event, ring) = open_readable(pmu.instructions())?;
    check_loops(&ring)?;
    let cost = kernel_cost(&pmu, &ring)?;
    ensure!(
        cost < 50,
        "a count took {cost} instructions in the kernel, which it is to do without"
    );
    Ok(())
}

fn user_access_mapped_late() -> Result<()> {
    let _allowed = guest::Sysctl::set("kernel/perf_user_access", 1)?;
    let attr = user(with(CYCLES.into(), USER_ACCESS)).enabled();
    let event = counters::open(&attr, Target::ThisThread)?;
    run_loop(N);
    let read = event.read()?.value;
    let ring = Ring::map(&event, 0)?;
    let state = ring.page().state();
    // The counter started half its range below its overflow, so that is in the offset, too.
    ensure!(
        state.pmc_width == 32 && state.offset > 0,
        "after a read of {read} the page says {state:?}"
    );
    Ok(())
}

fn user_access_fallback() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let check = |allowed, event| {
        let _allowed = guest::Sysctl::set("kernel/perf_user_access", allowed)?;
        let (event, ring) = open_mapped(&user(event))?;
        check_loops(&ring)?;
        check_ways(&event, &ring)?;
        let cost = kernel_cost(&pmu, &ring)?;
        ensure!(
            cost > 50,
            "a count took {cost} instructions in the kernel, which is no system call"
        );
        Ok(())
    };
    check(0, with(pmu.instructions(), USER_ACCESS)).context("not allowed")?;
    check(1, pmu.instructions()).context("allowed, but not asked for")
}

/// Fails unless the event's ring and a system call agree about count and times, to the instruction.
fn check_ways(event: &Event, ring: &Ring) -> Result<()> {
    let mut first = None;
    for n in [N, 2 * N, 3 * N] {
        run_loop(n);
        check_gaps(event, ring, &mut first).context("after a loop")?;
    }
    // Taken off the counter, and put back.
    thread::sleep(Duration::from_millis(5));
    check_gaps(event, ring, &mut first).context("after a sleep")?;
    // Here a count may take some instructions more, until the counter starts anew.
    event.reset()?;
    let [count, ..] = both_ways(event, ring).context("after a reset")?;
    ensure!(
        count.value < 10_000,
        "after a reset a ring counted {count:?}"
    );
    run_loop(N);
    both_ways(event, ring).context("after a reset and a loop")?;
    event.disable()?;
    let (stopped, count) = (event.read()?, ring.count()?);
    ensure!(
        count == stopped,
        "of an event that is disabled a ring counted {count:?}, a read {stopped:?}"
    );
    Ok(event.enable()?)
}

/// Fails unless the instructions that are counted between one way of reading and the other are
/// those of the `first` time.
fn check_gaps(event: &Event, ring: &Ring, first: &mut Option<[u64; 2]>) -> Result<()> {
    let gaps = || -> Result<[u64; 2]> {
        let [before, read, after] = both_ways(event, ring)?;
        Ok([read.value - before.value, after.value - read.value])
    };
    let mut got = gaps()?;
    let expected = *first.get_or_insert(got);
    if got != expected {
        // An overflow in the midst of it makes the ring look twice.
        got = gaps()?;
    }
    ensure!(
        got == expected,
        "from a ring to a read and back it is {got:?}, and was {expected:?}"
    );
    Ok(())
}

/// What a ring counts, a system call, and the ring again. Fails unless each is a little more than the
/// one before.
fn both_ways(event: &Event, ring: &Ring) -> Result<[Count; 3]> {
    let counts = [ring.count()?, event.read()?, ring.count()?];
    let grows = |field: fn(&Count) -> Option<u64>| {
        let [before, read, after] = counts.each_ref().map(field);
        before.is_some() && before < read && read < after
    };
    ensure!(
        grows(|count| Some(count.value))
            && grows(|count| count.time_enabled)
            && grows(|count| count.time_running)
            && counts[2].value - counts[0].value < 10_000,
        "a ring, a read and the ring again counted {counts:?}"
    );
    Ok(counts)
}

/// How many instructions the kernel executes for a count: the least of several tries, as a timer may tick
/// in some.
fn kernel_cost(pmu: &Pmu, ring: &Ring) -> Result<u64> {
    const TRIES: usize = 10;
    // So many that enabling the event, 25,000 instructions in a kernel that checks itself, is no part of it.
    const COUNTS: u64 = 2_500;
    let attr = Attr::new(pmu.instructions()).exclude(Exclude::USER | Exclude::HV);
    let event = counters::open(&attr, Target::ThisThread)?;
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        event.reset()?;
        event.enable()?;
        for _ in 0..COUNTS {
            ring.count()?;
        }
        event.disable()?;
        least = least.min(counters::read(&event)?.value / COUNTS);
    }
    Ok(least)
}

fn user_access_changes() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    for from in [0, 1] {
        let before = guest::Sysctl::set("kernel/perf_user_access", from)?;
        let (event, ring) = open_readable(pmu.instructions())?;
        check_loops(&ring)?;
        let after = guest::Sysctl::set("kernel/perf_user_access", 1 - from)?;
        // Either the kernel has changed the registers and not the page, or the page and not the
        // registers.
        event.reset()?;
        for n in [N, 2 * N] {
            let count = count_loops(&ring, n)?;
            ensure!(
                count.within(0.1, n * INSTRUCTIONS_PER_ITERATION),
                "first it was {from}, then {n} iterations counted {count}"
            );
            both_ways(&event, &ring).with_context(|| format!("first it was {from}"))?;
        }
        drop((after, before));
    }
    Ok(())
}

fn user_access_moves() -> Result<()> {
    let _allowed = guest::Sysctl::set("kernel/perf_user_access", 1)?;
    let (event, ring) = open_readable(CYCLES)?;
    let mut last = 0;
    for cpu in (0..50).map(|i| i % 2) {
        let _here = guest::Pinned::to(cpu)?;
        for count in [ring.count()?, event.read()?, ring.count()?] {
            ensure!(
                count.value > last,
                "on CPU {cpu} the count went from {last} to {}",
                count.value
            );
            last = count.value;
        }
    }

    // The event stays on a counter of this CPU while another thread asks for the count on the
    // other, where the counter of the same number counts that thread.
    let _here = guest::Pinned::to(0)?;
    let other = thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _here = guest::Pinned::to(1)?;
            let _own = open_readable(CYCLES)?;
            let mut on_counter = 0;
            while on_counter < 20 {
                let page = ring.page().state();
                let told = [event.read()?, ring.count()?, event.read()?].map(|count| count.value);
                ensure!(
                    told.is_sorted(),
                    "another thread was told {told:?}, the second of it by the ring"
                );
                on_counter += u32::from(page.index != 0 && page == ring.page().state());
            }
            Ok(())
        });
        while !other.is_finished() {
            run_loop(1_000);
        }
        other.join()
    });
    other.ok().context("the other thread panicked")?
}

fn user_access_refused() -> Result<()> {
    // What becomes of a child that reads the cycle counter, with an event or without.
    let killed = |config: Option<EventConfig>| -> Result<bool> {
        let child = Stopped::new_reader()?;
        let event = config.map(|config| counters::open(&user(config).enabled(), child.target()));
        let _event = event.transpose()?;
        Ok(child.end()?.terminating_signal() == Some(Signal::ILL.as_raw()))
    };
    let readable = with(CYCLES.into(), USER_ACCESS);
    let check = |when, want, config| {
        let got = killed(config)?;
        let word = |killed| if killed { "ends" } else { "does not end" };
        ensure!(
            got == want,
            "{when}, reading a counter {} the thread",
            word(got)
        );
        Ok(())
    };
    check("as nobody allowed it", true, None)?;
    let allowed = guest::Sysctl::set("kernel/perf_user_access", 1)?;
    check("allowed, but without an event", true, None)?;
    check(
        "allowed, but with an event for others",
        true,
        Some(CYCLES.into()),
    )?;
    check(
        "allowed, and with an event for that",
        false,
        Some(readable.clone()),
    )?;
    // It is forbidden again while an event of this thread has opened the counters of this CPU.
    let (_event, ring) = open_readable(CYCLES)?;
    counter_of(&ring)?;
    drop(allowed);
    check("forbidden again", true, Some(readable))
}

/// Fails unless cycles are counted, by one of the six event counters.
fn cycles_on_event_counter() -> Result<()> {
    // Nothing is where cycles have a counter of their own, so all members are cycles.
    let mut group = vec![Attr::new(CYCLES).enabled(); 7];
    let last = group.pop().context("it has members")?;
    let mut group = counters::open_group(&group, Target::ThisThread)?;
    let more = group.add(&last, Target::ThisThread);
    let refused = more.err().and_then(|error| error.errno());
    ensure!(
        refused == Some(Errno::INVAL),
        "a seventh event on six counters: {refused:?}"
    );
    let before = counters::read_group(&group)?;
    workloads::run_for(Duration::from_millis(50));
    let after = counters::read_group(&group)?;
    for (before, after) in before.into_iter().zip(after) {
        let (value, running) = (after.value - before.value, after.running - before.running);
        ensure!(
            running > 0 && value.within(2.0, running),
            "a cycle is a nanosecond, and {before:?} became {after:?}"
        );
    }
    drop(group);

    // User space is told which counter it is.
    let _allowed = guest::Sysctl::set("kernel/perf_user_access", 1)?;
    let (_event, ring) = open_readable(CYCLES)?;
    let counter = counter_of(&ring)?;
    ensure!(counter < 6, "cycles are on counter {counter}");
    Ok(())
}

/// Fails unless these are the PMUs and the CPUs of each, and each counts there and nowhere else.
pub(super) fn check_kinds(want: [(&str, &str); 2]) -> Result<()> {
    let pmus = Pmus::system()?;
    let kinds: Vec<_> = pmus.core().collect();
    let cpus = |pmu: &discovery::Pmu| pmu.cpus.clone().unwrap_or_default();
    let found: Vec<_> = kinds
        .iter()
        .map(|pmu| (pmu.name.as_str(), cpus(pmu).to_string()))
        .collect();
    ensure!(
        found == want.map(|(name, cpus)| (name, cpus.to_owned())),
        "the PMUs are {found:?}, not {want:?}"
    );
    let cycles =
        |pmu: &discovery::Pmu| Attr::new(EventConfig::new(pmu.type_id, CPU_CYCLES)).enabled();
    for pmu in &kinds {
        for cpu in 0..4 {
            let got = counters::refusal(&cycles(pmu), Target::Cpu(cpu))?;
            let want = (!cpus(pmu).contains(cpu)).then_some(Errno::NOENT);
            ensure!(
                got == want,
                "{} on CPU {cpu}: {got:?}, not {want:?}",
                pmu.name
            );
        }
    }

    let events = kinds
        .iter()
        .map(|pmu| counters::open(&cycles(pmu), Target::ThisThread))
        .collect::<Result<Vec<_>>>()?;
    let mixed = counters::open_member(&cycles(kinds[1]), Target::ThisThread, &events[0]);
    let refused = mixed.err().and_then(|error| counters::errno(&error));
    ensure!(
        refused == Some(Errno::INVAL),
        "a group of both: {refused:?}"
    );

    for cpu in [0, 2, 1, 3, 0] {
        let _stay = guest::Pinned::to(cpu)?;
        // An event for whichever PMU has the CPU.
        let generic = counters::open(&Attr::new(CYCLES).enabled(), Target::Cpu(cpu))?;
        let read = || {
            events
                .iter()
                .map(counters::read)
                .collect::<Result<Vec<_>>>()
        };
        let before = read()?;
        workloads::run_for(Duration::from_millis(20));
        let after = read()?;
        for ((pmu, before), after) in kinds.iter().zip(before).zip(after) {
            let (value, running) = (after.value - before.value, after.running - before.running);
            let right = match cpus(pmu).contains(cpu) {
                true => running > 0 && value.within(2.0, running),
                false => running == 0 && value == 0,
            };
            ensure!(
                right && after.enabled > before.enabled,
                "on CPU {cpu} {} went from {before:?} to {after:?}",
                pmu.name
            );
        }
        let generic = counters::read(&generic)?;
        ensure!(
            generic.value >= 18_000_000,
            "CPU {cpu} had {} cycles in 20 busy ms",
            generic.value
        );
    }
    Ok(())
}

fn no_interrupt() -> Result<()> {
    check_exact("cycles", &[user(CYCLES)])?;
    let attr = user(CYCLES).sample(Rate::Period(1_000_000), SampleFields::IP);
    let refused = counters::refusal(&attr, Target::ThisThread)?;
    ensure!(
        refused == Some(Errno::OPNOTSUPP),
        "sampling without an interrupt: {refused:?}"
    );
    Ok(())
}

fn idle() -> Result<()> {
    const PERIOD: u64 = 100_003;
    const STATE: &str = "/sys/devices/system/cpu/cpu0/cpuidle/state1/usage";
    let entered = || -> Result<u64> { Ok(guest::read(STATE)?.parse()?) };

    let _rate = guest::SampleRate::unlimited()?;
    let _stay = guest::Pinned::to(0)?;
    let count = counters::open(&Attr::new(CYCLES), Target::Cpu(0))?;
    let attr = Attr::new(CYCLES).sample(Rate::Period(PERIOD), SampleFields::IP);
    let sampling = counters::open(&attr, Target::Cpu(0))?;
    let mut ring = Ring::map(&sampling, 1 << 20)?;
    let before = entered()?;
    count.enable()?;
    sampling.enable()?;
    let mut last = counters::read(&count)?;
    for round in 0..50 {
        std::thread::sleep(Duration::from_millis(3));
        workloads::run_for(Duration::from_millis(2));
        let now = counters::read(&count)?;
        let (cycles, time) = (
            now.value.wrapping_sub(last.value),
            now.running - last.running,
        );
        // A cycle is a nanosecond. At least the loop's were counted, and not those of the idle state.
        ensure!(
            (1_800_000..=time + time / 50).contains(&cycles),
            "round {round}: {cycles} cycles in {time} ns, 2000000 of them in a loop"
        );
        last = now;
    }
    sampling.disable()?;
    let sampled = counters::read(&sampling)?.value;
    let mut records = Records::default();
    records.drain(&mut ring, sampling.attr())?;
    records.check_nothing_lost()?;
    let (got, want) = (records.samples.len() as u64, sampled / PERIOD);
    ensure!(
        got.within(5.0, want),
        "{sampled} cycles gave {got} samples, not {want}"
    );
    let entered = entered()? - before;
    ensure!(
        entered >= 50,
        "the idle state was entered only {entered} times"
    );
    Ok(())
}
