// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records: what the kernel writes to a ring.
//!
//! A [`RawRecord`] is bytes with a header. A [`Decoder`], made from the attributes of the events
//! that write to the ring, turns it into a [`Record`], which borrows from the bytes and
//! allocates nothing.

mod branch;
mod callchain;
pub(crate) mod cursor;
mod decoder;
mod memory;
mod misc;
mod sample;
mod side_band;

pub use branch::{BranchEntry, BranchStack, BranchType, Privilege, Speculation};
pub use callchain::{CallChain, ChainEntry, Context, Frame};
pub use cursor::{DecodeError, Words};
pub use decoder::{Decoder, Format};
pub use memory::{
    DataSource, MemBlock, MemLevel, MemLock, MemOp, MemSnoop, MemSnoopX, MemTlb, Transaction,
    Weight,
};
pub use misc::{CpuMode, Header, Misc};
pub use sample::{RegisterAbi, Registers, Sample, UserStack};
pub use side_band::{
    Aux, AuxFlags, AuxOutputHwId, BpfEvent, BuildId, CallchainDeferred, Cgroup, Comm, Ksymbol,
    Lost, MapIdentity, Mmap, Mmap2, Namespace, Namespaces, ReadCounts, SampleId, SwitchCpuWide,
    Task, TextPoke, ThreadId, Throttle,
};

/// The bytes of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    header: Header,
    /// Header and body.
    bytes: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// A record that is exactly `bytes`.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Short`] if they hold no header, [`DecodeError::HeaderSize`] if its size is
    /// another.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let Some(start) = bytes.first_chunk() else {
            return Err(DecodeError::Short {
                field: "header",
                needed: Header::SIZE as u64,
                left: bytes.len(),
            });
        };
        let header = Header::from_bytes(*start);
        if usize::from(header.size) != bytes.len() {
            return Err(DecodeError::HeaderSize {
                size: header.size,
                given: bytes.len(),
            });
        }
        Ok(Self { header, bytes })
    }

    /// A record of `header.size` bytes, which is at least the header's own.
    pub(crate) fn of_checked(header: Header, bytes: &'a [u8]) -> Self {
        Self { header, bytes }
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// All bytes, the header's included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes behind the header.
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(Header::SIZE..).unwrap_or_default()
    }
}

/// A record, decoded. Each kind is named after its `PERF_RECORD_*`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
// The largest kind is the one that fills rings: a box for it would allocate for each sample.
#[allow(clippy::large_enum_variant)]
pub enum Record<'a> {
    /// A new mapping.
    Mmap(Mmap<'a>),
    /// Records were lost, since the ring was full.
    Lost(Lost),
    /// A task has a new name.
    Comm(Comm<'a>),
    /// A task ended.
    Exit(Task),
    /// Sampling stopped until the next tick, since the event was too frequent.
    Throttle(Throttle),
    /// Sampling goes on.
    Unthrottle(Throttle),
    /// A task was created.
    Fork(Task),
    /// The counts of an inherited event when its task ended.
    Read(ReadCounts<'a>),
    /// A sample.
    Sample(Sample<'a>),
    /// A new mapping, with more about its file.
    Mmap2(Mmap2<'a>),
    /// New bytes in the AUX area.
    Aux(Aux),
    /// Instruction tracing started.
    ItraceStart(ThreadId),
    /// The hardware lost samples before they came to the ring.
    LostSamples {
        /// How many.
        lost: u64,
    },
    /// The task went on or off the CPU: see the header's [`Misc`].
    Switch,
    /// Some task went on or off the CPU.
    SwitchCpuWide(SwitchCpuWide),
    /// The namespaces of a task.
    Namespaces(Namespaces<'a>),
    /// A kernel symbol came or went.
    Ksymbol(Ksymbol<'a>),
    /// A BPF program came or went.
    BpfEvent(BpfEvent),
    /// A new cgroup.
    Cgroup(Cgroup<'a>),
    /// Kernel text changed.
    TextPoke(TextPoke<'a>),
    /// The number that the hardware uses for an event in the AUX area.
    AuxOutputHwId(AuxOutputHwId),
    /// A user call chain that samples before promised.
    CallchainDeferred(CallchainDeferred<'a>),
    /// A kind that is newer than this library.
    Unknown(RawRecord<'a>),
}

/// A record with what is common to all kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoded<'a> {
    /// Flags of the header.
    pub misc: Misc,
    /// Which event, task, CPU and time it belongs to, as far as the attributes asked for that.
    /// Samples carry the same in fields of their own, and have it here too.
    pub id: SampleId,
    /// The record itself.
    pub record: Record<'a>,
}
