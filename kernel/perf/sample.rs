// SPDX-License-Identifier: GPL-2.0

//! Samples, and the time that taking them costs.

use super::{
    Driver,
    Event, //
};
use crate::{
    bindings,
    percpu_irq::IrqContext, //
};
use core::mem::MaybeUninit;
use kernel::irq::IrqReturn;

/// What a driver knows about a sample. Perf core finds out the rest from the interrupted code.
#[derive(Clone, Copy, Debug)]
pub struct SampleData {
    period: u64,
    address: Option<u64>,
}

impl SampleData {
    /// A sample at the end of `period` events. [`Event::next_period`] makes it.
    #[inline]
    pub const fn new(period: u64) -> Self {
        Self {
            period,
            address: None,
        }
    }

    /// Adds the address that the sampled instruction accessed.
    #[inline]
    pub const fn with_address(self, address: u64) -> Self {
        Self {
            address: Some(address),
            ..self
        }
    }

    /// Fills in C's struct like `perf_sample_data_init()`: the flags tell which fields are set.
    #[inline]
    fn write_to(self, data: &mut MaybeUninit<bindings::perf_sample_data>) {
        let data = data.as_mut_ptr();
        let mut flags = u64::from(bindings::perf_event_sample_format_PERF_SAMPLE_PERIOD);

        // SAFETY: `data` is valid for writes of its fields.
        unsafe {
            (&raw mut (*data).period).write(self.period);
            (&raw mut (*data).dyn_size).write(0);
        }

        if let Some(address) = self.address {
            flags |= u64::from(bindings::perf_event_sample_format_PERF_SAMPLE_ADDR);

            // SAFETY: `data` is valid for writes of its fields.
            unsafe { (&raw mut (*data).addr).write(address) };
        }

        // SAFETY: `data` is valid for writes of its fields.
        unsafe { (&raw mut (*data).sample_flags).write(flags) };
    }
}

impl<T: Driver> Event<T> {
    /// Takes a sample, if the event samples, and lets perf core throttle the event: it may
    /// [stop](Driver::stop) the event, and others of its group, before this returns.
    #[inline]
    pub fn overflow(&self, irq: &IrqContext<'_>, sample: SampleData) {
        let mut data = MaybeUninit::uninit();
        sample.write_to(&mut data);

        // SAFETY: By the type invariant the event is valid; an interrupt handler can only get
        // hold of one that is scheduled on this CPU. Interrupts are off. `data` has the fields
        // that its flags tell of, and the registers are those of the interrupted code.
        unsafe { bindings::perf_event_overflow(self.as_raw(), data.as_mut_ptr(), irq.regs()) };
    }
}

/// The time that [`handle_interrupt`] goes by, in nanoseconds. It can be asked for anywhere, in an
/// NMI too.
#[inline]
pub fn clock() -> u64 {
    // SAFETY: It can be called from any context.
    unsafe { bindings::sched_clock() }
}

/// Runs the handler of an interrupt that comes from counters, and lets perf core know how long it
/// took, so that it can lower the rate of samples (`/proc/sys/kernel/perf_cpu_time_max_percent`).
#[inline]
pub fn handle_interrupt(irq: &IrqContext<'_>, handler: impl FnOnce() -> IrqReturn) -> IrqReturn {
    // Perf core keeps the account for each CPU; in an interrupt handler this CPU is the one.
    let _ = irq;

    let start = clock();
    let result = handler();

    // SAFETY: Perf core expects this call in interrupt context.
    unsafe { bindings::perf_sample_event_took(clock().wrapping_sub(start)) };

    result
}
