// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page in front of a ring: `struct perf_event_mmap_page`.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use bitflags::bitflags;

use crate::count::Count;
use crate::flags::ReadFormat;
use crate::ring::map::Mapping;
use crate::sys::perf_event_mmap_page;

bitflags! {
    /// What of the page may be used: the `cap_*` bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Capabilities: u64 {
        /// Always set: bit 0, which had two meanings at once, means nothing.
        const BIT0_IS_DEPRECATED = 1 << 1;
        /// The counter can be read with an instruction, by `index`.
        const USER_RDPMC = 1 << 2;
        /// `time_mult`, `time_shift` and `time_offset` are valid.
        const USER_TIME = 1 << 3;
        /// `time_zero` is valid.
        const USER_TIME_ZERO = 1 << 4;
        /// The clock is narrower than 64 bits; `time_cycles` and `time_mask` are valid.
        const USER_TIME_SHORT = 1 << 5;
    }
}

/// What the kernel says about the event in the ring's page, read as one consistent whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// Number of the hardware counter plus 1, or 0 while the event is on none.
    pub index: u32,
    /// What to add to the hardware counter's value, or the count itself while `index` is 0.
    pub offset: i64,
    /// Nanoseconds for which the event was enabled, up to when the page was written.
    pub time_enabled: u64,
    /// Nanoseconds for which the event was on a counter, up to when the page was written.
    pub time_running: u64,
    /// Which of the other fields are valid.
    pub capabilities: Capabilities,
    /// Width of the hardware counter in bits.
    pub pmc_width: u16,
    /// Clock ticks are turned into nanoseconds by × `time_mult` ÷ 2^`time_shift`.
    pub time_shift: u16,
    /// See `time_shift`.
    pub time_mult: u32,
    /// Nanoseconds to add, for a difference to `time_enabled`.
    pub time_offset: u64,
    /// Nanoseconds to add, for the time that samples carry.
    pub time_zero: u64,
    /// Ticks at the time that a narrow clock's value is to be completed from.
    pub time_cycles: u64,
    /// Which bits a narrow clock has.
    pub time_mask: u64,
}

impl PageState {
    /// The count, from the hardware counter's value `pmc`, read while the page said `index`.
    /// The counter is `pmc_width` bits wide, and signed.
    #[inline]
    pub(super) fn count(&self, pmc: u64) -> u64 {
        let width = u32::from(self.pmc_width);
        let spare = 64u32.saturating_sub(width);
        // A width of 0 would shift everything out, which is what such a counter holds.
        let value = match pmc.checked_shl(spare) {
            Some(shifted) => (shifted as i64) >> spare,
            None => 0,
        };
        let count = self.offset.wrapping_add(value);
        if count < 0 && spare > 0 {
            // The kernel took the counter for unsigned when it computed `offset`: Linux does so
            // when an event is reset, or its page mapped, after it was read by a system call.
            return one_more_turn(count, width);
        }
        count as u64
    }

    /// The count, if the counter can be read: `counter` is what reads that of an index.
    #[inline]
    fn read(&self, counter: impl Fn(u32) -> Option<u64>) -> Option<u64> {
        let readable = self.capabilities.contains(Capabilities::USER_RDPMC);
        if !readable || !(1..=64).contains(&self.pmc_width) {
            return None;
        }
        Some(self.count(counter(self.index)?))
    }

    /// Nanoseconds from when the page was written to when the clock showed `ticks`, to be added
    /// to `time_enabled`, and to `time_running` if `index` is not 0. `None` without
    /// [`Capabilities::USER_TIME`].
    pub(super) fn delta(&self, ticks: u64) -> Option<u64> {
        let delta = self.time_offset.wrapping_add(self.nanoseconds(ticks));
        // The two parts are rounded: of a moment ago, their sum may be less than nothing.
        let delta = u64::try_from(delta as i64).unwrap_or(0);
        self.capabilities
            .contains(Capabilities::USER_TIME)
            .then_some(delta)
    }

    /// The time, as samples carry it, when the clock showed `ticks`. `None` without
    /// [`Capabilities::USER_TIME_ZERO`].
    pub fn timestamp(&self, ticks: u64) -> Option<u64> {
        self.capabilities
            .contains(Capabilities::USER_TIME_ZERO)
            .then(|| self.time_zero.wrapping_add(self.nanoseconds(ticks)))
    }

