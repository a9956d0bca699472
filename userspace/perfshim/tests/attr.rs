// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes: contradictions are named, and every field of the kernel's structure is in reach.

use std::ffi::CString;

use perfshim::{
    Access, Attr, AttrError, BranchFilter, Breakpoint, Cache, CacheId, CacheOp, CacheResult,
    EventConfig, Exclude, Hardware, Precision, Probe, Rate, ReadFormat, SampleFields, SideBand,
    Software, Tracepoint, Wakeup, sys,
};

fn counting() -> Attr {
    Attr::new(Hardware::CpuCycles)
}

fn sampling() -> Attr {
    counting().sample(Rate::Period(1000), SampleFields::IP)
}

#[test]
fn contradictions_are_named() {
    use AttrError as E;
    let chain = SampleFields::CALLCHAIN;
    for (attr, expected) in [
        (
            counting().sample(Rate::Period(0), SampleFields::IP),
            E::Period(0),
        ),
        (
            counting().sample(Rate::Period(1 << 63), SampleFields::IP),
            E::Period(1 << 63),
        ),
        (
            counting().sample(Rate::Frequency(0), SampleFields::IP),
            E::Frequency,
        ),
        (
            counting().fields(SampleFields::IP | SampleFields::TIME),
            E::FieldsWithoutSampling(SampleFields::IP),
        ),
        (
            counting().wakeup(Wakeup::Samples(1)),
            E::WakeupWithoutRecords,
        ),
        (counting().wakeup(Wakeup::Bytes(0)), E::WakeupWithoutRecords),
        (
            counting().precision(Precision::ConstantSkid),
            E::PrecisionWithoutSampling,
        ),
        (
            sampling().fields(SampleFields::WEIGHT | SampleFields::WEIGHT_STRUCT),
            E::BothWeights,
        ),
        (
            sampling().exclude(Exclude::CALLCHAIN_USER),
            E::NeedsField("a call-chain filter", chain),
        ),
        (
            sampling().defer_callchain(),
            E::NeedsField("deferring call chains", chain),
        ),
        (
            sampling().max_stack(5),
            E::NeedsField("a stack depth", chain),
        ),
        (
            sampling().fields(SampleFields::BRANCH_STACK),
            E::NeedsParameter(SampleFields::BRANCH_STACK, "branch_stack"),
        ),
        (
            sampling().user_registers(0),
            E::NeedsParameter(SampleFields::REGS_USER, "user_registers"),
        ),
        (
            sampling().interrupt_registers(0),
            E::NeedsParameter(SampleFields::REGS_INTR, "interrupt_registers"),
        ),
        (
            sampling().user_stack(0),
            E::NeedsParameter(SampleFields::STACK_USER, "user_stack"),
        ),
        (
            sampling().aux_sample(0),
            E::NeedsParameter(SampleFields::AUX, "aux_sample"),
        ),
        (sampling().user_stack(12), E::StackSize(12)),
        (sampling().user_stack(65536), E::StackSize(65536)),
        (sampling().branch_stack(BranchFilter::USER), E::NoBranches),
        (
            counting().side_band(SideBand::BUILD_ID | SideBand::MMAP),
            E::NeedsSideBand(SideBand::BUILD_ID, SideBand::MMAP2),
        ),
        (
            counting().side_band(SideBand::COMM_EXEC),
            E::NeedsSideBand(SideBand::COMM_EXEC, SideBand::COMM),
        ),
        (
            counting().exclude(Exclude::USER | Exclude::KERNEL | Exclude::HV),
            E::AllLevelsExcluded,
        ),
        (
            counting().exclude(Exclude::HOST | Exclude::GUEST),
            E::HostAndGuestExcluded,
        ),
        (counting().inherit_thread(), E::InheritThreadWithoutInherit),
        (
            sampling().inherit().fields(SampleFields::READ),
            E::InheritedReadWithoutTid,
        ),
        (
            counting().enable_on_exec().remove_on_exec(),
            E::EnableAndRemoveOnExec,
        ),
        (sampling().sigtrap(0), E::SigtrapWithoutRemoveOnExec),
    ] {
        assert_eq!(attr.check(), Err(expected), "{attr:?}");
        assert!(!expected.to_string().is_empty());
        // Whoever changes the raw attributes answers for them.
        assert_eq!(attr.with_raw(|_| ()).check(), Ok(()));
    }
}

