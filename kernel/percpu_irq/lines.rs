// SPDX-License-Identifier: GPL-2.0

//! The interrupt numbers behind a [`PerCpuIrq`](super::PerCpuIrq), and how a CPU switches its own
//! on and off.

use super::Gsi;
use crate::{
    bindings,
    cpuhp,
    percpu::{
        LocalCell,
        PerCpu, //
    }, //
};
use kernel::{
    cpu::CpuId,
    error::to_result,
    ffi::c_uint,
    fmt,
    prelude::*, //
};

/// The CPUs that may join: those whose interrupt, as `gsi_of` tells, is `gsi`.
pub(super) struct Joining {
    pub(super) gsi_of: fn(CpuId) -> Option<Gsi>,
    pub(super) gsi: Gsi,
}

/// The interrupt of each CPU.
///
/// # Invariants
///
/// - `Private::irq` is a per-CPU interrupt (`IRQ_PER_CPU_DEVID`).
/// - The numbers in `Pinned` are 0, for a CPU without an interrupt, or ordinary interrupts. They do
///   not change once there is a `PerCpuIrq`.
pub(super) enum Lines {
    /// One number, of which each CPU has an interrupt of its own.
    Private {
        irq: c_uint,
        /// Whether it was requested as an NMI. That is written before the hotplug callbacks that
        /// enable it are registered, which orders it.
        nmi: LocalCell<bool>,
        /// Tells which CPUs may join, if some may.
        joining: Option<Joining>,
    },
    /// A number for each CPU.
    Pinned(PerCpu<LocalCell<u32>>),
}

impl Lines {
    /// One number for all CPUs, which must be a per-CPU interrupt.
    pub(super) fn private(irq: c_uint, joining: Option<Joining>) -> Self {
        // INVARIANT: The caller has looked.
        Self::Private {
            irq,
            nmi: LocalCell::new(false),
            joining,
        }
    }

    /// Returns whether `cpu` has the interrupt that the others share.
    pub(super) fn may_join(&self, cpu: CpuId) -> bool {
        match self {
            Self::Private {
                joining: Some(joining),
                ..
            } => (joining.gsi_of)(cpu) == Some(joining.gsi),
            _ => false,
        }
    }

    /// Enables the interrupt of this CPU, which must not be enabled.
    #[inline]
    pub(super) fn enable(&self, cpu: &cpuhp::Transition<'_>) -> Result {
        match self {
            #[cfg(not(RUST_PMU_OUT_OF_TREE))]
            Self::Private { irq, nmi, .. } if !nmi.load() => {
                // SAFETY: By the type invariant this is a per-CPU interrupt. It acts on the CPU
                // that calls, which this thread does not leave.
                unsafe { bindings::enable_percpu_irq(*irq, bindings::IRQ_TYPE_NONE) };
                Ok(())
            }
            _ => self.enable_rare(cpu),
        }
    }

    #[cold]
    #[inline(never)]
    fn enable_rare(&self, cpu: &cpuhp::Transition<'_>) -> Result {
        match self {
            Self::Private { irq, nmi, .. } => cpu.with_interrupts_off(|_here| {
                if nmi.load() {
                    // SAFETY: By the type invariant this is a per-CPU interrupt, which was
                    // requested as an NMI. It is not enabled on this CPU, which is the one that
                    // this acts on.
                    to_result(unsafe { bindings::prepare_percpu_nmi(*irq) })?;
                }

                #[cfg(RUST_PMU_OUT_OF_TREE)]
                if crate::out_of_tree::percpu_free::postpone(_here, *irq, true) {
                    return Ok(());
                }

                // SAFETY: By the type invariant this is a per-CPU interrupt. It acts on the CPU
                // that calls. This is the same call for an NMI.
                unsafe { bindings::enable_percpu_irq(*irq, bindings::IRQ_TYPE_NONE) };
                Ok(())
            })?,
            Self::Pinned(numbers) => {
                // SAFETY: It was requested, and is not enabled. This is the same call for an NMI.
                unsafe { bindings::enable_irq(numbers.here(cpu).load()) };
                Ok(())
            }
        }
    }

    /// Disables the interrupt of this CPU, which must be enabled. Its handler is not called again.
    #[inline]
    pub(super) fn disable(&self, cpu: &cpuhp::Transition<'_>) {
        match self {
            #[cfg(not(RUST_PMU_OUT_OF_TREE))]
            Self::Private { irq, nmi, .. } if !nmi.load() => {
                // SAFETY: As in `enable()`.
                unsafe { bindings::disable_percpu_irq(*irq) };
            }
            _ => self.disable_rare(cpu),
        }
    }

    #[cold]
    #[inline(never)]
    fn disable_rare(&self, cpu: &cpuhp::Transition<'_>) {
        match self {
            Self::Private { irq, nmi, .. } => {
                let disabled = cpu.with_interrupts_off(|_here| {
                    #[cfg(RUST_PMU_OUT_OF_TREE)]
                    let is_disabled = crate::out_of_tree::percpu_free::postpone(_here, *irq, false);
                    #[cfg(not(RUST_PMU_OUT_OF_TREE))]
                    let is_disabled = false;

                    if !is_disabled {
                        // SAFETY: By the type invariant this is a per-CPU interrupt. It acts on the
                        // CPU that calls.
                        unsafe { bindings::disable_percpu_irq(*irq) };
                    }

                    if nmi.load() {
                        // SAFETY: As above; `enable()` has prepared it on this CPU.
                        unsafe { bindings::teardown_percpu_nmi(*irq) };
                    }
                });
                // A CPU that runs this can be called.
                debug_assert!(disabled.is_ok());
            }
            Self::Pinned(numbers) => {
                // SAFETY: `enable()` has enabled it. It does not wait for the handler: that runs on
                // this CPU only, so it does not run now.
                unsafe { bindings::disable_irq_nosync(numbers.here(cpu).load()) };
            }
        }
    }
}

/// Whether each CPU has an interrupt of its own by this number.
pub(super) fn is_private(irq: c_uint) -> bool {
    // SAFETY: It takes any number.
    unsafe { bindings::irq_check_status_bit(irq, bindings::IRQ_PER_CPU_DEVID) }
}

/// Shows the interrupt numbers.
impl fmt::Display for super::PerCpuIrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = match &self.lines {
            Lines::Private { irq, .. } => return f.write_fmt(fmt!("{irq}")),
            Lines::Pinned(numbers) => numbers,
        };
        let mut separator = "";
        for cpu in crate::smp::cpus(self.affinity()) {
            f.write_fmt(fmt!("{separator}{}", numbers.on(cpu).load()))?;
            separator = ", ";
        }
        Ok(())
    }
}
