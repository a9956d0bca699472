// SPDX-License-Identifier: MIT OR Apache-2.0
//! `struct perf_event_attr` as a builder.

use std::ffi::CString;
use std::fmt;

use perf_event_open_sys::bindings as sys;

use crate::config::EventConfig;
use crate::flags::{BranchFilter, Exclude, ReadFormat, SampleFields, SideBand};

/// When an event takes a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    /// Each time this many events were counted. From 1 to 2^63 - 1.
    Period(u64),
    /// About this often a second of running; the kernel adjusts the period. At most
    /// `/proc/sys/kernel/perf_event_max_sample_rate`.
    Frequency(u64),
}

/// When a reader who waits for the ring is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wakeup {
    /// After each so many samples; other records do not count.
    Samples(u32),
    /// When at least so many bytes are unread. 0 stands for half the ring.
    Bytes(u32),
}

/// How far the instruction pointer of a sample may be from the instruction that caused it
/// (`precise_ip`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Any distance.
    Arbitrary = 0,
    /// Always the same distance.
    ConstantSkid = 1,
    /// None, if the hardware can.
    RequestZeroSkid = 2,
    /// None, or the open fails.
    RequireZeroSkid = 3,
}

/// Attributes that contradict each other, or ask for something that has no effect.
///
/// [`Event::open`](crate::Event::open) finds these before it calls the kernel, which would
/// answer most of them with a bare `EINVAL`, or with silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Each message says it.
pub enum AttrError {
    #[error("a sampling period is from 1 to 2^63 - 1, not {0}")]
    Period(u64),
    #[error("a sampling frequency is 1 or more a second, not 0")]
    Frequency,
    #[error("the sample fields {0:?} need sampling: ask for it with Attr::sample")]
    FieldsWithoutSampling(SampleFields),
    #[error("a wake-up needs records to wait for: ask for samples or side-band records")]
    WakeupWithoutRecords,
    #[error("a precise instruction pointer needs sampling: ask for it with Attr::sample")]
    PrecisionWithoutSampling,
    #[error("WEIGHT and WEIGHT_STRUCT are two views of one field: ask for one of them")]
    BothWeights,
    #[error("{0} needs the sample field {1:?}")]
    NeedsField(&'static str, SampleFields),
    #[error("the sample field {0:?} needs its parameter: set it with Attr::{1}")]
    NeedsParameter(SampleFields, &'static str),
    #[error("a user stack copy is a multiple of 8 bytes from 8 to 65528, not {0}")]
    StackSize(u32),
    #[error("a branch stack needs a flag that says which branches, beside privilege levels")]
    NoBranches,
    #[error("the {0:?} records are refinements: they need {1:?}")]
    NeedsSideBand(SideBand, SideBand),
    #[error("user, kernel and hypervisor are all excluded: nothing is left to count")]
    AllLevelsExcluded,
    #[error("host and guests are both excluded: nothing is left to count")]
    HostAndGuestExcluded,
    #[error("to inherit to threads only, ask for inheritance too: Attr::inherit")]
    InheritThreadWithoutInherit,
    #[error("counts in samples (READ) of an inherited event need the sample field TID")]
    InheritedReadWithoutTid,
    #[error("an event cannot be enabled on exec and removed on exec")]
    EnableAndRemoveOnExec,
    #[error("a signal on overflow needs the event to be removed on exec: Attr::remove_on_exec")]
    SigtrapWithoutRemoveOnExec,
}

/// Attributes of an event: a builder over `struct perf_event_attr`.
///
/// What it starts from: disabled, so that nothing is counted before
/// [`enable`](crate::Event::enable) and no sample comes before the ring is mapped; every record
/// identified (`sample_id_all`); counting, no sampling; everything counted.
///
/// ```
/// use perfshim::{Attr, Exclude, Rate, SampleFields, Software};
///
/// let attr = Attr::new(Software::CpuClock)
///     .sample(Rate::Frequency(999), SampleFields::IP | SampleFields::TID | SampleFields::TIME)
///     .exclude(Exclude::KERNEL | Exclude::HV);
/// assert!(attr.check().is_ok());
/// ```
#[derive(Clone)]
pub struct Attr {
    raw: sys::perf_event_attr,
    /// What `config1` points to while the event is opened. Probes only.
    name: Option<CString>,
    /// The rate asked for. The kernel takes a period of 0 for "no sampling"; this can tell.
    rate: Option<Rate>,
    /// Whether [`check`](Self::check) looks at the attributes.
    checked: bool,
}

impl Attr {
    /// Attributes that count `event`.
    pub fn new(event: impl Into<EventConfig>) -> Self {
        let event = event.into();
        let mut raw = sys::perf_event_attr {
            type_: event.pmu,
            size: size_of::<sys::perf_event_attr>() as u32,
            config: event.config,
            bp_type: event.breakpoint_type,
            config3: event.config3,
            config4: event.config4,
            ..Default::default()
        };
        raw.__bindgen_anon_3.config1 = event.config1;
        raw.__bindgen_anon_4.config2 = event.config2;
        raw.set_disabled(1);
        raw.set_sample_id_all(1);
        Self {
            raw,
            name: event.name,
            rate: None,
            checked: true,
        }
    }

    /// Attributes as given, for what the builder cannot say. They are not checked.
    pub fn from_raw(raw: sys::perf_event_attr) -> Self {
        Self {
            raw,
            name: None,
            rate: None,
            checked: false,
        }
    }

    /// Changes the raw attributes. They are not checked from here on.
    #[must_use]
    pub fn with_raw(mut self, change: impl FnOnce(&mut sys::perf_event_attr)) -> Self {
        change(&mut self.raw);
        self.checked = false;
        self
    }

    /// The raw attributes.
    pub fn raw(&self) -> &sys::perf_event_attr {
        &self.raw
    }

    /// Takes a sample of `fields` at `rate`. Called again, it replaces the rate and adds the
    /// fields.
    #[must_use]
    pub fn sample(mut self, rate: Rate, fields: SampleFields) -> Self {
        match rate {
            Rate::Period(period) => {
                self.raw.set_freq(0);
                self.raw.__bindgen_anon_1.sample_period = period;
            }
            Rate::Frequency(frequency) => {
                self.raw.set_freq(1);
                self.raw.__bindgen_anon_1.sample_freq = frequency;
            }
        }
        self.rate = Some(rate);
        self.fields(fields)
    }

    /// Adds fields to samples, and those of [`SampleFields::IDENTITY`] to the other records too.
    #[must_use]
    pub fn fields(mut self, fields: SampleFields) -> Self {
        self.raw.sample_type |= fields.bits();
        self
    }

    /// Writes these records beside samples. Called again, it adds.
    ///
    /// [`SideBand::MMAP2`] sets the bit of [`SideBand::MMAP`] too: the kernel looks at mappings
    /// only while some event has that one.
    #[must_use]
    pub fn side_band(mut self, records: SideBand) -> Self {
        records.store(&mut self.raw);
        if records.contains(SideBand::MMAP2) {
            self.raw.set_mmap(1);
        }
        self
    }

    /// Leaves the identity fields out of the records that are not samples.
    #[must_use]
    pub fn without_sample_id(mut self) -> Self {
        self.raw.set_sample_id_all(0);
        self
    }

    /// When to wake a reader who waits for the ring. Without this: when half the ring is unread.
    #[must_use]
    pub fn wakeup(mut self, wakeup: Wakeup) -> Self {
        match wakeup {
            Wakeup::Samples(samples) => {
                self.raw.set_watermark(0);
                self.raw.__bindgen_anon_2.wakeup_events = samples;
            }
            Wakeup::Bytes(bytes) => {
                self.raw.set_watermark(1);
                self.raw.__bindgen_anon_2.wakeup_watermark = bytes;
            }
        }
        self
    }

    /// Does not count, or leaves out of call chains, what `what` names. Called again, it adds.
    #[must_use]
    pub fn exclude(mut self, what: Exclude) -> Self {
        what.store(&mut self.raw);
        self
    }

    /// What a read returns, beside the count. Called again, it adds.
    #[must_use]
    pub fn read_format(mut self, format: ReadFormat) -> Self {
        self.raw.read_format |= format.bits();
        self
    }

    /// Counts from the open on.
    #[must_use]
    pub fn enabled(mut self) -> Self {
        self.raw.set_disabled(0);
        self
    }

    /// Counts in tasks that the target creates from now on, too. Their counts are added to the
    /// event's when they end, or when it is read.
    #[must_use]
    pub fn inherit(mut self) -> Self {
        self.raw.set_inherit(1);
        self
    }

    /// With [`inherit`](Self::inherit): to threads, not to processes.
    #[must_use]
    pub fn inherit_thread(mut self) -> Self {
        self.raw.set_inherit_thread(1);
        self
    }

    /// With [`inherit`](Self::inherit): keeps the counts of each task apart on context switch.
    #[must_use]
    pub fn inherit_stat(mut self) -> Self {
        self.raw.set_inherit_stat(1);
        self
    }

    /// The event must always be on a counter. Where that fails it goes into an error state, and
    /// reads say so. Group leaders only.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.raw.set_pinned(1);
        self
    }

    /// The group must be the only one on the PMU while it counts. Group leaders only.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.raw.set_exclusive(1);
        self
    }

