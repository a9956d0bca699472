// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that were encoded by the book decode to what went in.

mod common;

use std::ffi::OsStr;

use common::{Model, Out, counts, picked, record};
use perfshim::record::{
    AuxFlags, ChainEntry, Context, DataSource, DecodeError, Format, Frame, MapIdentity, Namespace,
    RegisterAbi, SampleId, ThreadId, Weight,
};
use perfshim::{
    Attr, BranchFilter, Count, Decoded, Decoder, Rate, RawRecord, ReadFormat, Record, Sample,
    SampleFields, SideBand, Software, sys,
};
use proptest::prelude::*;

/// All fields, of which one of the two weights.
fn fields() -> impl Strategy<Value = SampleFields> {
    any::<u64>().prop_map(|bits| {
        let fields = SampleFields::from_bits_truncate(bits);
        match fields.contains(SampleFields::WEIGHT) {
            true => fields.difference(SampleFields::WEIGHT_STRUCT),
            false => fields,
        }
    })
}

fn formats() -> impl Strategy<Value = Format> {
    (
        fields(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(
            |(
                sample_fields,
                read,
                branches,
                user_registers,
                interrupt_registers,
                sample_id_all,
            )| {
                Format {
                    sample_fields,
                    read_format: ReadFormat::from_bits_truncate(read),
                    sample_id_all,
                    branch_filter: BranchFilter::from_bits_truncate(branches),
                    user_registers,
                    interrupt_registers,
                }
            },
        )
}

fn models() -> impl Strategy<Value = Model> {
    let words = |most| prop::collection::vec(any::<u64>(), 0..=most);
    let registers = || prop::collection::vec(any::<u64>(), 64);
    let bytes = |words: u64| {
        (0..=words).prop_flat_map(|n| prop::collection::vec(any::<u8>(), n as usize * 8))
    };
    let identity = (any::<[u64; 6]>(), any::<[u32; 3]>());
    let memory = any::<[u64; 8]>();
    let lists = (
        prop::collection::vec(any::<(u64, u64, u64)>(), 1..9),
        words(40),
        (0..9usize).prop_flat_map(|n| prop::collection::vec(any::<u8>(), n * 8 + 4)),
        any::<[bool; 2]>(),
        prop::collection::vec(any::<(u64, u64, u64, u64)>(), 0..9),
    );
    let dumps = (registers(), bytes(9), any::<u64>(), registers(), bytes(9));
    (
        formats(),
        identity,
        memory,
        lists,
        dumps,
        0..4u64,
        0..4u64,
        any::<(u64, u64)>(),
    )
        .prop_map(
            |(format, (ids, small), memory, lists, dumps, user_abi, interrupt_abi, times)| {
                let (members, chain, raw, [has_stack, has_counters], branches) = lists;
                let (user_registers, stack, stack_copied, interrupt_registers, aux) = dumps;
                let [identifier, ip, time, addr, id, stream_id] = ids;
                let [pid, tid, cpu] = small;
                let [
                    period,
                    hw_index,
                    weight,
                    data_source,
                    transaction,
                    phys_addr,
                    cgroup,
                    page,
                ] = memory;
                Model {
                    format,
                    identifier,
                    ip,
                    pid,
                    tid,
                    time,
                    addr,
                    id,
                    stream_id,
                    cpu,
                    period,
                    times,
                    members,
                    chain,
                    raw,
                    has_stack,
                    has_counters,
                    hw_index,
                    branches,
                    user_abi,
                    user_registers,
                    stack,
                    stack_copied,
                    weight,
                    data_source,
                    transaction,
                    interrupt_abi,
                    interrupt_registers,
                    phys_addr,
                    cgroup,
                    data_page_size: page,
                    code_page_size: !page,
                    aux,
                }
            },
        )
}

fn decode<'a>(format: &Format, bytes: &'a [u8]) -> Result<Decoded<'a>, DecodeError> {
    format.decode(RawRecord::new(bytes)?)
}

