// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that nobody vouches for: the reader and the decoder answer with records or errors, and
//! come to an end.
//!
//! The seed is printed; `PERFSHIM_SEED=N` runs that one again, `PERFSHIM_ROUNDS=N` sets how long.

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::{Model, Random};
use perfshim::record::Format;
use perfshim::{
    BranchFilter, Decoded, Error, RawRecord, ReadFormat, Record, SampleFields, Snapshot, Span, sys,
};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn random(test: &str) -> (Random, u64) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos() as u64);
    let seed = number("PERFSHIM_SEED").unwrap_or(now);
    println!("{test}: PERFSHIM_SEED={seed}");
    (Random(seed), number("PERFSHIM_ROUNDS").unwrap_or(20_000))
}

fn format(random: &mut Random) -> Format {
    Format {
        // Few fields now and then, so that decoding gets far.
        sample_fields: SampleFields::from_bits_truncate(random.next() & random.next()),
        read_format: ReadFormat::from_bits_truncate(random.next()),
        sample_id_all: random.below(2) == 0,
        branch_filter: BranchFilter::from_bits_truncate(random.next()),
        user_registers: random.next() & random.next(),
        interrupt_registers: random.next() & random.next(),
    }
}

/// Looks at all that a record offers. Returns a number so that nothing is optimised away.
fn visit(decoded: &Decoded<'_>) -> usize {
    let mut seen = format!("{:?}", decoded.misc.cpu_mode()).len();
    match &decoded.record {
        Record::Sample(sample) => {
            if let Some(counts) = sample.counts {
                seen += counts.iter().filter_map(|count| count.scaled()).count();
            }
            if let Some(chain) = sample.callchain {
                seen += chain.entries().count() + chain.frames().count();
            }
            if let Some(stack) = sample.branch_stack {
                seen += stack.counters().map_or(0, |counters| counters.len());
                for branch in stack.iter() {
                    let flags = (branch.kind(), branch.speculation(), branch.privilege());
                    seen += format!("{flags:?}").len();
                }
            }
            for registers in [sample.user_registers, sample.interrupt_registers] {
                seen += registers.map_or(0, |registers| registers.iter().count());
            }
            seen += sample.user_stack.map_or(0, |stack| stack.copied().len());
            if let Some(source) = sample.data_source {
                seen += format!("{:?}{:?}", source.op(), source.region()).len();
            }
        }
        Record::Read(read) => seen += read.counts.iter().count(),
        Record::Namespaces(namespaces) => seen += namespaces.iter().count(),
        Record::CallchainDeferred(deferred) => seen += deferred.callchain.entries().count(),
        other => seen += format!("{other:?}").len(),
    }
    seen
}

#[test]
fn the_decoder_survives_random_records() {
    let (mut random, rounds) = random("decoder");
    let mut decoded_some = false;
    for _ in 0..rounds {
        let format = format(&mut random);
        // Small sizes are as likely as large ones.
        let most = 8 << random.below(8);
        let size = 8 + random.below(most);
        let mut bytes: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        if random.below(2) == 0 {
            // Mostly zeroes: lengths that are small.
            for byte in &mut bytes {
                *byte &= if random.below(8) == 0 { 7 } else { 0 };
            }
        }
        let kind = random.below(u64::from(sys::PERF_RECORD_MAX) + 2) as u32;
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(size as u16).to_ne_bytes());
        let raw = RawRecord::new(&bytes).expect("the size is right");
        if let Ok(decoded) = format.decode(raw) {
            decoded_some |= visit(&decoded) > 0;
        }
    }
    assert!(
        decoded_some || rounds < 100,
        "no random record decoded: the test reaches nothing"
    );
}

#[test]
fn the_decoder_survives_damaged_samples() {
    let (mut random, rounds) = random("damaged samples");
    for _ in 0..rounds / 4 {
        let format = format(&mut random);
        let r = &mut random;
        let words = |r: &mut Random, n: u64| (0..n).map(|_| r.next()).collect::<Vec<_>>();
        let bytes = |r: &mut Random, n: u64| (0..n).map(|_| r.next() as u8).collect::<Vec<_>>();
        let model = Model {
            format,
            identifier: r.next(),
            ip: r.next(),
            pid: 1,
            tid: 2,
            time: r.next(),
            addr: 0,
            id: 3,
            stream_id: 4,
            cpu: 0,
            period: 5,
            times: (6, 7),
            members: vec![(1, 2, 3), (4, 5, 6)],
            chain: words(r, 5),
            raw: bytes(r, 12),
            has_stack: r.below(2) == 0,
            has_counters: r.below(2) == 0,
            hw_index: 8,
            branches: vec![(1, 2, r.next(), 3); 3],
            user_abi: r.below(3),
            user_registers: words(r, 64),
            stack: bytes(r, 16),
            stack_copied: r.below(32),
            weight: r.next(),
            data_source: r.next(),
            transaction: r.next(),
            interrupt_abi: r.below(3),
            interrupt_registers: words(r, 64),
            phys_addr: 0,
            cgroup: 0,
            data_page_size: 0,
            code_page_size: 0,
            aux: bytes(r, 8),
        };
        let mut record = model.encode();
        let whole = format.decode(RawRecord::new(&record).expect("a record"));
        assert!(visit(&whole.expect("a right sample")) > 0);
        for _ in 0..=random.below(4) {
            let at = 8 + random.below(record.len() as u64 - 8 + 1) as usize;
            if let Some(byte) = record.get_mut(at) {
                *byte = random.next() as u8;
            }
        }
        if let Ok(decoded) = format.decode(RawRecord::new(&record).expect("a record")) {
            visit(&decoded);
        }
    }
}

#[test]
fn the_reader_survives_random_rings() {
    let (mut random, rounds) = random("rings");
    for _ in 0..rounds {
        // Powers of two as from the kernel, and any size at all.
        let size = match random.below(2) {
            0 => 1 << random.below(10),
            _ => random.below(600),
        };
        let mut data: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        if random.below(2) == 0 {
            // Sizes that may be right.
            for header in data.chunks_exact_mut(8) {
                let size = 8 * random.below(12) as u16;
                header[6..8].copy_from_slice(&size.to_ne_bytes());
            }
        }
        let tail = random.next() >> random.below(64);
        let head = match random.below(4) {
            0 => random.next(),
            _ => tail.wrapping_add(random.below(size + 2)),
        };
        let format = format(&mut random);
        if let Ok(mut span) = Span::of_ring(&data, tail, head) {
            let unread = span.len();
            let mut scratch = Vec::new();
            let mut taken = 0;
            while let Ok(Some(record)) = span.take_record(&mut scratch) {
                taken += record.bytes().len();
                if let Ok(decoded) = format.decode(record) {
                    visit(&decoded);
                }
            }
            assert_eq!(taken + span.len(), unread);
            assert_eq!(span.position(), tail.wrapping_add(taken as u64));
        } else {
            assert!(head.wrapping_sub(tail) > size);
        }
        let mut bytes = 0;
        let snapshot = Snapshot::new(data, head);
        let _ = snapshot.for_each(|record| {
            bytes += record.bytes().len() as u64;
            Ok::<_, Error>(())
        });
        assert!(bytes <= size);
    }
}
