// SPDX-License-Identifier: GPL-2.0

//! Performance monitoring units.
//!
//! A driver for a PMU implements [`Driver`], makes a [`Pmu`] of its data, and [registers](register)
//! it with the device that it is bound to. Perf core then calls the driver back:
//!
//! | callback                       | context                                          |
//! | ------------------------------ | ------------------------------------------------ |
//! | `event_init`                   | process, may sleep; the event is not shared      |
//! | `add`, `del`, `start`          | interrupts off, on the event's CPU, PMU disabled |
//! | `stop`                         | the same, but the PMU may be enabled             |
//! | `read`                         | interrupts off, on the event's CPU               |
//! | `enable`, `disable`, `filter`  | interrupts off                                   |
//! | `event_idx`                    | any, on any CPU                                  |
//! | `check_period`                 | process                                          |
//!
//! With interrupts that may be NMIs, `stop` and `start` can also run in them, when perf core
//! throttles an event. So a driver shares per-CPU data with itself: see [`crate::percpu`].
//!
//! Each event that is added gets a [`Slot`]. This module remembers which event is in which slot of
//! which CPU, so a driver keeps no references to events: an interrupt handler asks for the
//! [active](Pmu::active) ones.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)
//!
//! # Examples
//!
//! A PMU that all CPUs share, and that counts how often it was looked at. Its events live on one
//! CPU, and it has no interrupt.
//!
//! ```
//! use kernel::{
//!     device::{
//!         Bound,
//!         Device, //
//!     },
//!     percpu::OnCpu,
//!     perf::{
//!         self,
//!         sysfs::{
//!             ConfigWord,
//!             EventAttr,
//!             FormatAttr, //
//!         },
//!         Active,
//!         Capabilities,
//!         CounterWidth,
//!         Event,
//!         NewEvent,
//!         Pmu,
//!         Slot,
//!         TaskContext, //
//!     },
//!     sync::atomic::{
//!         Atomic,
//!         Relaxed, //
//!     }, //
//! };
//!
//! struct Looks(Atomic<u64>);
//!
//! impl Looks {
//!     fn counter(&self) -> u64 {
//!         self.0.fetch_add(1, Relaxed)
//!     }
//! }
//!
//! #[vtable]
//! impl perf::Driver for Looks {
//!     const TASK_CONTEXT: TaskContext = TaskContext::System;
//!     const CAPABILITIES: Capabilities = Capabilities::NO_INTERRUPT.and(Capabilities::NO_EXCLUDE);
//!     const EVENTS: &'static [EventAttr] = &[EventAttr::new(c"looks", 1)];
//!     const FORMAT: &'static [FormatAttr] =
//!         &[FormatAttr::new(c"event", ConfigWord::Config, 0, 7)];
//!
//!     fn event_init(&self, event: &mut NewEvent<'_, Self>) -> Result {
//!         if !event.is_own_type() {
//!             return Err(ENOENT);
//!         }
//!         if event.is_sampling() || event.is_task() {
//!             return Err(EOPNOTSUPP);
//!         }
//!         match event.attr().field(&Self::FORMAT[0]) {
//!             1 => Ok(()),
//!             _ => Err(EINVAL),
//!         }
//!     }
//!
//!     fn add(
//!         &self,
//!         _cpu: &OnCpu<'_>,
//!         _event: &Event<Self>,
//!         _active: &Active<'_, Self>,
//!     ) -> Result<Slot> {
//!         Slot::new(0).ok_or(ENOSPC)
//!     }
//!
//!     fn start(&self, _cpu: &OnCpu<'_>, event: &Event<Self>, _slot: Slot) {
//!         self.0.store(event.set_period(CounterWidth::BITS_64), Relaxed);
//!     }
//!
//!     fn stop(&self, _cpu: &OnCpu<'_>, event: &Event<Self>, _slot: Slot) {
//!         event.update(CounterWidth::BITS_64, || self.counter());
//!     }
//!
//!     fn read(&self, _cpu: &OnCpu<'_>, event: &Event<Self>, _slot: Slot) {
//!         event.update(CounterWidth::BITS_64, || self.counter());
//!     }
//! }
//!
//! # #[allow(dead_code)]
//! fn probe(dev: &Device<Bound>) -> Result {
//!     let pmu = Pmu::new(Looks(Atomic::new(0)))?;
//!
//!     perf::register(dev, &pmu, c"looks", Capabilities::NONE)
//! }
//! ```

mod attr;
mod callbacks;
mod event;
mod period;
mod pmu;
mod registration;
mod sample;
pub mod sysfs;
mod task;
mod tests;

pub use self::{
    attr::{
        Attr,
        EventType, //
    },
    event::{
        Event,
        Group,
        Member,
        NewEvent, //
    },
    period::CounterWidth,
    pmu::{
        Active,
        Pmu,
        Slot, //
    },
    registration::register,
    sample::{
        clock,
        handle_interrupt,
        SampleData, //
    },
    task::task_reads_counters,
};

