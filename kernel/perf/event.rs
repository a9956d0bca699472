// SPDX-License-Identifier: GPL-2.0

//! Events of a PMU.

use super::{
    period::{
        CounterWidth,
        Period,
        Round, //
    },
    Attr,
    Driver,
    Pmu,
    SampleData,
    Slot, //
};
use crate::{
    bindings,
    smp, //
};
use core::{
    marker::PhantomData,
    ops::Deref,
    sync::atomic::{
        AtomicI32,
        AtomicI64,
        AtomicU64,
        Ordering::Relaxed, //
    },
};
use kernel::{
    cpu::CpuId,
    ffi::c_int,
    prelude::*,
    types::Opaque, //
};

/// An event of a [`Pmu<T>`].
///
/// A reference lasts for a callback only: perf core may free the event later.
///
/// An event is used on one CPU at a time, but an NMI can come at any moment, and others look at its
/// count. So what changes is accessed with atomic operations, as C does with `local64_t`. They need
/// no order: the CPU sees its own accesses in program order.
///
/// # Invariants
///
/// - The memory is a valid `struct perf_event` whose `pmu` is a [`Pmu<T>`].
/// - `hw` is used as a hardware event's (the first variant of the union), and what is in it was set
///   by [`NewEvent`] or by `super::callbacks`.
#[repr(transparent)]
pub struct Event<T: Driver>(Opaque<bindings::perf_event>, PhantomData<fn() -> Pmu<T>>);

/// The atomic view of a field of the struct that `base` points to, a part of a valid event.
macro_rules! atomic {
    ($base:expr, $atomic:ty, $field:ident) => {{
        // SAFETY: By `Event`'s invariant the event is valid for as long as the reference to it.
        let field = unsafe { &raw mut (*$base).$field };

        // SAFETY: The field has the size and the alignment of the atomic; perf core accesses it
        // with single instructions, or when no callback can run.
        unsafe { <$atomic>::from_ptr(field.cast()) }
    }};
}

/// Reads a field, which does not change after `event_init`, of the struct that `base` points to, a
/// part of a valid event.
macro_rules! constant {
    ($base:expr, $field:ident) => {{
        // SAFETY: By `Event`'s invariant the event is valid for as long as the reference to it, and
        // the field is no longer written once it is shared.
        unsafe { (&raw const (*$base).$field).read() }
    }};
}

