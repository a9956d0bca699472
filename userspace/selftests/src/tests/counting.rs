// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts, against loops that retire a known number of instructions.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use perfshim::{Attr, Capabilities, Exclude, Hardware, Ring, Target};
use workloads::{INSTRUCTIONS_PER_ITERATION, run_loop};

use crate::counters::{self, CYCLES, Within, user};
use crate::guest::{self, Pmu};
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "count-exact",
        "N more loops count exactly N x k instructions more, on every event counter at once",
        exact,
    )
    .core()
    .icount(),
    Test::new(
        "count-cycles-exact",
        "with an instruction a cycle, the cycle counter counts the loop exactly",
        cycles_exact,
    )
    .icount(),
    Test::new(
        "count-disabled",
        "an event counts nothing before enable and after disable, and reset sets it to 0",
        disabled,
    )
    .icount(),
    Test::new(
        "count-sleeps",
        "instructions are counted exactly across sleeps, when the event leaves its counter",
        sleeps,
    )
    .icount(),
    Test::new(
        "count-filters",
        "user and kernel counts add up to the whole, to the instruction",
        filters,
    )
    .core()
    .icount(),
    Test::new(
        "count-filter-guest-hv",
        "without guests and EL2, exclude_guest and exclude_hv change nothing, exclude_host all",
        filter_guest_hv,
    )
    .icount(),
    Test::new(
        "count-filters-vhe",
        "the same two where the kernel runs at EL2",
        || {
            need_el2()?;
            filters()?;
            filter_guest_hv()
        },
    )
    .icount()
    .dts("vhe"),
    Test::new(
        "count-past-32-bits",
        "cycles go on past 2^32, with config1:long and without, on 64-bit counters",
        past_32_bits,
    )
    .core()
    .icount(),
    Test::new(
        "count-past-32-bits-a57",
        "cycles go on past 2^32, with config1:long and without, on 32-bit counters",
        past_32_bits,
    )
    .icount()
    .cpu("cortex-a57"),
    Test::new(
        "count-userpage",
        "the page in front of the ring holds the count, and grants no reading by instruction",
        userpage,
    ),
    Test::new(
        "count-cycles-clock",
        "cycles of a busy thread follow the clock of QEMU's CPUs, 1 GHz",
        cycles_clock,
    )
    .icount(),
];

pub(super) const N: u64 = 100_000;

/// Fails unless N more iterations add exactly their instructions to each member of a group.
pub(super) fn check_exact<const MEMBERS: usize>(what: &str, attrs: &[Attr; MEMBERS]) -> Result<()> {
    let count = |n| counters::count_group(attrs, Target::ThisThread, || run_loop(n));
    let (once, twice) = (count(N)?, count(2 * N)?);
    let want = N * INSTRUCTIONS_PER_ITERATION;
    for (member, (once, twice)) in once.into_iter().zip(twice).enumerate() {
        ensure!(
            twice.wrapping_sub(once) == want,
            "{what}, group member {member}: {N} iterations counted {once}, {} counted {twice}: \
             the difference is {}, not {want}",
            2 * N,
            twice.wrapping_sub(once)
        );
    }
    Ok(())
}

fn exact() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    // QEMU's CPUs have six event counters.
    check_exact("instructions", &[(); 6].map(|()| user(pmu.instructions())))
}

fn cycles_exact() -> Result<()> {
    check_exact("cycles", &[user(CYCLES)])
}

fn disabled() -> Result<()> {
    let event = counters::open(&user(CYCLES), Target::ThisThread)?;
    run_loop(N);
    ensure!(
        counters::read(&event)?.value == 0,
        "it counted before it was enabled"
    );
    event.enable()?;
    run_loop(N);
    event.disable()?;
    let stopped = counters::read(&event)?.value;
    ensure!(
        stopped >= N * INSTRUCTIONS_PER_ITERATION,
        "it counted {stopped} while enabled"
    );
    run_loop(N);
    let later = counters::read(&event)?.value;
    ensure!(
        later == stopped,
        "it went from {stopped} to {later} after it was disabled"
    );
    event.reset()?;
    ensure!(counters::read(&event)?.value == 0, "a reset left a count");
    Ok(())
}

fn sleeps() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let event = counters::open(&user(pmu.instructions()), Target::ThisThread)?;
    let count = |iterations| {
        counters::count(&event, || {
            workloads::run_with_sleeps(20, iterations, Duration::from_millis(1));
        })
    };
    let (once, twice) = (count(N)?, count(2 * N)?);
    let want = 20 * N * INSTRUCTIONS_PER_ITERATION;
    ensure!(
        twice.wrapping_sub(once) == want,
        "20 rounds counted {once}, with twice the iterations {twice}: the difference is not {want}"
    );
    Ok(())
}