use self::sysfs::{
    Attribute,
    EventAttr,
    FormatAttr, //
};
use crate::{
    bindings,
    percpu::OnCpu, //
};
use kernel::{
    cpu::CpuId,
    error::VTABLE_DEFAULT_ERROR,
    ffi::c_int,
    prelude::*, //
};

/// What a driver for a PMU does.
#[vtable]
pub trait Driver: Send + Sync + Sized + 'static {
    /// What events can be asked to follow.
    const TASK_CONTEXT: TaskContext;

    /// What is special about the PMU.
    const CAPABILITIES: Capabilities = Capabilities::NONE;

    /// The files in the folder `events`.
    const EVENTS: &'static [EventAttr] = &[];

    /// The files in the folder `format`.
    const FORMAT: &'static [FormatAttr] = &[];

    /// The files in the folder `caps`.
    const CAPS: &'static [Attribute<Self>] = &[];

    /// The files in the PMU's own folder.
    const PLAIN: &'static [Attribute<Self>] = &[];

    /// Whether the file of an event is there.
    fn event_visible(&self, event: &EventAttr) -> bool {
        let _ = event;
        true
    }

    /// Whether the file of a field is there.
    fn format_visible(&self, field: &FormatAttr) -> bool {
        let _ = field;
        true
    }

    /// Looks at an event that is being opened, and sets it up.
    ///
    /// The error tells perf core what to do: after [`ENOENT`] it may ask other PMUs about an event
    /// that is not of this one's [own type](Event::is_own_type); others are passed to user space.
    /// [`EINVAL`] is for nonsense, [`EOPNOTSUPP`] for what this PMU cannot do, [`EACCES`] for
    /// missing rights.
    fn event_init(&self, event: &mut NewEvent<'_, Self>) -> Result;

    /// Reserves a slot of this CPU for an event. It is started later, if at all.
    ///
    /// The slot must be free: not in the [set](Active::set) of those that are `active` already. Any
    /// error makes perf core try again when other events have left.
    fn add(&self, cpu: &OnCpu<'_>, event: &Event<Self>, active: &Active<'_, Self>) -> Result<Slot>;

    /// Forgets an event, which has been stopped, and whose slot is free already.
    fn del(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
        let _ = (cpu, event, slot);
    }

    /// Sets the [period](Event::set_period) of an event and lets it count.
    fn start(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot);

    /// Keeps an event from counting on, and [updates](Event::update) its count.
    ///
    /// The PMU may be enabled: the overflow of a software event can throttle the group that it
    /// shares with an event of this PMU.
    fn stop(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot);

    /// [Updates](Event::update) the count of an event.
    fn read(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot);

    /// Lets the events of this CPU count, after [`Driver::disable`].
    fn enable(&self, cpu: &OnCpu<'_>, active: &Active<'_, Self>) {
        let _ = (cpu, active);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Keeps all events of this CPU from counting while perf core makes changes, so that those of
    /// a group begin and end at the same time.
    fn disable(&self, cpu: &OnCpu<'_>, active: &Active<'_, Self>) {
        let _ = (cpu, active);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Whether to leave the events alone on `cpu`, because the PMU is not there.
    fn filter(&self, cpu: CpuId) -> bool {
        let _ = cpu;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The number of the counter by which user space can read the event itself.
    fn event_idx(&self, event: &Event<Self>, slot: Slot) -> Option<u8> {
        let _ = (event, slot);
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Refuses a period that user space wants to set for an event that is open.
    fn check_period(&self, event: &Event<Self>, period: u64) -> Result {
        let _ = (event, period);
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// What events of a PMU can follow (`pmu::task_ctx_nr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskContext {
    /// A CPU or a task: the PMU belongs to the CPUs.
    Hardware,
    /// A CPU that stands for the whole system or a part of it.
    System,
}

impl TaskContext {
    const fn as_raw(self) -> c_int {
        match self {
            Self::Hardware => bindings::perf_event_task_context_perf_hw_context,
            Self::System => bindings::perf_event_task_context_perf_invalid_context,
        }
    }
}

/// What is special about a PMU (`pmu::capabilities`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u32);

impl Capabilities {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The PMU has no interrupt, so perf core refuses events that sample.
    pub const NO_INTERRUPT: Self = Self(bindings::PERF_PMU_CAP_NO_INTERRUPT);
    /// The interrupts of the PMU are not NMIs even where there are such.
    pub const NO_NMI: Self = Self(bindings::PERF_PMU_CAP_NO_NMI);
    /// Samples may contain registers beyond the general ones.
    pub const EXTENDED_REGS: Self = Self(bindings::PERF_PMU_CAP_EXTENDED_REGS);
    /// The PMU has no exclude flags, so perf core refuses events that have one.
    pub const NO_EXCLUDE: Self = Self(bindings::PERF_PMU_CAP_NO_EXCLUDE);
    /// Generic hardware and cache events may name this PMU in the upper half of `config`.
    pub const EXTENDED_HW_TYPE: Self = Self(bindings::PERF_PMU_CAP_EXTENDED_HW_TYPE);

    /// Both of these.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn as_raw(self) -> c_int {
        // The bits are low ones.
        self.0 as c_int
    }
}