impl<T: Driver> Event<T> {
    /// # Safety
    ///
    /// During `'a`, `ptr` must point to an event for which the type invariants hold.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::perf_event) -> &'a Self {
        // SAFETY: The caller vouches for `ptr`, and the type is transparent.
        unsafe { &*ptr.cast() }
    }

    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::perf_event {
        self.0.get()
    }

    #[inline]
    fn hw(&self) -> *mut bindings::hw_perf_event {
        // SAFETY: By the type invariant the event is valid.
        unsafe { &raw mut (*self.as_raw()).hw }
    }

    /// The part of `hw` for hardware events: the first variant of a union.
    #[inline]
    fn hardware(&self) -> *mut bindings::hw_perf_event__bindgen_ty_1__bindgen_ty_1 {
        // SAFETY: By the type invariant the event is valid.
        unsafe { (&raw mut (*self.hw()).__bindgen_anon_1).cast() }
    }

    /// The part of `hw` for periods: the first variant of a union.
    #[inline]
    fn sampling(&self) -> *mut bindings::hw_perf_event__bindgen_ty_2__bindgen_ty_1 {
        // SAFETY: By the type invariant the event is valid.
        unsafe { (&raw mut (*self.hw()).__bindgen_anon_2).cast() }
    }

    /// The PMU that the event belongs to.
    #[inline]
    pub(super) fn raw_pmu(&self) -> *mut bindings::pmu {
        constant!(self.as_raw(), pmu)
    }

    /// What user space asked for.
    pub fn attr(&self) -> &Attr {
        let event = self.0.get();

        // SAFETY: By the type invariant the event is valid for as long as the reference to it.
        unsafe { Attr::from_raw(&raw const (*event).attr) }
    }

    /// Whether user space asked for an event by this PMU's own type.
    pub fn is_own_type(&self) -> bool {
        // SAFETY: By the type invariant `pmu` is valid; the number is set before there are events.
        let own = unsafe { (&raw const (*self.raw_pmu()).type_).read() };

        u32::try_from(own) == Ok(self.attr().raw_type())
    }

    /// Whether the event follows a task, and so may be scheduled on any CPU.
    pub fn is_task(&self) -> bool {
        let event = self.0.get();

        // SAFETY: By the type invariant the event is valid. Perf core sets other bits later.
        let state = unsafe { (&raw const (*event).attach_state).read_volatile() };

        state & bindings::PERF_ATTACH_TASK != 0
    }

    /// The CPU that the event is limited to, if it is.
    pub fn cpu(&self) -> Option<CpuId> {
        let event = self.0.get();

        // SAFETY: By the type invariant the event is valid. Perf core changes the CPU when events
        // are migrated.
        CpuId::from_i32(unsafe { (&raw const (*event).cpu).read_volatile() })
    }

    /// Whether the event takes samples.
    pub fn is_sampling(&self) -> bool {
        self.attr().sample_period() != 0
    }

    /// Whether samples contain the last branches.
    pub fn has_branch_stack(&self) -> bool {
        let wanted = u64::from(bindings::perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK);

        self.attr().sample_type() & wanted != 0
    }

    /// Whether the event can be scheduled as it is now. If not, it does not need a counter.
    pub fn can_run(&self) -> bool {
        let event = self.0.get();

        // SAFETY: By the type invariant the event is valid. Perf core may change the state.
        let state = unsafe { (&raw const (*event).state).read_volatile() };

        match state {
            bindings::perf_event_state_PERF_EVENT_STATE_OFF => self.attr().enable_on_exec(),
            state => state > bindings::perf_event_state_PERF_EVENT_STATE_OFF,
        }
    }

    /// The driver's own number, see [`NewEvent::set_config`].
    #[inline]
    pub fn config(&self) -> u64 {
        constant!(self.hardware(), config)
    }

    /// The driver's own number, see [`NewEvent::set_config_base`].
    #[inline]
    pub fn config_base(&self) -> usize {
        constant!(self.hardware(), config_base)
    }

    /// The driver's own number, see [`NewEvent::set_event_base`].
    #[inline]
    pub fn event_base(&self) -> usize {
        constant!(self.hardware(), event_base)
    }

    /// The architecture's and the driver's flags, see [`NewEvent::set_flags`].
    #[inline]
    pub fn flags(&self) -> u32 {
        // The bits as they are, whatever sign C gives them.
        constant!(self.hardware(), flags) as u32
    }

    /// The period that ends with the next sample.
    #[inline]
    pub fn last_period(&self) -> u64 {
        atomic!(self.sampling(), AtomicU64, last_period).load(Relaxed)
    }

    /// Adds to the count what the counter has counted since it was last looked at.
    ///
    /// `read` returns the counter's value; it is called again when an NMI came in between. Returns
    /// the last value.
    #[inline(always)]
    pub fn update(&self, width: CounterWidth, read: impl Fn() -> u64) -> u64 {
        let previous = atomic!(self.hw(), AtomicU64, prev_count);

        let (earlier, later) = loop {
            let earlier = previous.load(Relaxed);
            let later = read();

            // As `set_period()` wrote it: the page that user space maps is computed from it, where
            // the counter is signed.
            if previous
                .compare_exchange_weak(earlier, width.imagined(later), Relaxed, Relaxed)
                .is_ok()
            {
                break (earlier, later);
            }
        };

        let events = width.events_between(earlier, later);
        self.count(events);
        self.period_left().fetch_sub(events as i64, Relaxed);
        later
    }

    /// Does what [`update`](Self::update) does, with less effort, when no NMI can update the event
    /// in between: in the handler of the counter's overflows, or while the counter stands still and
    /// cannot overflow.
    ///
    /// Should one do it nevertheless, then some events are counted twice or not at all.
    #[inline(always)]
    pub fn update_undisturbed(&self, width: CounterWidth, value: u64) {
        let previous = atomic!(self.hw(), AtomicU64, prev_count);
        let events = width.events_between(previous.load(Relaxed), value);
        let left = self.period_left();

        previous.store(value, Relaxed);
        // Somebody may reset it on another CPU.
        self.count(events);
        left.store(left.load(Relaxed).wrapping_sub(events as i64), Relaxed);
    }

    /// Adds to the count `events` that were counted in some other way than by a counter.
    #[inline]
    pub fn count(&self, events: u64) {
        atomic!(self.as_raw(), AtomicU64, count).fetch_add(events, Relaxed);
    }

    /// Prepares an event that [starts](Driver::start) for what is left of its period.
    ///
    /// Returns what the counter has to be set to: the value of an imagined counter of 64 bits,
    /// which overflows when the counter is to do so; a counter of fewer bits takes the low ones.
    #[inline(always)]
    #[must_use]
    pub fn set_period(&self, width: CounterWidth) -> u64 {
        let left = self.period_left().load(Relaxed);

        let start = if left > 0 && left as u64 <= width.max_round() {
            (left as u64).wrapping_neg()
        } else {
            self.plan(width).start
        };

        atomic!(self.hw(), AtomicU64, prev_count).store(start, Relaxed);
        start
    }

    /// Prepares an event for the next round of its counter, after an overflow, and tells user
    /// space.
    ///
    /// Returns what the counter has to be set to, as [`set_period`](Self::set_period) does, and the
    /// sample that is due if the period has elapsed.
    #[inline(always)]
    #[must_use]
    pub fn next_period(&self, width: CounterWidth) -> (u64, Option<SampleData>) {
        let last = self.last_period();
        let left = self.period_left().load(Relaxed);
        // Perf core keeps periods below 2^63.
        let period = atomic!(self.hw(), AtomicI64, sample_period).load(Relaxed);
        let next = left.wrapping_add(period);

        let (elapsed, start) = if left <= 0 && next > 0 && next as u64 <= width.max_round() {
            self.begin_period(period, next);
            (Period::Elapsed, (next as u64).wrapping_neg())
        } else {
            let round = self.plan(width);
            (round.period, round.start)
        };

        atomic!(self.hw(), AtomicU64, prev_count).store(start, Relaxed);
        self.update_userpage();

        let sample = match elapsed {
            Period::Elapsed => Some(SampleData::new(last)),
            Period::Running => None,
        };
        (start, sample)
    }

    /// Plans the next round in all generality. It keeps what is rare out of the way of what is not.
    #[cold]
    #[inline(never)]
    fn plan(&self, width: CounterWidth) -> Round {
        let period = atomic!(self.hw(), AtomicI64, sample_period).load(Relaxed);
        let round = Round::next(self.period_left().load(Relaxed), period, width);

        if round.period == Period::Elapsed {
            self.begin_period(period, round.left);
        }
        round
    }

    /// Notes that a period has begun, of which `left` events are left.
    #[inline]
    fn begin_period(&self, period: i64, left: i64) {
        self.period_left().store(left, Relaxed);
        atomic!(self.sampling(), AtomicI64, last_period).store(period, Relaxed);
    }

    /// Starts counting at `value` of a counter that runs freely and cannot be written.
    ///
    /// Such a counter cannot be told when to overflow: its event does not sample, and it has to be
    /// read before the counter comes round.
    #[inline]
    pub fn count_from(&self, value: u64) {
        atomic!(self.hw(), AtomicU64, prev_count).store(value, Relaxed);
    }

    /// Tells user space, if it has mapped the event, what changed.
    #[inline]
    pub(super) fn update_userpage(&self) {
        // SAFETY: By the type invariant the event is valid.
        unsafe { bindings::perf_event_update_userpage(self.as_raw()) };
    }

    #[inline]
    fn period_left(&self) -> &AtomicI64 {
        atomic!(self.sampling(), AtomicI64, period_left)
    }

    /// The counter that the event is on, if it is on one.
    #[inline]
    pub(super) fn slot(&self) -> Option<Slot> {
        let idx = atomic!(self.hardware(), AtomicI32, idx).load(Relaxed);

        Slot::from_raw(idx)
    }

    #[inline]
    pub(super) fn set_slot(&self, slot: Option<Slot>) {
        let idx = slot.map_or(-1, |slot| i32::from(slot.number()));

        atomic!(self.hardware(), AtomicI32, idx).store(idx, Relaxed);
    }

    /// Whether the event is on a counter that does not run (`PERF_HES_STOPPED`): perf core has
    /// stopped it and will start it again, as it does when it throttles events.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        atomic!(self.hw(), AtomicI32, state).load(Relaxed) & STOPPED != 0
    }

    #[inline]
    pub(super) fn set_running(&self) {
        atomic!(self.hw(), AtomicI32, state).store(0, Relaxed);
    }

    #[inline]
    pub(super) fn set_stopped(&self) {
        atomic!(self.hw(), AtomicI32, state).store(STOPPED | UPTODATE, Relaxed);
    }

    /// The CPU that the event is scheduled on, if it is.
    #[inline]
    pub(super) fn oncpu(&self) -> c_int {
        atomic!(self.as_raw(), AtomicI32, oncpu).load(Relaxed)
    }
}

