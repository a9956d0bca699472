// SPDX-License-Identifier: GPL-2.0

//! The functions that perf core calls. Each turns C's arguments into Rust's, does what each driver
//! would have to do, and calls the driver.
//!
//! What they keep in order, besides the driver's part:
//!
//! - `hw.idx`, the slot of the event, and the CPU's table from slot to event;
//! - `hw.state`: an event that was added is stopped or running, and stopping it brings its count
//!   up to date;
//! - the page that user space maps.
//!
//! Perf core's flags (`PERF_EF_*`) make no difference to most of it: the driver always sets the
//! period when it starts an event and always updates the count when it stops one, as drivers for
//! counters do that cannot keep a value while stopped.

use super::{
    pmu::Pmu,
    Driver,
    Event,
    NewEvent,
    Slot, //
};
use crate::{
    bindings,
    percpu::OnCpu, //
};
use kernel::{
    cpu::CpuId,
    ffi::c_int,
    prelude::*, //
};

/// Fills in the callbacks of a `struct pmu` for `T`.
///
/// # Safety
///
/// `raw` must point to the `raw` of a `Pmu<T>` that perf core does not know.
pub(super) unsafe fn fill<T: Driver>(raw: *mut bindings::pmu) {
    // SAFETY: The caller vouches for `raw`.
    let raw = unsafe { &mut *raw };

    raw.event_init = Some(event_init::<T>);
    raw.add = Some(add::<T>);
    raw.del = Some(del::<T>);
    raw.start = Some(start::<T>);
    raw.stop = Some(stop::<T>);
    raw.read = Some(read::<T>);

    // Perf core takes these two as one: it looks at the first.
    if T::HAS_ENABLE || T::HAS_DISABLE {
        raw.pmu_enable = Some(enable::<T>);
        raw.pmu_disable = Some(disable::<T>);
    }
    if T::HAS_FILTER {
        raw.filter = Some(filter::<T>);
    }
    if T::HAS_EVENT_IDX {
        raw.event_idx = Some(event_idx::<T>);
    }
    if T::HAS_CHECK_PERIOD {
        raw.check_period = Some(check_period::<T>);
    }
}

/// The driver's data and the event.
///
/// # Safety
///
/// During `'a`, `event` must be an event of a registered `Pmu<T>`.
#[inline]
unsafe fn parts<'a, T: Driver>(event: *mut bindings::perf_event) -> (&'a Pmu<T>, &'a Event<T>) {
    // SAFETY: It is an event that `event_init` has accepted, or is looking at.
    let event = unsafe { Event::from_raw(event) };

    // SAFETY: Perf core calls back through `event->pmu`, which is the `Pmu<T>` that was registered.
    // That lives until perf core has forgotten it and its events.
    let pmu = unsafe { Pmu::from_raw(event.raw_pmu()) };

    (pmu, event)
}

/// The CPU that an event is on, which is this one. Perf core keeps its number in the event, which
/// spares a call into C.
///
/// # Safety
///
/// Interrupts must be off for as long as the result exists, and `event` be on this CPU: it is being
/// added or has a slot. (Perf core sets `oncpu` before it calls `add` and resets it after `del`.)
#[inline]
unsafe fn on_cpu_of<'a, T: Driver>(event: &'a Event<T>) -> OnCpu<'a> {
    // SAFETY: The event is on a CPU, so this is the number that smp_processor_id() gave there; the
    // caller vouches for the rest.
    unsafe { OnCpu::new(CpuId::from_i32_unchecked(event.oncpu())) }
}