    /// What the clock showed at the time `timestamp`, as samples carry it. `None` without
    /// [`Capabilities::USER_TIME_ZERO`].
    pub fn ticks(&self, timestamp: u64) -> Option<u64> {
        let mult = u64::from(self.time_mult);
        if !self.capabilities.contains(Capabilities::USER_TIME_ZERO) || mult == 0 {
            return None;
        }
        let time = timestamp.wrapping_sub(self.time_zero);
        let shift = u32::from(self.time_shift);
        let (quotient, remainder) = (time / mult, time % mult);
        Some(shl(quotient, shift).wrapping_add(shl(remainder, shift) / mult))
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        let ticks = if self.capabilities.contains(Capabilities::USER_TIME_SHORT) {
            let since = ticks.wrapping_sub(self.time_cycles) & self.time_mask;
            self.time_cycles.wrapping_add(since)
        } else {
            ticks
        };
        let (mult, shift) = (u64::from(self.time_mult), u32::from(self.time_shift));
        // In two parts, since ticks × mult may exceed 64 bits.
        let quotient = ticks.checked_shr(shift).unwrap_or(0);
        let remainder = ticks & shl(1, shift).wrapping_sub(1);
        quotient
            .wrapping_mul(mult)
            .wrapping_add(remainder.wrapping_mul(mult).checked_shr(shift).unwrap_or(0))
    }
}

/// What a count is that was taken for one turn of a counter of that width too little.
#[cold]
fn one_more_turn(count: i64, width: u32) -> u64 {
    (count as u64).wrapping_add(shl(1, width))
}

fn shl(value: u64, shift: u32) -> u64 {
    value.checked_shl(shift).unwrap_or(0)
}

/// The page in front of a mapped ring.
///
/// The kernel rewrites the page whenever the event goes on or off a counter, so its fields are
/// read one by one as atomics, between two looks at a sequence number.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    mapping: &'a Mapping,
}

/// A field of the page as an atomic.
macro_rules! field {
    ($page:expr, $atomic:ident, $($field:tt)+) => {{
        let page: *mut perf_event_mmap_page = $page;
        // SAFETY: the mapping holds a whole page structure, aligned, for as long as `self`
        // borrows it. All accesses from this process are atomic; the kernel's are not Rust's.
        unsafe { $atomic::from_ptr((&raw mut (*page).$($field)+).cast()) }
    }};
}

impl<'a> Page<'a> {
    pub(crate) fn new(mapping: &'a Mapping) -> Self {
        Self { mapping }
    }

    /// Version of the page's layout. 0 so far.
    pub fn version(self) -> u32 {
        field!(self.mapping.page(), AtomicU32, version).load(Ordering::Relaxed)
    }

    /// The lowest version with which the layout is compatible.
    pub fn compat_version(self) -> u32 {
        field!(self.mapping.page(), AtomicU32, compat_version).load(Ordering::Relaxed)
    }

    /// Bytes of the page that this kernel fills in, up to its reserved part.
    pub fn size(self) -> u32 {
        field!(self.mapping.page(), AtomicU32, size).load(Ordering::Relaxed)
    }