const STOPPED: c_int = bindings::PERF_HES_STOPPED as c_int;
const UPTODATE: c_int = bindings::PERF_HES_UPTODATE as c_int;

/// An event that is being opened: nobody else knows it yet, so it can be set up.
///
/// # Invariants
///
/// No one else accesses the event while this exists, other than its count and state.
pub struct NewEvent<'a, T: Driver>(&'a Event<T>);

impl<T: Driver> Deref for NewEvent<'_, T> {
    type Target = Event<T>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// Sets a field of the struct that `base` points to, a part of a new event.
macro_rules! set {
    ($base:expr, $value:expr, $field:ident) => {{
        // SAFETY: By the invariants of `Event` and `NewEvent` the event is valid and not shared.
        unsafe { (&raw mut (*$base).$field).write($value) }
    }};
}

impl<'a, T: Driver> NewEvent<'a, T> {
    /// Makes an event of it that has no counter, no configuration and no flags.
    ///
    /// # Safety
    ///
    /// `ptr` must be the event that perf core passed to `event_init` of a [`Pmu<T>`], and `'a` must
    /// end before `event_init` returns.
    pub(super) unsafe fn from_raw(ptr: *mut bindings::perf_event) -> Self {
        // SAFETY: Perf core has set `pmu` to the one whose `event_init` it calls, and `hw` is
        // zeroed memory.
        // INVARIANT: Perf core puts the event into a context after `event_init` returns.
        let mut this = Self(unsafe { Event::from_raw(ptr) });

        this.set_slot(None);
        this.set_flags(0);
        this.set_config(0);
        this.set_config_base(0);
        this.set_event_base(0);
        this
    }

