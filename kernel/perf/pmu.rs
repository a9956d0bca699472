// SPDX-License-Identifier: GPL-2.0

//! A PMU: `struct pmu`, the driver's data, and which event is on which counter.

use super::{
    callbacks,
    Driver,
    Event, //
};
use crate::{
    bindings,
    percpu::{
        LocalCell,
        OnCpu,
        PerCpu, //
    },
    smp, //
};
use core::{
    convert::Infallible,
    marker::PhantomData,
    ops::Deref,
    ptr::null_mut, //
};
use kernel::{
    cpu::CpuId,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc, //
    },
    types::Opaque, //
};

/// A place for an event that counts: a counter of the hardware, or a number that the driver
/// chooses.
///
/// # Invariants
///
/// Below [`Slot::COUNT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u8);

impl Slot {
    /// How many slots a CPU has.
    pub const COUNT: u8 = 64;

    /// The slot with this number, if it is below [`Slot::COUNT`].
    #[inline]
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::COUNT {
            // INVARIANT: It was checked.
            Some(Self(number))
        } else {
            None
        }
    }

    #[inline]
    pub(super) fn from_raw(idx: i32) -> Option<Self> {
        u8::try_from(idx).ok().and_then(Self::new)
    }

    /// The number.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// A set with only this slot in it, see [`Active::set`].
    #[inline]
    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    #[inline]
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The events that have a slot on one CPU.
///
/// Only that CPU changes it, when perf adds or deletes an event, so an interrupt sees it unchanged
/// while it is handled. An NMI may come in the midst of a change. It finds an event there or not,
/// and an event that it finds is valid.
///
/// # Invariants
///
/// Each pointer is null or points to an event of the `Pmu<T>` that the table belongs to, which has
/// been added on this CPU and not deleted yet.
pub(super) struct Table<T: Driver> {
    events: [LocalCell<*mut Event<T>>; Slot::COUNT as usize],
    used: LocalCell<u64>,
    /// The slots of the events that [`Pmu::pause`] has stopped.
    paused: LocalCell<u64>,
}

impl<T: Driver> Table<T> {
    fn new() -> Self {
        // INVARIANT: All pointers are null.
        Self {
            events: core::array::from_fn(|_| LocalCell::new(null_mut())),
            used: LocalCell::new(0),
            paused: LocalCell::new(0),
        }
    }

    /// Puts an event, which is being added on the table's CPU, into a slot. Returns false, and
    /// leaves the table as it is, when the slot is taken.
    #[inline]
    pub(super) fn fill(&self, slot: Slot, event: &Event<T>) -> bool {
        let place = &self.events[slot.index()];

        if !place.load().is_null() {
            return false;
        }

        // INVARIANT: The event is being added; `clear()` is called before it is deleted.
        place.store(core::ptr::from_ref(event).cast_mut());
        self.used.store(self.used.load() | slot.bit());
        true
    }

    /// Takes the event out of a slot.
    #[inline]
    pub(super) fn clear(&self, slot: Slot) {
        self.used.store(self.used.load() & !slot.bit());
        self.events[slot.index()].store(null_mut());
    }
}

/// The events that have a slot on this CPU.
pub struct Active<'a, T: Driver> {
    table: &'a Table<T>,
    /// Neither `Send` nor `Sync`: it is about this CPU.
    _pmu: PhantomData<(&'a Pmu<T>, *mut ())>,
}

impl<'a, T: Driver> Active<'a, T> {
    /// The event in `slot`.
    #[inline]
    pub fn get(&self, slot: Slot) -> Option<&'a Event<T>> {
        // SAFETY: By the table's invariant the pointer is null or valid until the event is
        // deleted. That happens on this CPU with interrupts off, and `'a` is the time for which
        // our caller keeps them off.
        unsafe { self.table.events[slot.index()].load().as_ref() }
    }

    /// The slots that have an event, as a set of bits.
    #[inline]
    pub fn set(&self) -> u64 {
        self.table.used.load()
    }

    /// Whether no slot has an event.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.set() == 0
    }

    /// Goes through the events, by ascending slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &'a Event<T>)> + '_ {
        (0..Slot::COUNT)
            .filter_map(Slot::new)
            .filter_map(|slot| Some((slot, self.get(slot)?)))
    }
}

/// A PMU with the driver's data `T`, to which it dereferences.
///
/// It is made with [`Pmu::new`] and then [registered](super::register). It may outlive the
/// registration: whoever needs it, such as an interrupt handler, holds an [`Arc`] of it.
///
/// # Invariants
///
/// - `raw` is only changed by perf core, and by `Registration` when perf core does not know it.
/// - While `state` is [`REGISTERED`], perf core knows it.
#[pin_data]
#[repr(C)]
pub struct Pmu<T: Driver> {
    #[pin]
    raw: Opaque<bindings::pmu>,
    state: Atomic<u32>,
    table: PerCpu<Table<T>>,
    #[pin]
    data: T,
}

