// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which events can be opened, under which of their names, and how the others are refused.

use anyhow::{Context, Result, ensure};
use perfshim::{
    Attr, BranchFilter, Cache, CacheId, CacheOp, CacheResult, EventConfig, Exclude, Hardware, Rate,
    SampleFields, Target,
};
use rustix::io::Errno;
use workloads::{INSTRUCTIONS_PER_ITERATION, run_loop};

use crate::counters::{self, CYCLES};
use crate::guest::Pmu;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "event-types",
        "HARDWARE, RAW, the PMU's own type and the extended type count the same cycles",
        types,
    )
    .core()
    .icount(),
    Test::new(
        "event-refused",
        "each event that cannot be had is refused with the errno that says why",
        refused,
    )
    .core(),
    Test::new(
        "event-refused-a57",
        "the same on 32-bit counters, where a user-readable 64-bit event counter is refused too",
        refused_32_bits,
    )
    .cpu("cortex-a57"),
    Test::new(
        "event-unknown-raw",
        "a raw event that the CPU lacks opens and counts 0",
        unknown_raw,
    ),
];

/// Numbers of the Arm ARM, section "PMU events and event numbers".
const SW_INCR: u64 = 0x00;
const CPU_CYCLES: u64 = 0x11;
const CHAIN: u64 = 0x1e;

/// Fields of config1, as the PMU's format folder gives them.
const LONG: u64 = 1 << 0;
const USER_ACCESS: u64 = 1 << 1;
const THRESHOLD_1: u64 = 1 << 5;

fn types() -> Result<()> {
    let pmu = Pmu::find()?;
    let attrs = [
        EventConfig::from(CYCLES),
        EventConfig::raw(CPU_CYCLES),
        EventConfig::new(pmu.type_id(), CPU_CYCLES),
        Hardware::CpuCycles.on_pmu(pmu.type_id()),
    ]
    .map(Attr::new);
    let counts = counters::count_group(&attrs, Target::ThisThread, || run_loop(10_000))?;
    ensure!(
        counts[0] >= 10_000 * INSTRUCTIONS_PER_ITERATION,
        "10000 iterations took {} cycles",
        counts[0]
    );
    ensure!(
        counts.iter().all(|&count| count == counts[0]),
        "hardware, raw, own and extended type counted {counts:?} in one group"
    );
    Ok(())
}

/// An event that must not open: what it is, its attributes and target, the errno, and why.
struct Refusal(&'static str, Attr, Target<'static>, Errno);

fn refused() -> Result<()> {
    let pmu = Pmu::find()?;
    let own = |config, config1| EventConfig {
        config1,
        ..EventConfig::new(pmu.type_id(), config)
    };
    let this = Target::ThisThread;
    let cache = |id, op, result| Attr::new(Cache { id, op, result });
    let hardware = |number| Attr::new(EventConfig::new(perfshim::sys::PERF_TYPE_HARDWARE, number));
    let mut cases = vec![
        Refusal(
            "a hardware event that perf does not define",
            hardware(99),
            this,
            Errno::INVAL,
        ),
        Refusal(
            "the hardware event ref-cycles, which PMUv3 does not have",
            Attr::new(Hardware::RefCpuCycles),
            this,
            Errno::NOENT,
        ),
        Refusal(
            "branch misses, which QEMU's CPUs do not count",
            Attr::new(Hardware::BranchMisses),
            this,
            Errno::NOENT,
        ),
        Refusal(
            "prefetches into the branch predictor, which PMUv3 does not have",
            cache(CacheId::Bpu, CacheOp::Prefetch, CacheResult::Miss),
            this,
            Errno::NOENT,
        ),
        Refusal(
            "a cache that perf does not define",
            Attr::new(EventConfig::new(perfshim::sys::PERF_TYPE_HW_CACHE, 0xff)),
            this,
            Errno::INVAL,
        ),
        Refusal(
            "CHAIN, which works in a pair of counters only",
            Attr::new(own(CHAIN, 0)),
            this,
            Errno::INVAL,
        ),
        Refusal(
            "exclude_idle, which PMUv3 cannot do",
            Attr::new(CYCLES).exclude(Exclude::IDLE),
            this,
            Errno::OPNOTSUPP,
        ),
        Refusal(
            "a branch stack, which needs BRBE",
            Attr::new(CYCLES)
                .sample(Rate::Period(100_000), SampleFields::IP)
                .branch_stack(BranchFilter::ANY),
            this,
            Errno::OPNOTSUPP,
        ),
        // QEMU's CPUs have no FEAT_PMUv3_TH.
        Refusal(
            "a threshold beyond caps/threshold_max",
            Attr::new(own(CPU_CYCLES, THRESHOLD_1)),
            this,
            Errno::INVAL,
        ),
        Refusal(
            "user access to a counter that follows a CPU, not a task",
            Attr::new(own(CPU_CYCLES, USER_ACCESS)),
            Target::Cpu(0),
            Errno::INVAL,
        ),
        Refusal(
            "a period of 2^63",
            Attr::new(CYCLES).with_raw(|raw| raw.__bindgen_anon_1.sample_period = 1 << 63),
            this,
            Errno::INVAL,
        ),
    ];
    if !pmu.has_event("inst_retired") {
        cases.push(Refusal(
            "instructions, which QEMU counts with -icount only",
            Attr::new(Hardware::Instructions),
            this,
            Errno::NOENT,
        ));
    }
    check(cases)
}

fn refused_32_bits() -> Result<()> {
    refused()?;
    let config = EventConfig {
        config1: USER_ACCESS | LONG,
        ..EventConfig::new(Pmu::find()?.type_id(), SW_INCR)
    };
    check(vec![Refusal(
        "user access to 64 bits of an event counter that has 32",
        Attr::new(config),
        Target::ThisThread,
        Errno::OPNOTSUPP,
    )])
}

fn check(cases: Vec<Refusal>) -> Result<()> {
    let mut wrong = Vec::new();
    for Refusal(what, attr, target, want) in cases {
        match counters::refusal(&attr, target).context(what)? {
            Some(got) if got == want => {}
            Some(got) => wrong.push(format!("{what}: refused with {got:?}, not {want:?}")),
            None => wrong.push(format!("{what}: opened, wanted {want:?}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn unknown_raw() -> Result<()> {
    let pmu = Pmu::find()?;
    // L1D_CACHE: defined by the architecture, absent in QEMU.
    for config in [
        EventConfig::raw(0x04),
        EventConfig::new(pmu.type_id(), 0x04),
    ] {
        let event = counters::open(&Attr::new(config), Target::ThisThread)?;
        let count = counters::count(&event, || run_loop(10_000))?;
        ensure!(
            count == 0,
            "an event that the CPU does not have counted {count}"
        );
    }
    Ok(())
}