    /// Keeps a number for the driver.
    pub fn set_config(&mut self, config: u64) {
        set!(self.hardware(), config, config);
    }

    /// Keeps a number for the driver; by custom what selects the event in the hardware.
    pub fn set_config_base(&mut self, config_base: usize) {
        set!(self.hardware(), config_base, config_base);
    }

    /// Keeps a number for the driver.
    pub fn set_event_base(&mut self, event_base: usize) {
        set!(self.hardware(), event_base, event_base);
    }

    /// Sets the flags. Those in `PERF_EVENT_FLAG_ARCH` belong to the architecture, which may look
    /// at them when it fills the page that user space maps; the others to perf core.
    pub fn set_flags(&mut self, flags: u32) {
        // The bits as they are, whatever sign C gives them.
        set!(self.hardware(), flags as i32, flags);
    }

    /// Moves an event that is limited to a CPU to another one, as a PMU of the whole system does
    /// whose events all live on one CPU.
    ///
    /// Fails with [`EINVAL`] when there can be no such CPU.
    pub fn set_cpu(&mut self, to: CpuId) -> Result {
        // Perf core uses the number without a check, and `CpuId` allows for holes.
        if !smp::possible().test(to) {
            return Err(EINVAL);
        }

        set!(self.as_raw(), i32::from(to), cpu);
        Ok(())
    }