fn to_errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn event_init<T: Driver>(event: *mut bindings::perf_event) -> c_int {
    // SAFETY: Perf core has set `event->pmu` to the PMU that it asks.
    let (pmu, _) = unsafe { parts::<T>(event) };

    // SAFETY: This is `event_init`; the value does not leave it. Perf core holds the lock of the
    // group that the event will join.
    let mut event = unsafe { NewEvent::from_raw(event) };

    to_errno(pmu.event_init(&mut event))
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn add<T: Driver>(event: *mut bindings::perf_event, flags: c_int) -> c_int {
    // SAFETY: Perf core calls this for an event of this PMU.
    let (pmu, event) = unsafe { parts::<T>(event) };

    // SAFETY: Perf core adds an event on its CPU with interrupts off.
    let on = unsafe { on_cpu_of(event) };

    let slot = match pmu.add(&on, event, &pmu.active(&on)) {
        Ok(slot) => slot,
        Err(error) => return error.to_errno(),
    };
    if !pmu.table(&on).fill(slot, event) {
        return taken(slot);
    }
    event.set_slot(Some(slot));

    // PERF_EF_START is a small number.
    if flags & bindings::PERF_EF_START as c_int != 0 {
        event.set_running();
        pmu.start(&on, event, slot);
    } else {
        event.set_stopped();
    }

    event.update_userpage();
    0
}

/// Says that a driver is wrong.
#[cold]
#[inline(never)]
fn taken(slot: Slot) -> c_int {
    kernel::do_once_lite! {
        pr_warn!("the driver reserved slot {} twice\n", slot.number());
    }
    EBUSY.to_errno()
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn del<T: Driver>(event: *mut bindings::perf_event, _flags: c_int) {
    // SAFETY: Perf core calls this for an event of this PMU.
    let (pmu, event) = unsafe { parts::<T>(event) };

    let Some(slot) = event.slot() else {
        return;
    };

    // SAFETY: Perf core deletes an event on its CPU with interrupts off, and this one has a slot.
    let on = unsafe { on_cpu_of(event) };

    halt(pmu, &on, event, slot);
    pmu.table(&on).clear(slot);
    pmu.del(&on, event, slot);
    event.update_userpage();
    event.set_slot(None);
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn start<T: Driver>(event: *mut bindings::perf_event, _flags: c_int) {
    // SAFETY: Perf core calls this for an event of this PMU.
    let (pmu, event) = unsafe { parts::<T>(event) };

    let Some(slot) = event.slot() else {
        return;
    };

    // SAFETY: Perf core starts an event on its CPU with interrupts off, and this one has a slot.
    let on = unsafe { on_cpu_of(event) };

    begin(pmu, &on, event, slot);
}

/// Starts an event.
#[inline(never)]
pub(super) fn begin<T: Driver>(pmu: &Pmu<T>, on: &OnCpu<'_>, event: &Event<T>, slot: Slot) {
    event.set_running();
    pmu.start(on, event, slot);
    event.update_userpage();
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn stop<T: Driver>(event: *mut bindings::perf_event, _flags: c_int) {
    // SAFETY: Perf core calls this for an event of this PMU.
    let (pmu, event) = unsafe { parts::<T>(event) };

    let Some(slot) = event.slot() else {
        return;
    };

    // SAFETY: Perf core stops an event on its CPU with interrupts off, and this one has a slot.
    let on = unsafe { on_cpu_of(event) };

    end(pmu, &on, event, slot);
}

/// Stops an event, unless it is stopped.
#[inline(never)]
pub(super) fn end<T: Driver>(pmu: &Pmu<T>, on: &OnCpu<'_>, event: &Event<T>, slot: Slot) {
    halt(pmu, on, event, slot);
}

/// Stops an event, unless it is stopped.
#[inline(always)]
fn halt<T: Driver>(pmu: &Pmu<T>, on: &OnCpu<'_>, event: &Event<T>, slot: Slot) {
    if !event.is_stopped() {
        pmu.stop(on, event, slot);
        event.set_stopped();
    }
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn read<T: Driver>(event: *mut bindings::perf_event) {
    // SAFETY: Perf core calls this for an event of this PMU.
    let (pmu, event) = unsafe { parts::<T>(event) };

    // Without a slot the event is not scheduled: an NMI can come while it is being added.
    let Some(slot) = event.slot() else {
        return;
    };

    // SAFETY: Perf core reads an event on its CPU with interrupts off, and this one has a slot. (It
    // would read events with PERF_EV_CAP_READ_* elsewhere; ours do not have that.)
    let on = unsafe { on_cpu_of(event) };

    pmu.read(&on, event, slot);
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn enable<T: Driver>(pmu: *mut bindings::pmu) {
    if T::HAS_ENABLE {
        // SAFETY: Perf core passes the PMU that was registered.
        let pmu = unsafe { Pmu::<T>::from_raw(pmu) };

        // SAFETY: Perf core enables a PMU with interrupts off.
        let on = unsafe { OnCpu::current() };

        pmu.enable(&on, &pmu.active(&on));
    }
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn disable<T: Driver>(pmu: *mut bindings::pmu) {
    if T::HAS_DISABLE {
        // SAFETY: Perf core passes the PMU that was registered.
        let pmu = unsafe { Pmu::<T>::from_raw(pmu) };

        // SAFETY: Perf core disables a PMU with interrupts off.
        let on = unsafe { OnCpu::current() };

        pmu.disable(&on, &pmu.active(&on));
    }
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn filter<T: Driver>(pmu: *mut bindings::pmu, cpu: c_int) -> bool {
    // SAFETY: Perf core passes the PMU that was registered.
    let pmu = unsafe { Pmu::<T>::from_raw(pmu) };

    // SAFETY: Perf core passes the number of the CPU that it runs on.
    pmu.filter(unsafe { CpuId::from_i32_unchecked(cpu) })
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn event_idx<T: Driver>(event: *mut bindings::perf_event) -> c_int {
    // SAFETY: Perf core calls this for an event of this PMU.
    let (pmu, event) = unsafe { parts::<T>(event) };

    // This may run on any CPU, while the event comes and goes.
    event
        .slot()
        .and_then(|slot| pmu.event_idx(event, slot))
        // User space gets the number plus one; zero stands for none.
        .map_or(0, |index| c_int::from(index) + 1)
}

/// # Safety
///
/// To be called by perf core only.
unsafe extern "C" fn check_period<T: Driver>(
    event: *mut bindings::perf_event,
    period: u64,
) -> c_int {
    // SAFETY: Perf core calls this for an event of this PMU.
    let (pmu, event) = unsafe { parts::<T>(event) };

    to_errno(pmu.check_period(event, period))
}