    /// Starts counting when the target calls exec.
    #[must_use]
    pub fn enable_on_exec(mut self) -> Self {
        self.raw.set_enable_on_exec(1);
        self
    }

    /// Takes the event off the task when it calls exec.
    #[must_use]
    pub fn remove_on_exec(mut self) -> Self {
        self.raw.set_remove_on_exec(1);
        self
    }

    /// Sends the task a synchronous `SIGTRAP` on overflow that carries `data` in `si_perf_data`.
    #[must_use]
    pub fn sigtrap(mut self, data: u64) -> Self {
        self.raw.set_sigtrap(1);
        self.raw.sig_data = data;
        self
    }

    /// How exact the instruction pointer must be.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.raw.set_precise_ip(precision as u64);
        self
    }

    /// Takes the time of records from this clock (`CLOCK_MONOTONIC`, ...: `clockid_t`) instead of
    /// the scheduler's.
    #[must_use]
    pub fn clock(mut self, clockid: i32) -> Self {
        self.raw.set_use_clockid(1);
        self.raw.clockid = clockid;
        self
    }

    /// At most this many frames in a call chain, or entries in a branch stack. Without this:
    /// `/proc/sys/kernel/perf_event_max_stack`.
    #[must_use]
    pub fn max_stack(mut self, frames: u16) -> Self {
        self.raw.sample_max_stack = frames;
        self
    }

    /// Samples hold the recent branches that `filter` names.
    #[must_use]
    pub fn branch_stack(mut self, filter: BranchFilter) -> Self {
        self.raw.sample_type |= SampleFields::BRANCH_STACK.bits();
        self.raw.branch_sample_type |= filter.bits();
        self
    }

    /// Samples hold the user registers whose bits are set in `mask`, numbered as in the
    /// architecture's `asm/perf_regs.h`.
    #[must_use]
    pub fn user_registers(mut self, mask: u64) -> Self {
        self.raw.sample_type |= SampleFields::REGS_USER.bits();
        self.raw.sample_regs_user = mask;
        self
    }

    /// Samples hold the registers at the interrupt whose bits are set in `mask`, numbered as in
    /// the architecture's `asm/perf_regs.h`.
    #[must_use]
    pub fn interrupt_registers(mut self, mask: u64) -> Self {
        self.raw.sample_type |= SampleFields::REGS_INTR.bits();
        self.raw.sample_regs_intr = mask;
        self
    }

    /// Samples hold up to `bytes` of the user stack, a multiple of 8 up to 65528.
    #[must_use]
    pub fn user_stack(mut self, bytes: u32) -> Self {
        self.raw.sample_type |= SampleFields::STACK_USER.bits();
        self.raw.sample_stack_user = bytes;
        self
    }

    /// Puts user call chains off until the task returns to user space: samples then end in a
    /// cookie. Ask one event for the chains themselves with [`SideBand::CALLCHAIN_DEFERRED`].
    #[must_use]
    pub fn defer_callchain(mut self) -> Self {
        self.raw.set_defer_callchain(1);
        self
    }

    /// Writes the ring from its end to its start, for
    /// [`OverwriteRing`](crate::OverwriteRing), which keeps the newest records.
    #[must_use]
    pub fn write_backward(mut self) -> Self {
        self.raw.set_write_backward(1);
        self
    }

    /// Samples hold up to `bytes` of the AUX area of the group's leader.
    #[must_use]
    pub fn aux_sample(mut self, bytes: u32) -> Self {
        self.raw.sample_type |= SampleFields::AUX.bits();
        self.raw.aux_sample_size = bytes;
        self
    }

    /// Wakes the reader after so many bytes of the AUX area.
    #[must_use]
    pub fn aux_watermark(mut self, bytes: u32) -> Self {
        self.raw.aux_watermark = bytes;
        self
    }

    /// The event's samples go to the AUX area of the group's leader.
    #[must_use]
    pub fn aux_output(mut self) -> Self {
        self.raw.set_aux_output(1);
        self
    }

    /// An AUX event that waits for [`aux_resume`](Self::aux_resume).
    #[must_use]
    pub fn aux_start_paused(mut self) -> Self {
        self.raw.aux_action |= aux_action_bit(0);
        self
    }

    /// An overflow pauses the AUX event that leads the group.
    #[must_use]
    pub fn aux_pause(mut self) -> Self {
        self.raw.aux_action |= aux_action_bit(1);
        self
    }

    /// An overflow resumes the AUX event that leads the group.
    #[must_use]
    pub fn aux_resume(mut self) -> Self {
        self.raw.aux_action |= aux_action_bit(2);
        self
    }

    /// Whether the event takes samples.
    pub fn is_sampling(&self) -> bool {
        self.rate.is_some() || self.raw.sample_period != 0
    }

    /// The fields of a sample.
    pub fn sample_fields(&self) -> SampleFields {
        SampleFields::from_bits_retain(self.raw.sample_type)
    }

    /// What a read returns.
    pub fn read_fields(&self) -> ReadFormat {
        ReadFormat::from_bits_retain(self.raw.read_format)
    }

    /// Finds what contradicts itself or has no effect. [`Event::open`](crate::Event::open) does
    /// this first; attributes made with [`from_raw`](Self::from_raw) or
    /// [`with_raw`](Self::with_raw) pass.
    pub fn check(&self) -> Result<(), AttrError> {
        if !self.checked {
            return Ok(());
        }
        self.check_sampling()?;
        self.check_field_parameters()?;
        self.check_side_band()?;
        self.check_scope()
    }

    fn check_sampling(&self) -> Result<(), AttrError> {
        let raw = &self.raw;
        let fields = self.sample_fields();
        match self.rate {
            Some(Rate::Period(period)) if period == 0 || period >> 63 != 0 => {
                return Err(AttrError::Period(period));
            }
            Some(Rate::Frequency(0)) => return Err(AttrError::Frequency),
            _ => {}
        }
        if !self.is_sampling() {
            let rest = fields.difference(SampleFields::IDENTITY);
            if !rest.is_empty() {
                return Err(AttrError::FieldsWithoutSampling(rest));
            }
            if raw.precise_ip() != 0 {
                return Err(AttrError::PrecisionWithoutSampling);
            }
            let wakes = raw.watermark() != 0 || raw.wakeup_events != 0;
            if wakes && SideBand::load(raw).is_empty() {
                return Err(AttrError::WakeupWithoutRecords);
            }
        }
        if fields.contains(SampleFields::WEIGHT | SampleFields::WEIGHT_STRUCT) {
            return Err(AttrError::BothWeights);
        }
        Ok(())
    }

    fn check_field_parameters(&self) -> Result<(), AttrError> {
        let raw = &self.raw;
        let fields = self.sample_fields();
        let callchain_excluded =
            Exclude::load(raw).intersects(Exclude::CALLCHAIN_KERNEL | Exclude::CALLCHAIN_USER);
        for (asked, what, field) in [
            (
                callchain_excluded,
                "a call-chain filter",
                SampleFields::CALLCHAIN,
            ),
            (
                raw.defer_callchain() != 0,
                "deferring call chains",
                SampleFields::CALLCHAIN,
            ),
            (
                raw.sample_max_stack != 0 && !fields.contains(SampleFields::BRANCH_STACK),
                "a stack depth",
                SampleFields::CALLCHAIN,
            ),
        ] {
            if asked && !fields.contains(field) {
                return Err(AttrError::NeedsField(what, field));
            }
        }
        let branches = BranchFilter::from_bits_retain(raw.branch_sample_type);
        for (field, missing, method) in [
            (
                SampleFields::BRANCH_STACK,
                branches.is_empty(),
                "branch_stack",
            ),
            (
                SampleFields::REGS_USER,
                raw.sample_regs_user == 0,
                "user_registers",
            ),
            (
                SampleFields::REGS_INTR,
                raw.sample_regs_intr == 0,
                "interrupt_registers",
            ),
            (
                SampleFields::STACK_USER,
                raw.sample_stack_user == 0,
                "user_stack",
            ),
            (SampleFields::AUX, raw.aux_sample_size == 0, "aux_sample"),
        ] {
            if fields.contains(field) && missing {
                return Err(AttrError::NeedsParameter(field, method));
            }
        }
        if fields.contains(SampleFields::BRANCH_STACK)
            && branches.difference(BranchFilter::PRIVILEGE).is_empty()
        {
            return Err(AttrError::NoBranches);
        }
        let stack = raw.sample_stack_user;
        if stack % 8 != 0 || stack > 65528 {
            return Err(AttrError::StackSize(stack));
        }
        Ok(())
    }

    fn check_side_band(&self) -> Result<(), AttrError> {
        let records = SideBand::load(&self.raw);
        for (refined, base) in [
            (SideBand::BUILD_ID, SideBand::MMAP2),
            (SideBand::COMM_EXEC, SideBand::COMM),
        ] {
            if records.contains(refined) && !records.contains(base) {
                return Err(AttrError::NeedsSideBand(refined, base));
            }
        }
        Ok(())
    }

    fn check_scope(&self) -> Result<(), AttrError> {
        let raw = &self.raw;
        let exclude = Exclude::load(raw);
        if exclude.contains(Exclude::USER | Exclude::KERNEL | Exclude::HV) {
            return Err(AttrError::AllLevelsExcluded);
        }
        if exclude.contains(Exclude::HOST | Exclude::GUEST) {
            return Err(AttrError::HostAndGuestExcluded);
        }
        if raw.inherit_thread() != 0 && raw.inherit() == 0 {
            return Err(AttrError::InheritThreadWithoutInherit);
        }
        let fields = self.sample_fields();
        if raw.inherit() != 0
            && fields.contains(SampleFields::READ)
            && !fields.contains(SampleFields::TID)
        {
            return Err(AttrError::InheritedReadWithoutTid);
        }
        if raw.enable_on_exec() != 0 && raw.remove_on_exec() != 0 {
            return Err(AttrError::EnableAndRemoveOnExec);
        }
        if raw.sigtrap() != 0 && raw.remove_on_exec() == 0 {
            return Err(AttrError::SigtrapWithoutRemoveOnExec);
        }
        Ok(())
    }

    /// Runs `f` with attributes that are ready for the kernel: a probe's name is in place, and
    /// lives until `f` returns.
    pub(crate) fn with_kernel_form<T>(&self, f: impl FnOnce(&mut sys::perf_event_attr) -> T) -> T {
        let mut raw = self.raw;
        if let Some(name) = &self.name {
            raw.__bindgen_anon_3.config1 = name.as_ptr().expose_provenance() as u64;
        }
        f(&mut raw)
    }
}

/// Bit `n` of `aux_action`, counted as C counts bit-fields.
const fn aux_action_bit(n: u32) -> u32 {
    if cfg!(target_endian = "big") {
        1 << (31 - n)
    } else {
        1 << n
    }
}

impl fmt::Debug for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = &self.raw;
        f.debug_struct("Attr")
            .field("pmu", &raw.type_)
            .field("config", &format_args!("{:#x}", raw.config))
            .field("config1", &format_args!("{:#x}", raw.config1))
            .field("config2", &format_args!("{:#x}", raw.config2))
            .field("sample_period_or_freq", &raw.sample_period)
            .field("freq", &(raw.freq() != 0))
            .field("sample_fields", &self.sample_fields())
            .field("read_format", &self.read_fields())
            .field("exclude", &Exclude::load(raw))
            .field("side_band", &SideBand::load(raw))
            .finish_non_exhaustive()
    }
}
