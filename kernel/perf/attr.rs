// SPDX-License-Identifier: GPL-2.0

//! What user space asked for: `struct perf_event_attr`.

use super::sysfs::{
    ConfigWord,
    FormatAttr, //
};
use crate::bindings;
use kernel::types::Opaque;

/// The attributes of an event, as perf core has checked and copied them.
///
/// Perf core may change a few of them while the event lives, so each access reads anew.
///
/// # Invariants
///
/// The memory is a valid `struct perf_event_attr`.
#[repr(transparent)]
pub struct Attr(Opaque<bindings::perf_event_attr>);

/// What kind of number [`Attr::config`] is.
///
/// `enum perf_type_id` of
/// [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// A generic event of a CPU, `PERF_COUNT_HW_*`.
    Hardware,
    /// An event of the kernel itself.
    Software,
    /// A tracepoint.
    Tracepoint,
    /// A generic cache event: `PERF_COUNT_HW_CACHE_*`, one byte each for cache, operation, result.
    HwCache,
    /// A number of the PMU's own.
    Raw,
    /// A hardware breakpoint.
    Breakpoint,
    /// The type of a PMU, as in its sysfs file `type`.
    Pmu(u32),
}

impl From<u32> for EventType {
    #[inline]
    fn from(value: u32) -> Self {
        match value {
            bindings::perf_type_id_PERF_TYPE_HARDWARE => Self::Hardware,
            bindings::perf_type_id_PERF_TYPE_SOFTWARE => Self::Software,
            bindings::perf_type_id_PERF_TYPE_TRACEPOINT => Self::Tracepoint,
            bindings::perf_type_id_PERF_TYPE_HW_CACHE => Self::HwCache,
            bindings::perf_type_id_PERF_TYPE_RAW => Self::Raw,
            bindings::perf_type_id_PERF_TYPE_BREAKPOINT => Self::Breakpoint,
            other => Self::Pmu(other),
        }
    }
}

/// Reads a field of the C struct once.
macro_rules! read {
    ($attr:expr, $field:ident) => {{
        let attr: *mut bindings::perf_event_attr = $attr.0.get();

        // SAFETY: By the type invariant `attr` is valid for reads. A field that perf core may write
        // meanwhile is a word of its own, which is neither torn nor taken for constant: C would use
        // READ_ONCE() for it.
        unsafe { (&raw const (*attr).$field).read_volatile() }
    }};
}

/// Reads a union of the C struct once, all of whose variants are numbers of 64 bits.
macro_rules! read_union {
    ($attr:expr, $field:ident) => {{
        let attr: *mut bindings::perf_event_attr = $attr.0.get();

        // SAFETY: By the type invariant `attr` is valid for reads. For the rest see `read`.
        unsafe { (&raw const (*attr).$field).cast::<u64>().read_volatile() }
    }};
}

/// Defines a getter for a flag of `struct perf_event_attr`.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name(&self) -> bool {
            self.flags().$name() != 0
        }
    )*};
}

impl Attr {
    /// # Safety
    ///
    /// `ptr` must point to a valid `struct perf_event_attr` during `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(ptr: *const bindings::perf_event_attr) -> &'a Self {
        // SAFETY: The caller vouches for `ptr`, and the type is transparent. Other code may change
        // the memory, which `Opaque` allows for.
        unsafe { &*ptr.cast() }
    }

    /// The kind of the event.
    #[inline]
    pub fn event_type(&self) -> EventType {
        EventType::from(self.raw_type())
    }

    #[inline]
    pub(super) fn raw_type(&self) -> u32 {
        read!(self, type_)
    }

    /// The event's number, whose meaning [`Attr::event_type`] tells.
    #[inline]
    pub fn config(&self) -> u64 {
        read!(self, config)
    }

    /// More of what the PMU defines.
    #[inline]
    pub fn config1(&self) -> u64 {
        read_union!(self, __bindgen_anon_3)
    }

    /// More of what the PMU defines.
    #[inline]
    pub fn config2(&self) -> u64 {
        read_union!(self, __bindgen_anon_4)
    }

    /// More of what the PMU defines.
    #[inline]
    pub fn config3(&self) -> u64 {
        read!(self, config3)
    }

    /// The bits that a file in the PMU's `format` folder names, moved down to bit 0.
    #[inline]
    pub fn field(&self, field: &FormatAttr) -> u64 {
        field.get(match field.word() {
            ConfigWord::Config => self.config(),
            ConfigWord::Config1 => self.config1(),
            ConfigWord::Config2 => self.config2(),
            ConfigWord::Config3 => self.config3(),
        })
    }

    /// What goes into a sample: `PERF_SAMPLE_*` bits.
    #[inline]
    pub fn sample_type(&self) -> u64 {
        read!(self, sample_type)
    }

    /// The sampling period in events, or the frequency in Hz if [`Attr::freq`]; 0 when the event
    /// does not sample.
    #[inline]
    pub fn sample_period(&self) -> u64 {
        read_union!(self, __bindgen_anon_1)
    }

    flags! {
        /// The group is always to be on the PMU, or the event goes into an error state.
        pinned;
        /// No other group may be on the PMU at the same time.
        exclusive;
        /// Do not count in user mode.
        exclude_user;
        /// Do not count in kernel mode.
        exclude_kernel;
        /// Do not count in the hypervisor.
        exclude_hv;
        /// Do not count while idle.
        exclude_idle;
        /// Do not count on the host.
        exclude_host;
        /// Do not count in guests.
        exclude_guest;
        /// [`Attr::sample_period`] is a frequency.
        freq;
        /// Enable the event when the task executes a program.
        enable_on_exec;
    }

    /// The flags alone, read at once: perf core clears `enable_on_exec` while the event is in use.
    #[inline]
    fn flags(&self) -> bindings::perf_event_attr {
        let attr = self.0.get();
        let mut flags = core::mem::MaybeUninit::<bindings::perf_event_attr>::zeroed();

        // SAFETY: By the type invariant `attr` is valid for reads; the C struct has a `__u64` of
        // bits there, so it is aligned for one.
        let bits = unsafe {
            (&raw const (*attr)._bitfield_1)
                .cast::<u64>()
                .read_volatile()
        };

        // SAFETY: `flags` is ours and has the same field. The struct consists of integers, for
        // which zero is a value.
        unsafe {
            (&raw mut (*flags.as_mut_ptr())._bitfield_1)
                .cast::<u64>()
                .write(bits);
            flags.assume_init()
        }
    }
}