    /// The state of the event. For the thread that the event counts it is all from one moment; for
    /// others it may be from two, while the kernel changes it.
    pub fn state(self) -> PageState {
        /// The kernel is at it for some dozens of instructions, though a hypervisor may keep it from
        /// them for a while. Should two CPUs have been at it at once, then the number may say for
        /// ever that one is.
        const PATIENCE: Duration = Duration::from_secs(1);
        const LOOKS: u32 = 1000;
        let look = || {
            let mut state = self.load_counter();
            self.load_times(&mut state);
            state
        };
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                if let Some(state) = self.settled(look) {
                    return state;
                }
                std::hint::spin_loop();
            }
            if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return look();
            }
            std::thread::yield_now();
        }
    }

    /// The count by the value of a hardware counter, without the kernel. `None` if the page does
    /// not say how, or not now.
    ///
    /// `counter` reads the counter of an index, if it knows such a one, while the page stays as it
    /// is. It must be the page of an event of this thread.
    #[inline]
    pub(super) fn read(self, counter: impl Fn(u32) -> Option<u64>) -> Option<u64> {
        self.settled(|| self.load_counter().read(&counter))?
    }

    /// The same with the times that `format` asks for, by what `clock` shows.
    pub(super) fn read_with_times(
        self,
        format: ReadFormat,
        counter: impl Fn(u32) -> Option<u64>,
        clock: impl Fn() -> u64,
    ) -> Option<Count> {
        let (value, state, ticks) = self.settled(|| {
            let mut state = self.load_counter();
            let value = state.read(&counter)?;
            self.load_times(&mut state);
            Some((value, state, clock()))
        })??;
        let delta = state.delta(ticks)?;
        let time = |flag, time: u64| format.contains(flag).then(|| time.wrapping_add(delta));
        Some(Count {
            value,
            time_enabled: time(ReadFormat::TOTAL_TIME_ENABLED, state.time_enabled),
            // The page has an index, so the event is on a counter.
            time_running: time(ReadFormat::TOTAL_TIME_RUNNING, state.time_running),
            ..Count::default()
        })
    }

    /// What `look` returned while the kernel left the page as it is; `None` if it is at it, on
    /// another CPU.
    ///
    /// `look` is called again if the kernel changed the page meanwhile, as the event may have
    /// moved to another counter.
    #[inline]
    fn settled<T>(self, look: impl Fn() -> T) -> Option<T> {
        let lock = field!(self.mapping.page(), AtomicU32, lock);
        loop {
            // Acquire: the fields are read after the number. The kernel writes them in order as this
            // CPU sees it, which is what the event's own thread needs.
            let before = lock.load(Ordering::Acquire);
            if before % 2 == 1 {
                return None;
            }
            let found = look();
            // The fence keeps the loads above before the second look at the number.
            fence(Ordering::Acquire);
            if lock.load(Ordering::Relaxed) == before {
                return Some(found);
            }
        }
    }

    /// What it takes to read the counter. Each field is loaded by itself: see
    /// [`settled`](Self::settled).
    #[inline]
    fn load_counter(self) -> PageState {
        let page = self.mapping.page();
        PageState {
            index: field!(page, AtomicU32, index).load(Ordering::Relaxed),
            offset: field!(page, AtomicU64, offset).load(Ordering::Relaxed) as i64,
            capabilities: Capabilities::from_bits_retain(
                field!(page, AtomicU64, __bindgen_anon_1.capabilities).load(Ordering::Relaxed),
            ),
            pmc_width: field!(page, AtomicU16, pmc_width).load(Ordering::Relaxed),
            ..PageState::default()
        }
    }

    /// The fields that are left, all of them about times.
    #[inline]
    fn load_times(self, state: &mut PageState) {
        let page = self.mapping.page();
        state.time_enabled = field!(page, AtomicU64, time_enabled).load(Ordering::Relaxed);
        state.time_running = field!(page, AtomicU64, time_running).load(Ordering::Relaxed);
        state.time_shift = field!(page, AtomicU16, time_shift).load(Ordering::Relaxed);
        state.time_mult = field!(page, AtomicU32, time_mult).load(Ordering::Relaxed);
        state.time_offset = field!(page, AtomicU64, time_offset).load(Ordering::Relaxed);
        state.time_zero = field!(page, AtomicU64, time_zero).load(Ordering::Relaxed);
        state.time_cycles = field!(page, AtomicU64, time_cycles).load(Ordering::Relaxed);
        state.time_mask = field!(page, AtomicU64, time_mask).load(Ordering::Relaxed);
    }

    /// Where the kernel writes next in the data area; counts on and on.
    pub fn data_head(self) -> u64 {
        // Acquire: what the kernel wrote before it published the head is seen by whoever reads
        // the data after this. Pairs with its write barrier (B in perf_output_put_handle).
        field!(self.mapping.page(), AtomicU64, data_head).load(Ordering::Acquire)
    }

    /// Where the reader is in the data area; counts on and on.
    pub fn data_tail(self) -> u64 {
        // Only this process writes it, through the one reader of the ring.
        field!(self.mapping.page(), AtomicU64, data_tail).load(Ordering::Relaxed)
    }

    /// Gives the bytes before `tail` back to the kernel.
    pub(crate) fn set_data_tail(self, tail: u64) {
        // Release: all reads of the data are done before the kernel may see the new tail and
        // write over them. Pairs with the kernel's control dependency on its load of the tail
        // (A in perf_output_put_handle). The kernel's comment asks for a full barrier; release
        // is what orders earlier loads before this store, and what libperf uses.
        field!(self.mapping.page(), AtomicU64, data_tail).store(tail, Ordering::Release);
    }

    /// Where the data area starts in the mapping, in bytes. Not 4096 where pages are larger.
    pub fn data_offset(self) -> u64 {
        field!(self.mapping.page(), AtomicU64, data_offset).load(Ordering::Relaxed)
    }

    /// Size of the data area in bytes.
    pub fn data_size(self) -> u64 {
        field!(self.mapping.page(), AtomicU64, data_size).load(Ordering::Relaxed)
    }

    /// Where the kernel writes next in the AUX area; counts on and on.
    pub fn aux_head(self) -> u64 {
        // Acquire, as for the data area.
        field!(self.mapping.page(), AtomicU64, aux_head).load(Ordering::Acquire)
    }

    /// Where the reader is in the AUX area; counts on and on.
    pub fn aux_tail(self) -> u64 {
        field!(self.mapping.page(), AtomicU64, aux_tail).load(Ordering::Relaxed)
    }

    /// Where the AUX area starts, as the program that mapped it said.
    pub fn aux_offset(self) -> u64 {
        field!(self.mapping.page(), AtomicU64, aux_offset).load(Ordering::Relaxed)
    }

    /// Size of the AUX area in bytes, as the program that mapped it said; 0 if there is none.
    pub fn aux_size(self) -> u64 {
        field!(self.mapping.page(), AtomicU64, aux_size).load(Ordering::Relaxed)
    }
}
