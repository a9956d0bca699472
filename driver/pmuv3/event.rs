// SPDX-License-Identifier: GPL-2.0

//! From a `perf_event_attr` to what the driver keeps in an event, and back.
//!
//! `hw.config` holds the value for PMEVTYPER<n>_EL0, `hw.flags` the rest.

use kernel::prelude::*;

use crate::{
    events::{
        Selection,
        Target,
        Wish, //
    },
    evtyper::{
        Exclude,
        KernelLevel,
        Pmevtyper, //
    },
    layout::{
        Length,
        Need,
        Reader, //
    },
    perf::{
        CounterWidth,
        Event,
        EventType,
        NewEvent, //
    },
    pmu::Pmuv3,
    refusal::Refusal,
    sysfs, //
};

/// The event has 64 bits: C's `ARMPMU_EVT_64BIT`. `arch_perf_update_userpage()` reads it.
const LONG: u32 = 1 << 0;

/// The event is for guests alone, which this kernel, not being the hypervisor, cannot tell from
/// itself by a filter: its counter is left for the hypervisor to enable.
const GUEST_ONLY: u32 = 1 << 3;

/// User space may read the counter: C's `PERF_EVENT_FLAG_USER_READ_CNT`. Perf core and
/// `arch_perf_update_userpage()` read it.
const USER_READ: u32 = 1 << 31;

/// Who enables the counter of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnabledBy {
    /// This driver, when the event starts.
    Driver,
    /// The hypervisor, when it enters a guest.
    Hypervisor,
}

/// What the driver keeps in an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    /// What the event needs from a counter.
    pub(crate) need: Need,
    /// Who enables its counter.
    pub(crate) enabled_by: EnabledBy,
}

impl Stored {
    /// Writes it into an event that is being opened.
    pub(crate) fn store(self, event: &mut NewEvent<'_, Pmuv3>) {
        let flag = |set, flag| if set { flag } else { 0 };

        event.set_config(self.need.typer.bits());
        event.set_flags(
            flag(self.need.length == Length::Bits64, LONG)
                | flag(self.need.reader == Reader::User, USER_READ)
                | flag(self.enabled_by == EnabledBy::Hypervisor, GUEST_ONLY),
        );
    }

    /// Returns whether an event has 64 bits or is read by user space: such events may occupy more
    /// than the counter of their slot, or have to be told from others.
    #[inline]
    pub(crate) fn is_special(event: &Event<Pmuv3>) -> bool {
        event.flags() & (LONG | USER_READ) != 0
    }

    /// Reads it from an event that has been opened.
    #[inline]
    pub(crate) fn load(event: &Event<Pmuv3>) -> Self {
        let flags = event.flags();

        Self {
            need: Need {
                typer: Pmevtyper::from_bits(event.config()),
                length: if flags & LONG != 0 {
                    Length::Bits64
                } else {
                    Length::Bits32
                },
                reader: if flags & USER_READ != 0 {
                    Reader::User
                } else {
                    Reader::Kernel
                },
            },
            enabled_by: if flags & GUEST_ONLY != 0 {
                EnabledBy::Hypervisor
            } else {
                EnabledBy::Driver
            },
        }
    }
}

impl From<Length> for CounterWidth {
    #[inline]
    fn from(length: Length) -> Self {
        match length {
            Length::Bits32 => Self::BITS_32,
            Length::Bits64 => Self::BITS_64,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => ENOENT,
            Refusal::Invalid => EINVAL,
            Refusal::NotSupported => EOPNOTSUPP,
            Refusal::NoCounter => EAGAIN,
        }
    }
}

/// Returns what user space asks for.
pub(crate) fn wish(event: &Event<Pmuv3>) -> Wish {
    let attr = event.attr();
    let config = attr.config();

    Wish {
        selection: match attr.event_type() {
            _ if event.is_own_type() => Selection::Raw(config),
            EventType::Hardware => Selection::Hardware(config),
            EventType::HwCache => Selection::HwCache(config),
            EventType::Raw => Selection::Raw(config),
            _ => Selection::Other,
        },
        length: match attr.field(&sysfs::LONG) {
            0 => Length::Bits32,
            _ => Length::Bits64,
        },
        reader: match attr.field(&sysfs::RDPMC) {
            0 => Reader::Kernel,
            _ => Reader::User,
        },
        target: if event.is_task() {
            Target::Task
        } else {
            Target::Cpu
        },
    }
}

/// Returns what user space excludes.
pub(crate) fn exclude(event: &Event<Pmuv3>) -> Exclude {
    let attr = event.attr();

    Exclude {
        user: attr.exclude_user(),
        kernel: attr.exclude_kernel(),
        hv: attr.exclude_hv(),
        idle: attr.exclude_idle(),
        host: attr.exclude_host(),
        guest: attr.exclude_guest(),
    }
}

/// Returns who is to enable the counter of an event with these exclusions.
pub(crate) fn enabled_by(exclude: Exclude, kernel: KernelLevel) -> EnabledBy {
    match kernel {
        KernelLevel::El1 if exclude.host => EnabledBy::Hypervisor,
        KernelLevel::El1 | KernelLevel::El2 => EnabledBy::Driver,
    }
}