#[test]
fn what_makes_sense_passes() {
    for attr in [
        counting(),
        counting().sample(Rate::Period((1 << 63) - 1), SampleFields::empty()),
        counting()
            .fields(SampleFields::IDENTITY)
            .side_band(SideBand::MMAP2 | SideBand::BUILD_ID),
        counting()
            .side_band(SideBand::TASK)
            .wakeup(Wakeup::Bytes(1)),
        sampling()
            .fields(SampleFields::CALLCHAIN)
            .max_stack(5)
            .defer_callchain(),
        sampling().branch_stack(BranchFilter::ANY).max_stack(5),
        sampling().user_stack(65528).user_registers(1),
        sampling()
            .inherit()
            .fields(SampleFields::READ | SampleFields::TID),
        sampling().sigtrap(1).remove_on_exec(),
        counting().exclude(Exclude::USER | Exclude::KERNEL),
    ] {
        assert_eq!(attr.check(), Ok(()), "{attr:?}");
    }
}

#[test]
fn a_period_and_a_frequency_replace_each_other() {
    let attr = counting().sample(Rate::Frequency(99), SampleFields::IP);
    assert_eq!((attr.raw().freq(), attr.raw().sample_freq), (1, 99));
    let attr = attr.sample(Rate::Period(7), SampleFields::TID);
    assert_eq!((attr.raw().freq(), attr.raw().sample_period), (0, 7));
    assert_eq!(attr.sample_fields(), SampleFields::IP | SampleFields::TID);
    let attr = attr.wakeup(Wakeup::Bytes(512));
    assert_eq!(
        (attr.raw().watermark(), attr.raw().wakeup_watermark),
        (1, 512)
    );
    let attr = attr.wakeup(Wakeup::Samples(3));
    assert_eq!((attr.raw().watermark(), attr.raw().wakeup_events), (0, 3));
}

#[test]
fn an_event_starts_disabled_and_identified() {
    let raw = *counting().raw();
    assert_eq!((raw.disabled(), raw.sample_id_all()), (1, 1));
    assert_eq!(raw.size as usize, size_of::<sys::perf_event_attr>());
    assert_eq!(counting().enabled().raw().disabled(), 0);
    assert_eq!(counting().without_sample_id().raw().sample_id_all(), 0);
}

#[test]
fn mmap2_brings_mmap_without_which_the_kernel_writes_neither() {
    let raw = *counting().side_band(SideBand::MMAP2).raw();
    assert_eq!((raw.mmap(), raw.mmap2(), raw.mmap_data()), (1, 1, 0));
}

/// The 64 bits of flags, as the kernel sees them: they follow `read_format`.
fn flag_word(attr: &sys::perf_event_attr) -> u64 {
    let offset = std::mem::offset_of!(sys::perf_event_attr, read_format) + 8;
    // SAFETY: the structure is plain data, and these 8 bytes are within it.
    unsafe {
        std::ptr::from_ref(attr)
            .cast::<u8>()
            .add(offset)
            .cast::<u64>()
            .read_unaligned()
    }
}