    /// Gives an event that does not sample the period after which its counter is looked at in
    /// time: half of the counter's range.
    pub fn set_default_period(&mut self, width: CounterWidth) {
        if self.is_sampling() {
            return;
        }

        let period = width.max_round();
        set!(self.hw(), period, sample_period);
        set!(self.sampling(), period, last_period);
        // At most 2^63 - 1.
        self.period_left().store(period as i64, Relaxed);
    }

    /// The members of the group that the event will belong to: the leader, those that are in the
    /// group already, and the event itself.
    pub fn group(&self) -> Group<'_, T> {
        let this = self.0.as_raw();

        // SAFETY: The event is valid, and so is its leader, which may be the event itself.
        let leader = unsafe { (&raw const (*this).group_leader).read() };

        Group {
            event: self,
            leader,
            next: Next::Leader,
        }
    }
}

/// A member of a group.
pub enum Member<'a, T: Driver> {
    /// An event of the same PMU.
    Own(&'a Event<T>),
    /// A software event, which takes no counter.
    Software,
    /// An event of another PMU.
    Other,
}

/// Goes through the members of a group.
///
/// # Invariants
///
/// - Perf core holds the lock of the leader's context while this exists, if the leader is another
///   event.
/// - `next` is `Leader`, `End`, or a node of the leader's list of siblings.
pub struct Group<'a, T: Driver> {
    event: &'a Event<T>,
    leader: *mut bindings::perf_event,
    next: Next,
}

enum Next {
    Leader,
    Sibling(*mut bindings::list_head),
    End,
}

impl<'a, T: Driver> Group<'a, T> {
    /// # Safety
    ///
    /// `event` must be a valid event for as long as the group's lock is held.
    unsafe fn member(&self, event: *mut bindings::perf_event) -> Member<'a, T> {
        // SAFETY: `event` is valid; the fields are set when an event is created, and `pmu` is
        // cleared under the lock that is held.
        let (caps, pmu) = unsafe {
            (
                (&raw const (*event).event_caps).read_volatile(),
                (&raw const (*event).pmu).read_volatile(),
            )
        };

        if caps & bindings::PERF_EV_CAP_SOFTWARE != 0 {
            Member::Software
        } else if pmu == self.event.raw_pmu() {
            // SAFETY: It is an event of the same PMU, which `event_init` has accepted; it stays
            // in the group until the lock is released, after `'a`.
            Member::Own(unsafe { Event::from_raw(event) })
        } else {
            Member::Other
        }
    }
}

impl<'a, T: Driver> Iterator for Group<'a, T> {
    type Item = Member<'a, T>;

    fn next(&mut self) -> Option<Self::Item> {
        let this = self.event.as_raw();

        let node = match self.next {
            Next::Leader if self.leader == this => {
                self.next = Next::End;
                return Some(Member::Own(self.event));
            }
            Next::Leader => {
                // SAFETY: The leader is valid, and its siblings' lock is held.
                let first = unsafe { (&raw const (*self.leader).sibling_list.next).read() };
                self.next = Next::Sibling(first);

                // SAFETY: The leader is valid.
                return Some(unsafe { self.member(self.leader) });
            }
            Next::Sibling(node) => node,
            Next::End => return None,
        };

        // SAFETY: The leader is valid.
        let head = unsafe { &raw mut (*self.leader).sibling_list };
        if node == head {
            self.next = Next::End;
            return Some(Member::Own(self.event));
        }

        // SAFETY: By the type invariant `node` is in the list, so it is part of a valid event, and
        // nobody changes the list.
        let (sibling, next) = unsafe {
            (
                kernel::container_of!(node, bindings::perf_event, sibling_list),
                (*node).next,
            )
        };
        self.next = Next::Sibling(next);

        // SAFETY: As above.
        Some(unsafe { self.member(sibling) })
    }
}
