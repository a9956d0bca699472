// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples (`PERF_RECORD_SAMPLE`).

use crate::count::Counts;
use crate::flags::SampleFields;
use crate::record::branch::BranchStack;
use crate::record::callchain::CallChain;
use crate::record::cursor::{Cursor, DecodeError, Words};
use crate::record::decoder::Format;
use crate::record::memory::{DataSource, Transaction, Weight};
use crate::record::side_band::{SampleId, ThreadId};
use crate::sys;

/// A sample. A field that the attributes did not ask for is `None`.
///
/// The fields are in the kernel's order here, that of `perf_output_sample()`. Programs in
/// circulation get it wrong in two places: a call chain begins with its length, and an id is
/// there only when `ID` or `IDENTIFIER` was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample<'a> {
    /// `IDENTIFIER`: id of the event.
    pub identifier: Option<u64>,
    /// `IP`: instruction pointer. 0 where the kernel must not tell.
    pub ip: Option<u64>,
    /// `TID`: process and thread.
    pub thread: Option<ThreadId>,
    /// `TIME`: nanoseconds.
    pub time: Option<u64>,
    /// `ADDR`: data address; 0 where the PMU knows none.
    pub addr: Option<u64>,
    /// `ID`: id of the event.
    pub id: Option<u64>,
    /// `STREAM_ID`: id of the event itself, also where it was inherited.
    pub stream_id: Option<u64>,
    /// `CPU`.
    pub cpu: Option<u32>,
    /// `PERIOD`: how many events the sample stands for.
    pub period: Option<u64>,
    /// `READ`: counts.
    pub counts: Option<Counts<'a>>,
    /// `CALLCHAIN`: call chain.
    pub callchain: Option<CallChain<'a>>,
    /// `RAW`: what the PMU adds, padding included.
    pub raw: Option<&'a [u8]>,
    /// `BRANCH_STACK`: recent branches.
    pub branch_stack: Option<BranchStack<'a>>,
    /// `REGS_USER`: user registers.
    pub user_registers: Option<Registers<'a>>,
    /// `STACK_USER`: copy of the user stack.
    pub user_stack: Option<UserStack<'a>>,
    /// `WEIGHT` or `WEIGHT_STRUCT`: cost of the access.
    pub weight: Option<Weight>,
    /// `DATA_SRC`: where the data came from.
    pub data_source: Option<DataSource>,
    /// `TRANSACTION`: why a transaction aborted.
    pub transaction: Option<Transaction>,
    /// `REGS_INTR`: registers at the interrupt.
    pub interrupt_registers: Option<Registers<'a>>,
    /// `PHYS_ADDR`: physical address of `addr`; 0 where the kernel could not tell.
    pub phys_addr: Option<u64>,
    /// `CGROUP`: id of the task's cgroup.
    pub cgroup: Option<u64>,
    /// `DATA_PAGE_SIZE`: bytes of the page that holds `addr`; 0 where the kernel could not tell.
    pub data_page_size: Option<u64>,
    /// `CODE_PAGE_SIZE`: bytes of the page that holds `ip`; 0 where the kernel could not tell.
    pub code_page_size: Option<u64>,
    /// `AUX`: a piece of the AUX area.
    pub aux: Option<&'a [u8]>,
}

/// Whose registers were saved (`PERF_SAMPLE_REGS_ABI_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterAbi {
    /// A 32-bit task's.
    Bits32,
    /// A 64-bit task's.
    Bits64,
    /// Something newer than this library.
    Other(u64),
}

/// Registers at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers<'a> {
    /// Whose they are; `None` where there are none, as for the user registers of a kernel thread.
    pub abi: Option<RegisterAbi>,
    mask: u64,
    values: Words<'a>,
}

impl<'a> Registers<'a> {
    fn take(mask: u64, cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let abi = match cursor.u64("register abi")? {
            0 => None,
            abi if abi == u64::from(sys::PERF_SAMPLE_REGS_ABI_32) => Some(RegisterAbi::Bits32),
            abi if abi == u64::from(sys::PERF_SAMPLE_REGS_ABI_64) => Some(RegisterAbi::Bits64),
            abi => Some(RegisterAbi::Other(abi)),
        };
        let values = match abi {
            Some(_) => cursor.words(mask.count_ones().into(), "registers")?,
            None => Words::default(),
        };
        Ok(Self { abi, mask, values })
    }

    /// The value of the register whose bit in the mask is number `number`; `None` if it was not
    /// asked for or could not be had.
    pub fn get(self, number: u32) -> Option<u64> {
        let bit = 1u64.checked_shl(number)?;
        if self.mask & bit == 0 {
            return None;
        }
        // Values are in the order of their bits.
        let before = (self.mask & (bit - 1)).count_ones();
        self.values.get(before as usize)
    }

    /// Numbers and values.
    pub fn iter(self) -> impl Iterator<Item = (u32, u64)> + 'a {
        (0..u64::BITS).filter_map(move |number| Some((number, self.get(number)?)))
    }
}

/// A copy of the top of the user stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserStack<'a> {
    /// The room that the kernel set aside. What is beyond `valid` holds nothing.
    pub bytes: &'a [u8],
    /// How many of them were copied, from the stack pointer on.
    valid: usize,
}

