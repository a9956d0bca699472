// SPDX-License-Identifier: MIT OR Apache-2.0
//! An encoder of records, written from the layout in `include/uapi/linux/perf_event.h` and apart
//! from the decoder.

// Each test binary uses a part.
#![allow(dead_code)]

use perfshim::record::Format;
use perfshim::{BranchFilter, ReadFormat, SampleFields, sys};

/// Bytes under construction.
#[derive(Default)]
pub struct Out(pub Vec<u8>);

impl Out {
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub fn words(&mut self, values: &[u64]) -> &mut Self {
        for &value in values {
            self.u64(value);
        }
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    /// A string as the kernel writes it: ends in 0, padded to 8 bytes.
    pub fn string(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes());
        let padded = (text.len() + 1).next_multiple_of(8);
        self.bytes(&vec![0; padded - text.len()])
    }
}

/// Header and body as a record.
pub fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).expect("a record is smaller than 64 KiB");
    let mut out = Out::default();
    out.u32(kind).u16(misc).u16(size).bytes(body);
    out.0
}

/// Counts as the kernel lays them out: `members` are (value, id, lost).
pub fn counts(out: &mut Out, format: ReadFormat, times: (u64, u64), members: &[(u64, u64, u64)]) {
    let put_times = |out: &mut Out| {
        if format.contains(ReadFormat::TOTAL_TIME_ENABLED) {
            out.u64(times.0);
        }
        if format.contains(ReadFormat::TOTAL_TIME_RUNNING) {
            out.u64(times.1);
        }
    };
    let put_rest = |out: &mut Out, &(_, id, lost): &(u64, u64, u64)| {
        if format.contains(ReadFormat::ID) {
            out.u64(id);
        }
        if format.contains(ReadFormat::LOST) {
            out.u64(lost);
        }
    };
    if format.contains(ReadFormat::GROUP) {
        out.u64(members.len() as u64);
        put_times(out);
        for member in members {
            out.u64(member.0);
            put_rest(out, member);
        }
    } else {
        out.u64(members[0].0);
        put_times(out);
        put_rest(out, &members[0]);
    }
}

/// A sample with a value for every field; `format` picks those that are written.
#[derive(Clone, Debug)]
pub struct Model {
    pub format: Format,
    pub identifier: u64,
    pub ip: u64,
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub addr: u64,
    pub id: u64,
    pub stream_id: u64,
    pub cpu: u32,
    pub period: u64,
    pub times: (u64, u64),
    /// Value, id, lost; at least one.
    pub members: Vec<(u64, u64, u64)>,
    pub chain: Vec<u64>,
    /// Its length plus 4 is a multiple of 8, as the kernel sees to.
    pub raw: Vec<u8>,
    /// Whether the PMU delivered a branch stack, be it an empty one.
    pub has_stack: bool,
    /// Whether it delivered counters with it.
    pub has_counters: bool,
    pub hw_index: u64,
    /// From, to, flags, counter.
    pub branches: Vec<(u64, u64, u64, u64)>,
    pub user_abi: u64,
    /// 64 values, of which the mask picks.
    pub user_registers: Vec<u64>,
    /// A multiple of 8 bytes.
    pub stack: Vec<u8>,
    pub stack_copied: u64,
    pub weight: u64,
    pub data_source: u64,
    pub transaction: u64,
    pub interrupt_abi: u64,
    pub interrupt_registers: Vec<u64>,
    pub phys_addr: u64,
    pub cgroup: u64,
    pub data_page_size: u64,
    pub code_page_size: u64,
    /// A multiple of 8 bytes.
    pub aux: Vec<u8>,
}

/// The values whose bits are set in `mask`.
pub fn picked(values: &[u64], mask: u64) -> Vec<u64> {
    let numbered = values.iter().enumerate();
    let picked = numbered.filter(|(number, _)| mask >> number & 1 != 0);
    picked.map(|(_, &value)| value).collect()
}

impl Model {
    /// The sample as a record.
    pub fn encode(&self) -> Vec<u8> {
        record(sys::PERF_RECORD_SAMPLE, 2, &self.body())
    }

    fn body(&self) -> Vec<u8> {
        let has = |field| self.format.sample_fields.contains(field);
        let mut out = Out::default();
        for (field, value) in [
            (SampleFields::IDENTIFIER, self.identifier),
            (SampleFields::IP, self.ip),
        ] {
            if has(field) {
                out.u64(value);
            }
        }
        if has(SampleFields::TID) {
            out.u32(self.pid).u32(self.tid);
        }
        for (field, value) in [
            (SampleFields::TIME, self.time),
            (SampleFields::ADDR, self.addr),
            (SampleFields::ID, self.id),
            (SampleFields::STREAM_ID, self.stream_id),
        ] {
            if has(field) {
                out.u64(value);
            }
        }
        if has(SampleFields::CPU) {
            out.u32(self.cpu).u32(0);
        }
        if has(SampleFields::PERIOD) {
            out.u64(self.period);
        }
        if has(SampleFields::READ) {
            counts(&mut out, self.format.read_format, self.times, &self.members);
        }
        if has(SampleFields::CALLCHAIN) {
            out.u64(self.chain.len() as u64).words(&self.chain);
        }
        if has(SampleFields::RAW) {
            out.u32(self.raw.len() as u32).bytes(&self.raw);
        }
        if has(SampleFields::BRANCH_STACK) {
            self.branch_stack(&mut out);
        }
        if has(SampleFields::REGS_USER) {
            out.u64(self.user_abi);
            if self.user_abi != 0 {
                out.words(&picked(&self.user_registers, self.format.user_registers));
            }
        }
        if has(SampleFields::STACK_USER) {
            out.u64(self.stack.len() as u64);
            if !self.stack.is_empty() {
                out.bytes(&self.stack).u64(self.stack_copied);
            }
        }
        if self
            .format
            .sample_fields
            .intersects(SampleFields::WEIGHT | SampleFields::WEIGHT_STRUCT)
        {
            out.u64(self.weight);
        }
        if has(SampleFields::DATA_SRC) {
            out.u64(self.data_source);
        }
        if has(SampleFields::TRANSACTION) {
            out.u64(self.transaction);
        }
        if has(SampleFields::REGS_INTR) {
            out.u64(self.interrupt_abi);
            if self.interrupt_abi != 0 {
                let mask = self.format.interrupt_registers;
                out.words(&picked(&self.interrupt_registers, mask));
            }
        }
        for (field, value) in [
            (SampleFields::PHYS_ADDR, self.phys_addr),
            (SampleFields::CGROUP, self.cgroup),
            (SampleFields::DATA_PAGE_SIZE, self.data_page_size),
            (SampleFields::CODE_PAGE_SIZE, self.code_page_size),
        ] {
            if has(field) {
                out.u64(value);
            }
        }
        if has(SampleFields::AUX) {
            out.u64(self.aux.len() as u64).bytes(&self.aux);
        }
        out.0
    }

    fn branch_stack(&self, out: &mut Out) {
        if !self.has_stack {
            out.u64(0);
            return;
        }
        out.u64(self.branches.len() as u64);
        if self.format.branch_filter.contains(BranchFilter::HW_INDEX) {
            out.u64(self.hw_index);
        }
        for &(from, to, flags, _) in &self.branches {
            out.u64(from).u64(to).u64(flags);
        }
        if self.has_counters && self.format.branch_filter.contains(BranchFilter::COUNTERS) {
            for &(_, _, _, counter) in &self.branches {
                out.u64(counter);
            }
        }
    }
}

/// Numbers that look random and come again for the same seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
