// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands behind the page in front of a ring: the counters of the PMU, and the clock of the
//! page's times.
//!
//! This is the one place that knows of a processor, arm64. On others there is nothing to read.

/// Reads a system register. Unsafe: without permission it traps.
///
/// Without the option `nomem` the compiler leaves it between the two looks at the page's sequence
/// number. The processor may run it earlier, which does no harm: what the kernel changes it
/// changes on this CPU, or after an interrupt here, and the register is read before that
/// exception or after it.
#[cfg(target_arch = "aarch64")]
macro_rules! mrs {
    ($($register:tt)+) => {{
        let value: u64;
        std::arch::asm!(
            concat!("mrs {}, ", $($register)+),
            out(reg) value,
            options(nostack, preserves_flags)
        );
        value
    }};
}

/// The value of the counter that a page calls `index`, which is its number plus 1. `None` if it
/// is that of no counter that Linux shows to user space, 0 among them, and where the counters are
/// closed to this thread.
///
/// The event counters are 1 to 31, the cycle counter is 32. The instruction counter would be 33,
/// but `armv8pmu_get_event_idx()` in drivers/perf/arm_pmuv3.c gives it to no event that user space
/// is to read, and its registers stay closed.
///
/// This is for the thread that the page's event counts, between two looks at the page's sequence
/// number, the first of which found `index` there.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(super) fn counter(index: u32) -> Option<u64> {
    /// Bits of PMUSERENR_EL0: user space may read the cycle counter, and the event counters.
    const CR: u64 = 1 << 2;
    const ER: u64 = 1 << 3;
    macro_rules! read {
        ($($n:literal)+) => {
            // SAFETY: registers are read, which changes nothing. PMUSERENR_EL0 can be read by
            // user space on each CPU with a PMUv3, and no other gives an index to a page. The
            // counter can, as that says. Between the two the kernel may move the thread or take
            // the counter from its event: then this reads 0 or what another event counts, and
            // the sequence number tells. Should it close the counters just then, which it does
            // not while there is such an event of this thread and the sysctl stays as it
            // is, there is a SIGILL, as `Ring::count` says, and no undefined behaviour.
            unsafe {
                // On a CPU without a PMU a page has no index.
                let number = index.checked_sub(1)?;
                let open = mrs!("pmuserenr_el0");
                match number {
                    $($n if open & ER != 0 => mrs!("pmevcntr", $n, "_el0"),)+
                    31 if open & CR != 0 => mrs!("pmccntr_el0"),
                    _ => return None,
                }
            }
        };
    }
    Some(read!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30))
}

/// There is none.
#[cfg(not(target_arch = "aarch64"))]
#[inline]
pub(super) fn counter(_index: u32) -> Option<u64> {
    None
}

/// What the clock shows whose ticks the page turns into nanoseconds.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(super) fn clock() -> u64 {
    // SAFETY: a register is read, which changes nothing. Linux lets every thread read the virtual
    // count, or reads it for the thread where an erratum forbids that. It is the clock of
    // the page: where the kernel itself reads the physical count, the two show the same.
    unsafe { mrs!("cntvct_el0") }
}

/// Never asked for where there are no counters.
#[cfg(not(target_arch = "aarch64"))]
#[inline]
pub(super) fn clock() -> u64 {
    0
}