/// Compares each field with the model: there when asked for, with its value.
fn compare(model: &Model, sample: &Sample<'_>) {
    let has = |field| model.format.sample_fields.contains(field);
    let if_has = |field, value: u64| has(field).then_some(value);
    assert_eq!(
        sample.identifier,
        if_has(SampleFields::IDENTIFIER, model.identifier)
    );
    assert_eq!(sample.ip, if_has(SampleFields::IP, model.ip));
    let thread = ThreadId {
        pid: model.pid,
        tid: model.tid,
    };
    assert_eq!(sample.thread, has(SampleFields::TID).then_some(thread));
    assert_eq!(sample.time, if_has(SampleFields::TIME, model.time));
    assert_eq!(sample.addr, if_has(SampleFields::ADDR, model.addr));
    assert_eq!(sample.id, if_has(SampleFields::ID, model.id));
    assert_eq!(
        sample.stream_id,
        if_has(SampleFields::STREAM_ID, model.stream_id)
    );
    assert_eq!(sample.cpu, has(SampleFields::CPU).then_some(model.cpu));
    assert_eq!(sample.period, if_has(SampleFields::PERIOD, model.period));
    compare_counts(model, sample);
    let chain = sample
        .callchain
        .map(|chain| chain.words().iter().collect::<Vec<_>>());
    assert_eq!(
        chain,
        has(SampleFields::CALLCHAIN).then(|| model.chain.clone())
    );
    assert_eq!(sample.raw, has(SampleFields::RAW).then_some(&model.raw[..]));
    compare_branches(model, sample);
    for (field, found, abi, values, mask) in [
        (
            SampleFields::REGS_USER,
            sample.user_registers,
            model.user_abi,
            &model.user_registers,
            model.format.user_registers,
        ),
        (
            SampleFields::REGS_INTR,
            sample.interrupt_registers,
            model.interrupt_abi,
            &model.interrupt_registers,
            model.format.interrupt_registers,
        ),
    ] {
        assert_eq!(found.is_some(), has(field));
        let Some(found) = found else { continue };
        let named = match abi {
            0 => None,
            1 => Some(RegisterAbi::Bits32),
            2 => Some(RegisterAbi::Bits64),
            other => Some(RegisterAbi::Other(other)),
        };
        assert_eq!(found.abi, named);
        let expected = if abi == 0 {
            vec![]
        } else {
            picked(values, mask)
        };
        assert_eq!(
            found.iter().map(|(_, value)| value).collect::<Vec<_>>(),
            expected
        );
        for (number, value) in found.iter() {
            assert_eq!(values[number as usize], value);
        }
    }
    if let Some(stack) = sample.user_stack {
        assert_eq!(stack.bytes, model.stack);
        let copied = model.stack_copied.min(model.stack.len() as u64) as usize;
        assert_eq!(stack.copied(), &model.stack[..copied]);
    }
    assert_eq!(sample.user_stack.is_some(), has(SampleFields::STACK_USER));
    let weight = if has(SampleFields::WEIGHT) {
        Some(Weight::Full(model.weight))
    } else {
        has(SampleFields::WEIGHT_STRUCT).then_some(Weight::Parts {
            var1: model.weight as u32,
            var2: (model.weight >> 32) as u16,
            var3: (model.weight >> 48) as u16,
        })
    };
    assert_eq!(sample.weight, weight);
    let source = DataSource(model.data_source);
    assert_eq!(
        sample.data_source,
        has(SampleFields::DATA_SRC).then_some(source)
    );
    let transaction = sample.transaction.map(|transaction| transaction.bits());
    assert_eq!(
        transaction,
        if_has(SampleFields::TRANSACTION, model.transaction)
    );
    assert_eq!(
        sample.phys_addr,
        if_has(SampleFields::PHYS_ADDR, model.phys_addr)
    );
    assert_eq!(sample.cgroup, if_has(SampleFields::CGROUP, model.cgroup));
    assert_eq!(
        sample.data_page_size,
        if_has(SampleFields::DATA_PAGE_SIZE, model.data_page_size)
    );
    assert_eq!(
        sample.code_page_size,
        if_has(SampleFields::CODE_PAGE_SIZE, model.code_page_size)
    );
    assert_eq!(sample.aux, has(SampleFields::AUX).then_some(&model.aux[..]));
}

