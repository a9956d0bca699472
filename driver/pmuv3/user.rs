// SPDX-License-Identifier: GPL-2.0

//! Counters that user space reads itself.
//!
//! A task may read the registers of its own events (`config1:rdpmc`) while
//! `/proc/sys/kernel/perf_user_access` is 1. So PMUSERENR_EL0 follows the tasks: the registers are
//! open while one runs that has such an event, whether or not the event has a counter at the
//! moment, since the task may be about to read the counter that it had.
//!
//! When a task closes its last such event, perf core does not tell: until it changes something else
//! on that CPU the registers stay open there, as under the C driver.
//!
//! With FEAT_PMUv3p9 a task sees the counters of events to be read by user space only. Without, it
//! sees all of them; those that no event uses are cleared, so that they do not tell what others
//! have counted.

use crate::{
    counters::{
        Counter,
        CounterSet, //
    },
    cpu::{
        Access,
        CpuState, //
    },
    layout::{
        CycleCounter,
        Layout, //
    },
    percpu::OnCpu,
    perf,
    regs::{
        Pmuserenr,
        Registers,
        UserLimit, //
    },
    smp,
    sysctl::{
        Flag,
        Setting, //
    }, //
};

/// `/proc/sys/kernel/perf_user_access`.
pub(crate) static USER_ACCESS: Flag = Flag::new(changed);

/// Closes the registers everywhere when they are not to be open any more.
fn changed(setting: Setting) {
    if setting == Setting::Off {
        smp::call_each(|_cpu| {
            if let Some(regs) = Registers::probe() {
                regs.set_pmuserenr(Pmuserenr::from_raw(0));
            }
        });
    }
}

/// Returns whether the task on this CPU is to read counters.
#[inline]
pub(crate) fn is_wanted(cpu: &OnCpu<'_>) -> bool {
    USER_ACCESS.get() == Setting::On && perf::task_reads_counters(cpu)
}

/// Opens the registers of this CPU to user space.
///
/// No event uses the counters `unused`.
#[cold]
#[inline(never)]
pub(crate) fn open(regs: Registers, layout: Layout, state: &CpuState, unused: CounterSet) {
    let before = match state.access() {
        Access::Open { shown } => Some(shown),
        Access::Closed => None,
    };
    let mut pmuserenr = Pmuserenr::from_raw(0).with_const_er::<1>();
    let shown = match regs.user_limit() {
        UserLimit::Pmuacr => {
            pmuserenr = pmuserenr.with_const_uen::<1>();
            let shown = state.for_user();
            if before != Some(shown) {
                regs.set_pmuacr(shown);
            }
            shown
        }
        UserLimit::Nothing => {
            // The instruction counter is not opened.
            let unused = unused.without(Counter::INSTRUCTION.into());
            for counter in unused.without(before.unwrap_or(CounterSet::EMPTY)) {
                if let Some(counter) = regs.counter(counter.index()) {
                    counter.set_count(0);
                }
            }
            unused
        }
    };
    if layout.cycle_counter == CycleCounter::Use {
        pmuserenr = pmuserenr.with_const_cr::<1>();
    }
    regs.set_pmuserenr(pmuserenr);
    state.set_access(Access::Open { shown });
}

/// Closes the registers of this CPU to user space.
#[cold]
#[inline(never)]
pub(crate) fn close(regs: Registers, state: &CpuState) {
    regs.set_pmuserenr(Pmuserenr::from_raw(0));
    state.set_access(Access::Closed);
}