// SAFETY: The driver's data is `Send`; perf core uses `raw` from any thread.
unsafe impl<T: Driver> Send for Pmu<T> {}

// SAFETY: The driver's data is `Sync`; perf core synchronises its use of `raw`, and our own code
// only reads there what does not change while perf core knows it.
unsafe impl<T: Driver> Sync for Pmu<T> {}

/// Perf core does not know the PMU.
const FREE: u32 = 0;
/// It is being registered or unregistered.
const BUSY: u32 = 1;
/// Perf core knows the PMU.
const REGISTERED: u32 = 2;

impl<T: Driver> Deref for Pmu<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.data
    }
}

impl<T: Driver> Pmu<T> {
    /// Makes a PMU, which perf core does not know yet, with the driver's data.
    pub fn new<E>(data: impl PinInit<T, E>) -> Result<Arc<Self>>
    where
        Error: From<E>,
    {
        let table = PerCpu::new::<_, Infallible>(|_cpu| Table::new())?;

        Arc::pin_init::<Error>(
            try_pin_init!(Self {
                raw <- Opaque::zeroed(),
                state: Atomic::new(FREE),
                table,
                data <- data,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// `ptr` must come from [`Pmu::as_raw`], and the `Pmu` must live during `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::pmu) -> &'a Self {
        // SAFETY: `raw` is the first field of a `repr(C)` struct; the caller vouches for the rest.
        unsafe { &*ptr.cast() }
    }

    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::pmu {
        self.raw.get()
    }

    /// The events that have a slot on this CPU.
    #[inline]
    pub fn active<'a>(&'a self, on: &'a OnCpu<'_>) -> Active<'a, T> {
        Active {
            table: self.table.get(on),
            _pmu: PhantomData,
        }
    }

    /// Stops the events that count on this CPU, whose counters are about to lose what they hold,
    /// until [`Pmu::resume`].
    pub fn pause(&self, on: &OnCpu<'_>) {
        let mut paused = 0;

        for (slot, event) in self.active(on).iter() {
            if !event.is_stopped() {
                callbacks::end(self, on, event, slot);
                paused |= slot.bit();
            }
        }
        self.table(on).paused.store(paused);
    }

    /// Starts the events again that [`Pmu::pause`] has stopped.
    pub fn resume(&self, on: &OnCpu<'_>) {
        let paused = self.table(on).paused.load();

        for (slot, event) in self.active(on).iter() {
            if paused & slot.bit() != 0 {
                callbacks::begin(self, on, event, slot);
            }
        }
        self.table(on).paused.store(0);
    }

    #[inline]
    pub(super) fn table<'a>(&'a self, on: &'a OnCpu<'_>) -> &'a Table<T> {
        self.table.get(on)
    }

    /// Moves all events that are limited to the CPU `from` to the CPU `to`, as the PMU of a whole
    /// system does when the CPU that looks after it goes off line
    /// ([`cpuhp::Callbacks::offline`](crate::cpuhp::Callbacks::offline)). May sleep.
    ///
    /// Does nothing when the two are the same, or when `to` is not on line.
    pub fn migrate(&self, from: CpuId, to: CpuId) {
        let sensible = from != to && smp::possible().test(from) && smp::online().test(to);

        if sensible && self.state.load(Acquire) == REGISTERED {
            // SAFETY: `raw` lives as long as `self`. Should perf core forget the PMU meanwhile, then
            // not before the events that this finds are moved: to revoke an event perf core takes
            // the lock of its context, which this holds. Both CPUs are possible ones, and not the
            // same, so their contexts exist and can be locked one after the other.
            unsafe { bindings::perf_pmu_migrate_context(self.as_raw(), from.into(), to.into()) };
        }
    }

    /// Claims the right to change `raw`. Fails with [`EBUSY`] if perf core knows it.
    pub(super) fn claim(&self) -> Result {
        match self.state.cmpxchg(FREE, BUSY, Full) {
            Ok(_) => Ok(()),
            Err(_) => Err(EBUSY),
        }
    }

    pub(super) fn set_registered(&self) {
        self.state.store(REGISTERED, Release);
    }

    pub(super) fn set_unregistering(&self) {
        self.state.store(BUSY, Release);
    }

    pub(super) fn set_free(&self) {
        self.state.store(FREE, Release);
    }
}