/// User code and system calls in turn.
fn user_and_kernel() {
    for _ in 0..200 {
        run_loop(100);
        std::hint::black_box(rustix::process::getppid());
    }
}

fn filters() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let all = Attr::new(pmu.instructions());
    let attrs = [
        all.clone(),
        all.clone().exclude(Exclude::KERNEL),
        all.clone().exclude(Exclude::USER),
    ];
    // A group starts and stops as one, so the three see the same instructions.
    let [all, user, kernel] = counters::count_group(&attrs, Target::ThisThread, user_and_kernel)?;
    ensure!(
        user + kernel == all,
        "user {user} and kernel {kernel} add up to {}, all are {all}",
        user + kernel
    );
    let least = 200 * 100 * INSTRUCTIONS_PER_ITERATION;
    ensure!(
        user >= least,
        "user mode retired {user}, its loops alone {least}"
    );
    // A system call costs the kernel no less than saving and restoring 31 registers.
    ensure!(
        kernel >= 200 * 31,
        "the kernel retired only {kernel} in 200 system calls"
    );
    Ok(())
}

fn filter_guest_hv() -> Result<()> {
    let pmu = Pmu::find()?;
    pmu.need_instructions()?;
    let all = Attr::new(pmu.instructions());
    let attrs = [
        all.clone(),
        all.clone().exclude(Exclude::GUEST),
        all.clone().exclude(Exclude::HV),
        all.clone().exclude(Exclude::HOST),
    ];
    let [all, no_guest, no_hv, no_host] =
        counters::count_group(&attrs, Target::ThisThread, user_and_kernel)?;
    ensure!(no_guest == all, "all are {all}, without guests {no_guest}");
    ensure!(
        no_hv == all,
        "all are {all}, without the hypervisor {no_hv}"
    );
    ensure!(
        no_host == 0,
        "all are {all}, without the host {no_host}: there is no guest"
    );
    Ok(())
}

/// Fails unless the kernel runs at EL2.
fn need_el2() -> Result<()> {
    ensure!(
        guest::log()?.contains("CPU(s) started at EL2"),
        "the kernel does not say that it runs at EL2"
    );
    Ok(())
}

fn past_32_bits() -> Result<()> {
    let pmu = Pmu::find()?;
    let (long, short) = (pmu.long_cycles(), CYCLES.into());
    // The first cycle event of a group gets the cycle counter, the second an event counter.
    // Without 64-bit event counters a long event fits nowhere else than in the cycle counter.
    let attrs = [long, short].map(Attr::new);
    // QEMU's CPUs have cycles while they sleep too, and with -icount a sleep takes no time.
    let group = counters::open_group(&attrs, Target::Cpu(0))?;
    group.enable()?;
    thread::sleep(Duration::from_secs(5));
    group.disable()?;
    let readings = counters::read_group(&group)?;
    let [long, short] = [readings[0].value, readings[1].value];
    ensure!(
        long > 1 << 32,
        "config1:long counted {long} cycles in 5 s of 1 GHz"
    );
    ensure!(
        short == long,
        "in one group, config1:long counted {long}, without it {short}"
    );
    Ok(())
}

fn cycles_clock() -> Result<()> {
    let event = counters::open(&Attr::new(Hardware::CpuCycles), Target::ThisThread)?;
    let _stay = guest::Pinned::to(0)?;
    event.enable()?;
    workloads::run_for(Duration::from_millis(100));
    event.disable()?;
    let reading = counters::read(&event)?;
    ensure!(
        reading.value.within(1.0, reading.running),
        "{} cycles in {} ns on the counter",
        reading.value,
        reading.running
    );
    Ok(())
}

fn userpage() -> Result<()> {
    let event = counters::open(&user(CYCLES), Target::ThisThread)?;
    let ring = Ring::map(&event, 0)?;
    for n in [N, 2 * N] {
        let count = counters::count(&event, || run_loop(n))?;
        let page = ring.page().state();
        ensure!(
            page.index == 0 && !page.capabilities.contains(Capabilities::USER_RDPMC),
            "nobody asked for user access: {page:?}"
        );
        ensure!(
            u64::try_from(page.offset) == Ok(count),
            "the page says {}, a read {count}",
            page.offset
        );
    }
    Ok(())
}
