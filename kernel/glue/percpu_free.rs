// SPDX-License-Identifier: GPL-2.0

//! Frees per-CPU interrupts that others have, too.
//!
//! A per-CPU interrupt may have several actions, each for CPUs of its own: PMUs of different kinds
//! share a PPI. When it comes the kernel goes through the actions without a lock until it meets that
//! of the CPU, and `free_percpu_irq()` frees one at once, even if an interrupt of another is just
//! passing it. In tree the series mends this in the interrupt core; this file is for kernels that
//! are as they are.
//!
//! While an action is freed no CPU takes the interrupt. It lasts until it is handled, so none is
//! lost: it comes when the CPU enables it again.

use super::{
    bindings,
    percpu::OnCpu,
    smp, //
};
use kernel::{
    ffi::c_uint,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

kernel::sync::global_lock! {
    // SAFETY: `init()` initialises it, when the module is loaded.
    unsafe(uninit) static FREEING: Mutex<()> = ();
}

/// # Safety
///
/// To be called once, before all else here.
pub(super) unsafe fn init() {
    // SAFETY: As the caller vouches.
    unsafe { FREEING.init() };
}

/// What is kept from each CPU: an interrupt that it is not to have now. Only that CPU changes it, with
/// interrupts off.
static KEPT: [Kept; bindings::NR_CPUS as usize] = [const {
    Kept {
        irq: Atomic::new(0),
        wanted: Atomic::new(false),
    }
}; bindings::NR_CPUS as usize];

struct Kept {
    /// Its number. 0 is none.
    irq: Atomic<c_uint>,
    /// Whether it is to be enabled later.
    wanted: Atomic<bool>,
}

impl Kept {
    fn of(cpu: &OnCpu<'_>) -> &'static Self {
        // CPU numbers are below `NR_CPUS`.
        &KEPT[cpu.cpu().as_u32() as usize]
    }
}

/// Notes whether this CPU is to have `irq` enabled, if it must not have it now. Returns false if it
/// may.
pub(crate) fn postpone(cpu: &OnCpu<'_>, irq: c_uint, wanted: bool) -> bool {
    let kept = Kept::of(cpu);
    let is_kept = kept.irq.load(Relaxed) == irq;

    if is_kept {
        kept.wanted.store(wanted, Relaxed);
    }
    is_kept
}

/// Calls `free` while no CPU takes `irq`.
///
/// # Safety
///
/// `irq` must be a per-CPU interrupt that has been requested.
pub(crate) unsafe fn while_nobody_takes(irq: c_uint, free: impl FnOnce()) {
    let _one_at_a_time = FREEING.lock();
    // A CPU that comes up would not know.
    let _no_hotplug = smp::NoHotplug::new();

    smp::call_each(|cpu| {
        let kept = Kept::of(cpu);

        // SAFETY: The caller vouches for the number. Both are about the CPU that calls.
        unsafe {
            kept.wanted
                .store(bindings::irq_percpu_is_enabled(irq), Relaxed);
            if kept.wanted.load(Relaxed) {
                bindings::disable_percpu_irq(irq);
            }
        }
        kept.irq.store(irq, Relaxed);
    });
    free();
    smp::call_each(|cpu| {
        let kept = Kept::of(cpu);

        kept.irq.store(0, Relaxed);
        if kept.wanted.load(Relaxed) {
            // SAFETY: As above. Whoever wants it has not been freed: who is freed has disabled it,
            // and then does not want it.
            unsafe { bindings::enable_percpu_irq(irq, bindings::IRQ_TYPE_NONE) };
        }
    });
}