#[test]
fn every_flag_of_the_kernel_is_in_reach() {
    let attr = counting()
        .inherit()
        .pinned()
        .exclusive()
        .exclude(Exclude::all())
        .side_band(SideBand::all())
        .sample(Rate::Frequency(1), SampleFields::all())
        .inherit_stat()
        .enable_on_exec()
        .wakeup(Wakeup::Bytes(1))
        .precision(Precision::RequireZeroSkid)
        .clock(1)
        .write_backward()
        .aux_output()
        .inherit_thread()
        .remove_on_exec()
        .sigtrap(1)
        .defer_callchain();
    // All but the 24 that 7.3 reserves.
    let reserved = match cfg!(target_endian = "big") {
        true => u64::MAX >> 40,
        false => !(u64::MAX >> 24),
    };
    assert_eq!(flag_word(attr.raw()), !reserved);
    assert_eq!(attr.raw().sample_type, u64::from(sys::PERF_SAMPLE_MAX) - 1);
    let formats = counting().read_format(ReadFormat::all());
    assert_eq!(
        formats.raw().read_format,
        u64::from(sys::PERF_FORMAT_MAX) - 1
    );
    let branches = counting().branch_stack(BranchFilter::all());
    assert_eq!(
        branches.raw().branch_sample_type,
        u64::from(sys::PERF_SAMPLE_BRANCH_MAX) - 1
    );
}

#[test]
fn every_word_of_the_kernel_is_in_reach() {
    let config = EventConfig {
        pmu: 77,
        config: 1,
        config1: 2,
        config2: 3,
        config3: 4,
        config4: 5,
        ..EventConfig::default()
    };
    let attr = Attr::new(config)
        .user_registers(6)
        .user_stack(8)
        .clock(-9)
        .interrupt_registers(10)
        .aux_watermark(11)
        .max_stack(12)
        .aux_sample(13)
        .sigtrap(14)
        .aux_start_paused()
        .aux_pause()
        .aux_resume();
    let raw = attr.raw();
    assert_eq!(
        (raw.type_, raw.config, raw.config1, raw.config2),
        (77, 1, 2, 3)
    );
    assert_eq!((raw.config3, raw.config4), (4, 5));
    assert_eq!(
        (raw.sample_regs_user, raw.sample_stack_user, raw.clockid),
        (6, 8, -9)
    );
    assert_eq!(
        (
            raw.sample_regs_intr,
            raw.aux_watermark,
            raw.sample_max_stack
        ),
        (10, 11, 12)
    );
    assert_eq!((raw.aux_sample_size, raw.sig_data), (13, 14));
    // SAFETY: both views of the union are plain integers.
    let actions = unsafe { raw.__bindgen_anon_5.__bindgen_anon_1 };
    assert_eq!(
        (
            actions.aux_start_paused(),
            actions.aux_pause(),
            actions.aux_resume()
        ),
        (1, 1, 1)
    );
}

#[test]
fn events_are_numbered_as_in_the_kernel() {
    let of = |event: EventConfig| (event.pmu, event.config);
    assert_eq!(of(Hardware::Instructions.into()), (0, 1));
    assert_eq!(of(Hardware::Instructions.on_pmu(8)), (0, 8 << 32 | 1));
    assert_eq!(of(Software::ContextSwitches.into()), (1, 3));
    assert_eq!(of(Tracepoint(300).into()), (2, 300));
    let cache = Cache {
        id: CacheId::Dtlb,
        op: CacheOp::Write,
        result: CacheResult::Miss,
    };
    assert_eq!(of(cache.into()), (3, 0x10103));
    assert_eq!(of(cache.on_pmu(9)), (3, 9 << 32 | 0x10103));
    assert_eq!(of(EventConfig::raw(0x11)), (4, 0x11));
    let breakpoint = Attr::new(Breakpoint {
        access: Access::Write,
        addr: 0x1000,
        len: 4,
    });
    let raw = breakpoint.raw();
    assert_eq!(
        (raw.type_, raw.bp_type, raw.bp_addr, raw.bp_len),
        (5, 2, 0x1000, 4)
    );
    let probe = Attr::new(Probe::KernelFunction {
        pmu: 6,
        function: CString::new("schedule").expect("no NUL"),
        offset: 4,
    });
    assert_eq!((probe.raw().type_, probe.raw().probe_offset), (6, 4));
}