fn compare_counts(model: &Model, sample: &Sample<'_>) {
    assert_eq!(
        sample.counts.is_some(),
        model.format.sample_fields.contains(SampleFields::READ)
    );
    let Some(found) = sample.counts else { return };
    let format = model.format.read_format;
    let members = match format.contains(ReadFormat::GROUP) {
        true => &model.members[..],
        false => &model.members[..1],
    };
    let when = |flag, value| format.contains(flag).then_some(value);
    let expected: Vec<_> = members
        .iter()
        .map(|&(value, id, lost)| Count {
            value,
            time_enabled: when(ReadFormat::TOTAL_TIME_ENABLED, model.times.0),
            time_running: when(ReadFormat::TOTAL_TIME_RUNNING, model.times.1),
            id: when(ReadFormat::ID, id),
            lost: when(ReadFormat::LOST, lost),
        })
        .collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    assert_eq!(found.first(), expected.first().copied());
}

fn compare_branches(model: &Model, sample: &Sample<'_>) {
    let asked = model
        .format
        .sample_fields
        .contains(SampleFields::BRANCH_STACK);
    assert_eq!(sample.branch_stack.is_some(), asked);
    let Some(stack) = sample.branch_stack else {
        return;
    };
    let branches = match model.has_stack {
        true => &model.branches[..],
        false => &[],
    };
    let found: Vec<_> = stack.iter().map(|b| (b.from, b.to, b.flags)).collect();
    let expected: Vec<_> = branches
        .iter()
        .map(|&(from, to, flags, _)| (from, to, flags))
        .collect();
    assert_eq!(found, expected);
    let filter = model.format.branch_filter;
    let index = filter.contains(BranchFilter::HW_INDEX) && model.has_stack;
    assert_eq!(stack.hw_index, index.then_some(model.hw_index));
    let counters = stack
        .counters()
        .map(|counters| counters.iter().collect::<Vec<_>>());
    let expected = branches.iter().map(|&(_, _, _, counter)| counter).collect();
    // Of no branches there are no counters, delivered or not.
    let delivered = model.has_counters || branches.is_empty();
    let asked = filter.contains(BranchFilter::COUNTERS);
    assert_eq!(counters, (asked && delivered).then_some(expected));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn samples_come_back_as_they_went_in(model in models()) {
        let bytes = model.encode();
        let decoded = decode(&model.format, &bytes).expect("a right record");
        match decoded.record {
            Record::Sample(sample) => {
                compare(&model, &sample);
                prop_assert_eq!(decoded.id, sample.sample_id());
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_sample_cut_short_or_made_longer_is_refused(model in models(), cut in any::<prop::sample::Index>()) {
        let bytes = model.encode();
        let mut longer = bytes.clone();
        longer.extend([0; 8]);
        let size = (longer.len() as u16).to_ne_bytes();
        longer[6..8].copy_from_slice(&size);
        // A word more or less is what makes an empty branch stack one with an index or without,
        // and a stack of one branch one with counters or without.
        let ambiguous = model
            .format
            .branch_filter
            .intersects(BranchFilter::HW_INDEX | BranchFilter::COUNTERS)
            && model.format.sample_fields.contains(SampleFields::BRANCH_STACK);
        if !ambiguous {
            prop_assert_eq!(
                decode(&model.format, &longer).map(|_| ()),
                Err(DecodeError::Trailing { left: 8 })
            );
            if bytes.len() > 8 {
                let len = 8 + cut.index(bytes.len() - 8);
                let mut shorter = bytes[..len].to_vec();
                shorter[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
                let is_short = matches!(
                    decode(&model.format, &shorter),
                    Err(DecodeError::Short { .. })
                );
                prop_assert!(is_short);
            }
        }
    }
}

#[test]
fn an_unknown_field_is_refused() {
    let format = Format {
        sample_fields: SampleFields::from_bits_retain(1 << 40),
        ..Format::default()
    };
    let bytes = record(sys::PERF_RECORD_SAMPLE, 0, &[]);
    assert_eq!(
        decode(&format, &bytes),
        Err(DecodeError::UnknownFields(1 << 40))
    );
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    assert!(matches!(
        RawRecord::new(&[]),
        Err(DecodeError::Short { left: 0, .. })
    ));
    let mut bytes = record(sys::PERF_RECORD_LOST, 0, &[0; 16]);
    bytes.push(0);
    assert_eq!(
        RawRecord::new(&bytes),
        Err(DecodeError::HeaderSize {
            size: 24,
            given: 25
        })
    );
}

/// Identity fields of all kinds.
const TRAILER: SampleId = SampleId {
    thread: Some(ThreadId { pid: 91, tid: 92 }),
    time: Some(93),
    id: Some(94),
    stream_id: Some(95),
    cpu: Some(96),
};

/// Decodes a record of `kind` with and without [`TRAILER`], and gives what came out to `check`.
fn side_band(kind: u32, misc: u16, body: &mut Out, check: impl Fn(Record<'_>)) {
    let mut format = Format {
        sample_fields: SampleFields::IDENTITY | SampleFields::IP,
        read_format: ReadFormat::all(),
        ..Format::default()
    };
    let bare = record(kind, misc, &body.0);
    let decoded = decode(&format, &bare).expect("a right record");
    assert_eq!(decoded.id, SampleId::default());
    assert_eq!(decoded.misc.0, misc);
    check(decoded.record);

    // pid, tid, time, id, stream_id, cpu, res, identifier.
    body.u32(91)
        .u32(92)
        .u64(93)
        .u64(94)
        .u64(95)
        .u32(96)
        .u32(0)
        .u64(94);
    format.sample_id_all = true;
    let with_trailer = record(kind, misc, &body.0);
    let decoded = decode(&format, &with_trailer).expect("a right record");
    assert_eq!(decoded.id, TRAILER);
    check(decoded.record);

    // Every kind but those without a body needs its fields.
    if with_trailer.len() > 8 + 48 {
        let short = record(kind, misc, &body.0[body.0.len() - 48..]);
        let is_short = matches!(decode(&format, &short), Err(DecodeError::Short { .. }));
        assert!(is_short, "kind {kind} without a body");
    }
}

#[test]
fn every_side_band_record_decodes() {
    let thread = ThreadId { pid: 1, tid: 2 };
    let name = |text| OsStr::new(text);

    let mut mmap = Out::default();
    mmap.u32(1)
        .u32(2)
        .u64(0x1000)
        .u64(0x2000)
        .u64(0x3000)
        .string("/bin/true");
    side_band(sys::PERF_RECORD_MMAP, 2, &mut mmap, |record| match record {
        Record::Mmap(found) => {
            assert_eq!(found.thread, thread);
            assert_eq!(
                (found.addr, found.len, found.page_offset),
                (0x1000, 0x2000, 0x3000)
            );
            assert_eq!(found.filename, name("/bin/true"));
        }
        other => panic!("{other:?}"),
    });

    side_band(
        sys::PERF_RECORD_LOST,
        0,
        Out::default().u64(3).u64(4),
        |record| match record {
            Record::Lost(found) => assert_eq!((found.id, found.lost), (3, 4)),
            other => panic!("{other:?}"),
        },
    );

    let mut comm = Out::default();
    comm.u32(1).u32(2).string("sevenby");
    side_band(
        sys::PERF_RECORD_COMM,
        1 << 13,
        &mut comm,
        |record| match record {
            Record::Comm(found) => {
                assert_eq!((found.thread, found.comm), (thread, name("sevenby")))
            }
            other => panic!("{other:?}"),
        },
    );

    for kind in [sys::PERF_RECORD_FORK, sys::PERF_RECORD_EXIT] {
        // pid, ppid, tid, ptid, time: not in the order of pairs.
        let mut task = Out::default();
        task.u32(1).u32(11).u32(2).u32(12).u64(5);
        side_band(kind, 0, &mut task, |record| match record {
            Record::Fork(found) if kind == sys::PERF_RECORD_FORK => {
                assert_eq!((found.thread, found.time), (thread, 5));
                assert_eq!(found.parent, ThreadId { pid: 11, tid: 12 });
            }
            Record::Exit(found) if kind == sys::PERF_RECORD_EXIT => {
                assert_eq!((found.thread, found.time), (thread, 5));
                assert_eq!(found.parent, ThreadId { pid: 11, tid: 12 });
            }
            other => panic!("{other:?}"),
        });
    }

    for kind in [sys::PERF_RECORD_THROTTLE, sys::PERF_RECORD_UNTHROTTLE] {
        let mut throttle = Out::default();
        throttle.u64(5).u64(6).u64(7);
        side_band(kind, 0, &mut throttle, |record| match record {
            Record::Throttle(found) if kind == sys::PERF_RECORD_THROTTLE => {
                assert_eq!((found.time, found.id, found.stream_id), (5, 6, 7));
            }
            Record::Unthrottle(found) if kind == sys::PERF_RECORD_UNTHROTTLE => {
                assert_eq!((found.time, found.id, found.stream_id), (5, 6, 7));
            }
            other => panic!("{other:?}"),
        });
    }

    let mut read = Out::default();
    read.u32(1).u32(2);
    counts(
        &mut read,
        ReadFormat::all(),
        (8, 9),
        &[(10, 11, 12), (13, 14, 15)],
    );
    side_band(sys::PERF_RECORD_READ, 0, &mut read, |record| match record {
        Record::Read(found) => {
            assert_eq!(found.thread, thread);
            let second = found.counts.by_id(14).expect("the second member");
            assert_eq!((second.value, second.lost), (13, Some(15)));
            assert_eq!(
                (second.time_enabled, second.time_running),
                (Some(8), Some(9))
            );
        }
        other => panic!("{other:?}"),
    });

    let mut mmap2 = Out::default();
    mmap2.u32(1).u32(2).u64(0x1000).u64(0x2000).u64(0x3000);
    mmap2
        .u32(8)
        .u32(1)
        .u64(77)
        .u64(78)
        .u32(5)
        .u32(2)
        .string("/lib/x");
    side_band(
        sys::PERF_RECORD_MMAP2,
        2,
        &mut mmap2,
        |record| match record {
            Record::Mmap2(found) => {
                assert_eq!(
                    (found.mmap.filename, found.prot, found.flags),
                    (name("/lib/x"), 5, 2)
                );
                let identity = MapIdentity::Inode {
                    major: 8,
                    minor: 1,
                    inode: 77,
                    generation: 78,
                };
                assert_eq!(found.identity, identity);
            }
            other => panic!("{other:?}"),
        },
    );

    let mut mmap2 = Out::default();
    mmap2.u32(1).u32(2).u64(0x1000).u64(0x2000).u64(0x3000);
    mmap2
        .bytes(&[4, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef])
        .bytes(&[0; 16]);
    mmap2.u32(5).u32(2).string("/lib/x");
    side_band(
        sys::PERF_RECORD_MMAP2,
        2 | 1 << 14,
        &mut mmap2,
        |record| match record {
            Record::Mmap2(found) => match found.identity {
                MapIdentity::BuildId(id) => assert_eq!(id.as_bytes(), [0xde, 0xad, 0xbe, 0xef]),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        },
    );

    side_band(
        sys::PERF_RECORD_AUX,
        0,
        Out::default().u64(1).u64(2).u64(5),
        |record| match record {
            Record::Aux(found) => {
                assert_eq!((found.offset, found.size), (1, 2));
                assert_eq!(found.flags, AuxFlags::TRUNCATED | AuxFlags::PARTIAL);
            }
            other => panic!("{other:?}"),
        },
    );

    let kind = sys::PERF_RECORD_ITRACE_START;
    side_band(kind, 0, Out::default().u32(1).u32(2), |record| {
        assert_eq!(record, Record::ItraceStart(thread));
    });

    side_band(
        sys::PERF_RECORD_LOST_SAMPLES,
        0,
        Out::default().u64(6),
        |record| {
            assert_eq!(record, Record::LostSamples { lost: 6 });
        },
    );

    side_band(
        sys::PERF_RECORD_SWITCH,
        1 << 13,
        &mut Out::default(),
        |record| {
            assert_eq!(record, Record::Switch);
        },
    );

    let kind = sys::PERF_RECORD_SWITCH_CPU_WIDE;
    side_band(
        kind,
        0,
        Out::default().u32(1).u32(2),
        |record| match record {
            Record::SwitchCpuWide(found) => assert_eq!(found.next_prev, thread),
            other => panic!("{other:?}"),
        },
    );

    let mut namespaces = Out::default();
    namespaces.u32(1).u32(2).u64(2).words(&[31, 32, 33, 34]);
    side_band(
        sys::PERF_RECORD_NAMESPACES,
        0,
        &mut namespaces,
        |record| match record {
            Record::Namespaces(found) => {
                let links: Vec<_> = found.iter().collect();
                let link = |dev, inode| Namespace { dev, inode };
                assert_eq!(
                    (found.thread, links),
                    (thread, vec![link(31, 32), link(33, 34)])
                );
            }
            other => panic!("{other:?}"),
        },
    );

    let mut ksymbol = Out::default();
    ksymbol
        .u64(0xffff_0000)
        .u32(64)
        .u16(1)
        .u16(1)
        .string("bpf_prog_1");
    side_band(
        sys::PERF_RECORD_KSYMBOL,
        0,
        &mut ksymbol,
        |record| match record {
            Record::Ksymbol(found) => {
                assert_eq!((found.addr, found.len, found.kind), (0xffff_0000, 64, 1));
                assert!(found.is_unregistered());
                assert_eq!(found.name, name("bpf_prog_1"));
            }
            other => panic!("{other:?}"),
        },
    );

    let mut bpf = Out::default();
    bpf.u16(1).u16(0).u32(44).bytes(b"tagtagta");
    side_band(
        sys::PERF_RECORD_BPF_EVENT,
        0,
        &mut bpf,
        |record| match record {
            Record::BpfEvent(found) => {
                assert_eq!((found.kind, found.id, &found.tag), (1, 44, b"tagtagta"));
            }
            other => panic!("{other:?}"),
        },
    );

    let mut cgroup = Out::default();
    cgroup.u64(55).string("/user.slice");
    side_band(
        sys::PERF_RECORD_CGROUP,
        0,
        &mut cgroup,
        |record| match record {
            Record::Cgroup(found) => assert_eq!((found.id, found.path), (55, name("/user.slice"))),
            other => panic!("{other:?}"),
        },
    );

    let mut poke = Out::default();
    // Four bytes of lengths, three old and five new ones: padded to 8 bytes.
    poke.u64(0xffff_1000)
        .u16(3)
        .u16(5)
        .bytes(b"oldnewer")
        .bytes(&[0; 4]);
    side_band(
        sys::PERF_RECORD_TEXT_POKE,
        1,
        &mut poke,
        |record| match record {
            Record::TextPoke(found) => {
                assert_eq!(
                    (found.addr, found.old, found.new),
                    (0xffff_1000, &b"old"[..], &b"newer"[..])
                );
            }
            other => panic!("{other:?}"),
        },
    );

    let kind = sys::PERF_RECORD_AUX_OUTPUT_HW_ID;
    side_band(kind, 0, Out::default().u64(9), |record| match record {
        Record::AuxOutputHwId(found) => assert_eq!(found.hw_id, 9),
        other => panic!("{other:?}"),
    });

    let mut deferred = Out::default();
    deferred.u64(0xc00c1e).u64(2).words(&[0x10, 0x20]);
    side_band(
        sys::PERF_RECORD_CALLCHAIN_DEFERRED,
        2,
        &mut deferred,
        |record| match record {
            Record::CallchainDeferred(found) => {
                assert_eq!(found.cookie, 0xc00c1e);
                let frames: Vec<_> = found
                    .callchain
                    .frames()
                    .map(|frame| frame.address)
                    .collect();
                assert_eq!(frames, [0x10, 0x20]);
            }
            other => panic!("{other:?}"),
        },
    );
}

#[test]
fn every_kind_of_the_header_has_its_own_record() {
    // A body that satisfies any kind, as all its lengths are 0.
    let body = vec![0; 512];
    for kind in 1..sys::PERF_RECORD_MAX {
        let bytes = record(kind, 0, &body);
        let decoded = decode(&Format::default(), &bytes);
        let is_sample = kind == sys::PERF_RECORD_SAMPLE;
        match decoded {
            Ok(Decoded {
                record: Record::Unknown(_),
                ..
            }) => panic!("kind {kind} is not known"),
            // A sample without fields has no body.
            Err(DecodeError::Trailing { left: 512 }) if is_sample => {}
            other => assert!(other.is_ok() && !is_sample, "kind {kind}: {other:?}"),
        }
    }
}

#[test]
fn unknown_kinds_pass_as_they_are() {
    for kind in [0, sys::PERF_RECORD_MAX, 68, u32::MAX] {
        let bytes = record(kind, 7, b"whatever");
        let decoded = decode(&Format::default(), &bytes).expect("an unknown record");
        match decoded.record {
            Record::Unknown(raw) => assert_eq!(raw.bytes(), bytes),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn markers_are_no_addresses() {
    let format = Format {
        sample_fields: SampleFields::CALLCHAIN,
        ..Format::default()
    };
    let marker = |back: u64| back.wrapping_neg();
    let mut body = Out::default();
    let words = [
        marker(128),
        0xffff_8000,
        1,
        marker(512),
        2,
        marker(4095),
        3,
        marker(640),
        99,
    ];
    body.u64(words.len() as u64).words(&words);
    let bytes = record(sys::PERF_RECORD_SAMPLE, 1, &body.0);
    let Record::Sample(sample) = decode(&format, &bytes).expect("a sample").record else {
        panic!("not a sample");
    };
    let chain = sample.callchain.expect("a chain");
    let frame = |context, address| Frame { context, address };
    assert_eq!(
        chain.frames().collect::<Vec<_>>(),
        [
            frame(Context::Kernel, 0xffff_8000),
            frame(Context::Kernel, 1),
            frame(Context::User, 2),
            frame(Context::Other(marker(4095)), 3),
        ]
    );
    let entries: Vec<_> = chain.entries().collect();
    assert_eq!(entries[7], ChainEntry::Context(Context::UserDeferred));
    assert_eq!(entries[8], ChainEntry::Cookie(99));
    assert_eq!(chain.cookie(), Some(99));
}

#[test]
fn events_of_different_formats_share_a_decoder() {
    let clock = |fields| Attr::new(Software::CpuClock).sample(Rate::Period(1), fields);
    let short = clock(SampleFields::IDENTIFIER | SampleFields::IP);
    let long = clock(SampleFields::IDENTIFIER | SampleFields::IP | SampleFields::TIME);
    let decoder = Decoder::with_events([(7, &short), (3, &long)]).expect("ids are in place");
    for (id, words, time) in [(7, &[7, 1][..], None), (3, &[3, 1, 2], Some(2))] {
        let mut body = Out::default();
        let bytes = record(sys::PERF_RECORD_SAMPLE, 0, &body.words(words).0);
        let decoded = decoder.decode(RawRecord::new(&bytes).expect("a record"));
        let decoded = decoded.expect("a sample");
        assert_eq!((decoded.id.id, decoded.id.time), (Some(id), time));
    }
    // Records that are no samples end in the id.
    let bytes = record(
        sys::PERF_RECORD_LOST,
        0,
        &Out::default().u64(7).u64(5).u64(2).u64(3).0,
    );
    let decoded = decoder
        .decode(RawRecord::new(&bytes).expect("a record"))
        .expect("a record");
    assert_eq!(decoded.id.time, Some(2));
    let bytes = record(sys::PERF_RECORD_SAMPLE, 0, &Out::default().u64(8).u64(1).0);
    let unknown = decoder.decode(RawRecord::new(&bytes).expect("a record"));
    assert_eq!(unknown, Err(DecodeError::UnknownEvent(8)));

    let bare = clock(SampleFields::IP);
    let ambiguous = Decoder::with_events([(7, &bare), (3, &long)]);
    assert_eq!(ambiguous.map(|_| ()), Err(DecodeError::Ambiguous));
    // With one format there is nothing to tell apart.
    assert!(Decoder::with_events([(7, &bare), (3, &bare)]).is_ok());
}

#[test]
fn attributes_decide_the_format() {
    let attr = Attr::new(Software::Dummy)
        .sample(Rate::Period(9), SampleFields::READ)
        .read_format(ReadFormat::GROUP)
        .branch_stack(BranchFilter::ANY)
        .user_registers(5)
        .interrupt_registers(6)
        .side_band(SideBand::COMM);
    let format = Format::from(&attr);
    let fields = SampleFields::READ
        | SampleFields::BRANCH_STACK
        | SampleFields::REGS_USER
        | SampleFields::REGS_INTR;
    assert_eq!(format.sample_fields, fields);
    assert_eq!(format.read_format, ReadFormat::GROUP);
    assert_eq!(format.branch_filter, BranchFilter::ANY);
    assert_eq!((format.user_registers, format.interrupt_registers), (5, 6));
    assert!(format.sample_id_all);
    assert!(!Format::from(&attr.without_sample_id()).sample_id_all);
}