impl<'a> UserStack<'a> {
    fn take(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let size = cursor.u64("stack size")?;
        if size == 0 {
            // There was no stack: the kernel stops here.
            return Ok(Self::default());
        }
        let bytes = cursor.bytes(size, "stack")?;
        let copied = cursor.u64("stack dyn_size")?;
        // No more was copied than there is room, whatever a damaged record says.
        let valid = usize::try_from(copied).map_or(bytes.len(), |valid| valid.min(bytes.len()));
        Ok(Self { bytes, valid })
    }

    /// What was copied, from the stack pointer on.
    pub fn copied(self) -> &'a [u8] {
        &self.bytes[..self.valid]
    }
}

impl<'a> Sample<'a> {
    /// Decodes the body of a sample.
    pub(crate) fn decode(format: &Format, body: &'a [u8]) -> Result<Self, DecodeError> {
        let decode = |whole_branch_stack| {
            let mut cursor = Cursor::new(body);
            let sample = Self::take(format, whole_branch_stack, &mut cursor)?;
            match cursor.left() {
                0 => Ok(sample),
                left => Err(DecodeError::Trailing { left }),
            }
        };
        // A branch stack may lack what was asked for (see `BranchStack::take`), and only the size
        // of the whole record tells.
        decode(true).or_else(|error| decode(false).map_err(|_| error))
    }

    /// Takes the fields off in the order of `perf_output_sample()`.
    fn take(
        format: &Format,
        whole_branch_stack: bool,
        cursor: &mut Cursor<'a>,
    ) -> Result<Self, DecodeError> {
        let fields = format.sample_fields;
        let has = |field| fields.contains(field);
        let mut sample = Self::default();
        if has(SampleFields::IDENTIFIER) {
            sample.identifier = Some(cursor.u64("identifier")?);
        }
        if has(SampleFields::IP) {
            sample.ip = Some(cursor.u64("ip")?);
        }
        if has(SampleFields::TID) {
            sample.thread = Some(ThreadId::take(cursor)?);
        }
        if has(SampleFields::TIME) {
            sample.time = Some(cursor.u64("time")?);
        }
        if has(SampleFields::ADDR) {
            sample.addr = Some(cursor.u64("addr")?);
        }
        if has(SampleFields::ID) {
            sample.id = Some(cursor.u64("id")?);
        }
        if has(SampleFields::STREAM_ID) {
            sample.stream_id = Some(cursor.u64("stream_id")?);
        }
        if has(SampleFields::CPU) {
            sample.cpu = Some(cursor.u32("cpu")?);
            cursor.u32("res")?;
        }
        if has(SampleFields::PERIOD) {
            sample.period = Some(cursor.u64("period")?);
        }
        if has(SampleFields::READ) {
            sample.counts = Some(Counts::take(format.read_format, cursor)?);
        }
        if has(SampleFields::CALLCHAIN) {
            let count = cursor.u64("call-chain length")?;
            sample.callchain = Some(CallChain(cursor.words(count, "call chain")?));
        }
        if has(SampleFields::RAW) {
            let size = cursor.u32("raw size")?;
            sample.raw = Some(cursor.bytes(size.into(), "raw")?);
        }
        if has(SampleFields::BRANCH_STACK) {
            let filter = format.branch_filter;
            sample.branch_stack = Some(BranchStack::take(filter, whole_branch_stack, cursor)?);
        }
        if has(SampleFields::REGS_USER) {
            sample.user_registers = Some(Registers::take(format.user_registers, cursor)?);
        }
        if has(SampleFields::STACK_USER) {
            sample.user_stack = Some(UserStack::take(cursor)?);
        }
        if has(SampleFields::WEIGHT) {
            sample.weight = Some(Weight::Full(cursor.u64("weight")?));
        } else if has(SampleFields::WEIGHT_STRUCT) {
            sample.weight = Some(Weight::parts(cursor.u64("weight")?));
        }
        if has(SampleFields::DATA_SRC) {
            sample.data_source = Some(DataSource(cursor.u64("data_src")?));
        }
        if has(SampleFields::TRANSACTION) {
            let bits = cursor.u64("transaction")?;
            sample.transaction = Some(Transaction::from_bits_retain(bits));
        }
        if has(SampleFields::REGS_INTR) {
            let registers = Registers::take(format.interrupt_registers, cursor)?;
            sample.interrupt_registers = Some(registers);
        }
        if has(SampleFields::PHYS_ADDR) {
            sample.phys_addr = Some(cursor.u64("phys_addr")?);
        }
        if has(SampleFields::CGROUP) {
            sample.cgroup = Some(cursor.u64("cgroup")?);
        }
        if has(SampleFields::DATA_PAGE_SIZE) {
            sample.data_page_size = Some(cursor.u64("data_page_size")?);
        }
        if has(SampleFields::CODE_PAGE_SIZE) {
            sample.code_page_size = Some(cursor.u64("code_page_size")?);
        }
        if has(SampleFields::AUX) {
            let size = cursor.u64("aux size")?;
            sample.aux = Some(cursor.bytes(size, "aux")?);
        }
        Ok(sample)
    }

    /// The fields that other records carry too.
    pub fn sample_id(&self) -> SampleId {
        SampleId {
            thread: self.thread,
            time: self.time,
            id: self.identifier.or(self.id),
            stream_id: self.stream_id,
            cpu: self.cpu,
        }
    }
}
