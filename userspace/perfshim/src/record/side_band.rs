// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that are not samples.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bitflags::bitflags;

use crate::count::Counts;
use crate::flags::{ReadFormat, SampleFields};
use crate::record::Misc;
use crate::record::callchain::CallChain;
use crate::record::cursor::{Cursor, DecodeError, Words};
use crate::sys;

type Decode<T> = Result<T, DecodeError>;

/// Which event, task, CPU and time a record belongs to (`struct sample_id`). A field that the
/// attributes did not ask for is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// Process and thread.
    pub thread: Option<ThreadId>,
    /// Time in nanoseconds.
    pub time: Option<u64>,
    /// Id of the event, from `ID` or `IDENTIFIER`.
    pub id: Option<u64>,
    /// Id of the event itself, also where it was inherited.
    pub stream_id: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
}

impl SampleId {
    /// Bytes that it takes at the end of a record.
    pub(crate) fn size(fields: SampleFields) -> usize {
        (fields & SampleFields::IDENTITY).bits().count_ones() as usize * 8
    }

    /// Takes it off the front of `cursor`, in the order of `__perf_event__output_id_sample`.
    pub(crate) fn take(fields: SampleFields, cursor: &mut Cursor<'_>) -> Decode<Self> {
        let mut id = Self::default();
        if fields.contains(SampleFields::TID) {
            id.thread = Some(ThreadId::take(cursor)?);
        }
        if fields.contains(SampleFields::TIME) {
            id.time = Some(cursor.u64("sample_id.time")?);
        }
        if fields.contains(SampleFields::ID) {
            id.id = Some(cursor.u64("sample_id.id")?);
        }
        if fields.contains(SampleFields::STREAM_ID) {
            id.stream_id = Some(cursor.u64("sample_id.stream_id")?);
        }
        if fields.contains(SampleFields::CPU) {
            id.cpu = Some(cursor.u32("sample_id.cpu")?);
            cursor.u32("sample_id.res")?;
        }
        if fields.contains(SampleFields::IDENTIFIER) {
            id.id = Some(cursor.u64("sample_id.identifier")?);
        }
        Ok(id)
    }
}

/// A process and one of its threads, in the pid namespace of the program that opened the event.
/// A task that is not in there is 0; one that has ended may be all ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThreadId {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
}

impl ThreadId {
    pub(crate) fn take(cursor: &mut Cursor<'_>) -> Decode<Self> {
        Ok(Self {
            pid: cursor.u32("pid")?,
            tid: cursor.u32("tid")?,
        })
    }
}

/// The bytes before the first 0: the kernel pads strings to 8 bytes.
fn string(cursor: Cursor<'_>) -> &OsStr {
    let bytes = cursor.rest();
    let end = bytes.iter().position(|&byte| byte == 0);
    OsStr::from_bytes(&bytes[..end.unwrap_or(bytes.len())])
}

/// A new mapping (`PERF_RECORD_MMAP`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// Who mapped it.
    pub thread: ThreadId,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Where it starts in the file, in bytes.
    pub page_offset: u64,
    /// The file, or a name such as `[vdso]` or `//anon`.
    pub filename: &'a OsStr,
}

impl<'a> Mmap<'a> {
    pub(crate) fn take(mut cursor: Cursor<'a>) -> Decode<Self> {
        Ok(Self {
            thread: ThreadId::take(&mut cursor)?,
            addr: cursor.u64("addr")?,
            len: cursor.u64("len")?,
            page_offset: cursor.u64("pgoff")?,
            filename: string(cursor),
        })
    }
}

/// A new mapping, with more about its file (`PERF_RECORD_MMAP2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap2<'a> {
    /// What `MMAP` has too.
    pub mmap: Mmap<'a>,
    /// Which file it is.
    pub identity: MapIdentity,
    /// `PROT_*`.
    pub prot: u32,
    /// `MAP_*`.
    pub flags: u32,
}

/// How a mapped file is told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapIdentity {
    /// By device and inode.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        /// Inode.
        inode: u64,
        /// Generation of the inode.
        generation: u64,
    },
    /// By its content.
    BuildId(BuildId),
}

/// The build id of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BuildId {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl BuildId {
    /// The most bytes that a build id has.
    pub const MAX: usize = 20;

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// What the kernel leaves unused of the 20 bytes is 0; a size beyond them is cut.
    fn take(cursor: &mut Cursor<'_>) -> Decode<Self> {
        let size = cursor.u8("build_id_size")?;
        cursor.bytes(3, "build id padding")?;
        let mut bytes = [0; Self::MAX];
        bytes.copy_from_slice(cursor.bytes(Self::MAX as u64, "build_id")?);
        Ok(Self {
            bytes,
            len: usize::from(size).min(Self::MAX),
        })
    }
}

impl<'a> Mmap2<'a> {
    pub(crate) fn take(misc: Misc, mut cursor: Cursor<'a>) -> Decode<Self> {
        let thread = ThreadId::take(&mut cursor)?;
        let addr = cursor.u64("addr")?;
        let len = cursor.u64("len")?;
        let page_offset = cursor.u64("pgoff")?;
        let identity = if misc.is_mmap_build_id() {
            MapIdentity::BuildId(BuildId::take(&mut cursor)?)
        } else {
            MapIdentity::Inode {
                major: cursor.u32("maj")?,
                minor: cursor.u32("min")?,
                inode: cursor.u64("ino")?,
                generation: cursor.u64("ino_generation")?,
            }
        };
        Ok(Self {
            identity,
            prot: cursor.u32("prot")?,
            flags: cursor.u32("flags")?,
            mmap: Mmap {
                thread,
                addr,
                len,
                page_offset,
                filename: string(cursor),
            },
        })
    }
}

/// Records were lost, since the ring was full (`PERF_RECORD_LOST`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Id of the event whose record came first after the loss; not always the one that lost.
    pub id: u64,
    /// How many were lost since the last such record.
    pub lost: u64,
}

impl Lost {
    pub(crate) fn take(mut cursor: Cursor<'_>) -> Decode<Self> {
        Ok(Self {
            id: cursor.u64("id")?,
            lost: cursor.u64("lost")?,
        })
    }
}

/// A task has a new name (`PERF_RECORD_COMM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm<'a> {
    /// The task.
    pub thread: ThreadId,
    /// Its name.
    pub comm: &'a OsStr,
}

impl<'a> Comm<'a> {
    pub(crate) fn take(mut cursor: Cursor<'a>) -> Decode<Self> {
        Ok(Self {
            thread: ThreadId::take(&mut cursor)?,
            comm: string(cursor),
        })
    }
}

/// A task was created, or ended (`PERF_RECORD_FORK`, `PERF_RECORD_EXIT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The task.
    pub thread: ThreadId,
    /// Its parent; of a new thread, the thread that created it.
    pub parent: ThreadId,
    /// Time in nanoseconds.
    pub time: u64,
}

impl Task {
    pub(crate) fn take(mut cursor: Cursor<'_>) -> Decode<Self> {
        let (pid, ppid) = (cursor.u32("pid")?, cursor.u32("ppid")?);
        let (tid, ptid) = (cursor.u32("tid")?, cursor.u32("ptid")?);
        Ok(Self {
            thread: ThreadId { pid, tid },
            parent: ThreadId {
                pid: ppid,
                tid: ptid,
            },
            time: cursor.u64("time")?,
        })
    }
}

/// Sampling stopped or goes on (`PERF_RECORD_THROTTLE`, `PERF_RECORD_UNTHROTTLE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Time in nanoseconds.
    pub time: u64,
    /// Id of the event; that of the parent where it was inherited.
    pub id: u64,
    /// Id of the event itself.
    pub stream_id: u64,
}

impl Throttle {
    pub(crate) fn take(mut cursor: Cursor<'_>) -> Decode<Self> {
        Ok(Self {
            time: cursor.u64("time")?,
            id: cursor.u64("id")?,
            stream_id: cursor.u64("stream_id")?,
        })
    }
}

/// The counts of an inherited event when its task ended (`PERF_RECORD_READ`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCounts<'a> {
    /// The task.
    pub thread: ThreadId,
    /// Its counts.
    pub counts: Counts<'a>,
}

impl<'a> ReadCounts<'a> {
    pub(crate) fn take(format: ReadFormat, mut cursor: Cursor<'a>) -> Decode<Self> {
        Ok(Self {
            thread: ThreadId::take(&mut cursor)?,
            counts: Counts::take(format, &mut cursor)?,
        })
    }
}

bitflags! {
    /// `PERF_AUX_FLAG_*`. Bits 8 to 15 are the PMU's format of the trace.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AuxFlags: u64 {
        /// It was cut to fit.
        const TRUNCATED = sys::PERF_AUX_FLAG_TRUNCATED as u64;
        /// It may have been overwritten.
        const OVERWRITE = sys::PERF_AUX_FLAG_OVERWRITE as u64;
        /// It has gaps.
        const PARTIAL = sys::PERF_AUX_FLAG_PARTIAL as u64;
        /// The sample collided with another.
        const COLLISION = sys::PERF_AUX_FLAG_COLLISION as u64;
    }
}

/// New bytes in the AUX area (`PERF_RECORD_AUX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aux {
    /// Where they start.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// How they are.
    pub flags: AuxFlags,
}

impl Aux {
    pub(crate) fn take(mut cursor: Cursor<'_>) -> Decode<Self> {
        Ok(Self {
            offset: cursor.u64("aux_offset")?,
            size: cursor.u64("aux_size")?,
            flags: AuxFlags::from_bits_retain(cursor.u64("flags")?),
        })
    }
}

/// Some task went on or off the CPU (`PERF_RECORD_SWITCH_CPU_WIDE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchCpuWide {
    /// The task that comes next, if one went off the CPU; that was there before, if one went on.
    pub next_prev: ThreadId,
}

impl SwitchCpuWide {
    pub(crate) fn take(mut cursor: Cursor<'_>) -> Decode<Self> {
        Ok(Self {
            next_prev: ThreadId::take(&mut cursor)?,
        })
    }
}

/// The namespaces of a task (`PERF_RECORD_NAMESPACES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces<'a> {
    /// The task.
    pub thread: ThreadId,
    links: Words<'a>,
}

/// A namespace, as its link in /proc/PID/ns shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub inode: u64,
}

impl<'a> Namespaces<'a> {
    pub(crate) fn take(mut cursor: Cursor<'a>) -> Decode<Self> {
        let thread = ThreadId::take(&mut cursor)?;
        let count = cursor.u64("nr_namespaces")?;
        let links = cursor.words(count.saturating_mul(2), "namespaces")?;
        Ok(Self { thread, links })
    }

    /// The namespaces, in the order network, UTS, IPC, pid, user, mount, cgroup.
    pub fn iter(self) -> impl Iterator<Item = Namespace> + 'a {
        (0..self.links.len() / 2).map(move |index| Namespace {
            dev: self.links.get(2 * index).unwrap_or_default(),
            inode: self.links.get(2 * index + 1).unwrap_or_default(),
        })
    }
}

/// A kernel symbol came or went (`PERF_RECORD_KSYMBOL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ksymbol<'a> {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// `PERF_RECORD_KSYMBOL_TYPE_*`: 1 for BPF, 2 for code out of line.
    pub kind: u16,
    /// `PERF_RECORD_KSYMBOL_FLAGS_*`.
    pub flags: u16,
    /// Its name.
    pub name: &'a OsStr,
}

impl<'a> Ksymbol<'a> {
    /// Whether it went.
    pub fn is_unregistered(&self) -> bool {
        u32::from(self.flags) & sys::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER != 0
    }

    pub(crate) fn take(mut cursor: Cursor<'a>) -> Decode<Self> {
        Ok(Self {
            addr: cursor.u64("addr")?,
            len: cursor.u32("len")?,
            kind: cursor.u16("ksym_type")?,
            flags: cursor.u16("flags")?,
            name: string(cursor),
        })
    }
}

/// A BPF program came or went (`PERF_RECORD_BPF_EVENT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BpfEvent {
    /// `PERF_BPF_EVENT_*`: 1 when it was loaded, 2 when it was unloaded.
    pub kind: u16,
    /// None is defined so far.
    pub flags: u16,
    /// Id of the program.
    pub id: u32,
    /// Its tag.
    pub tag: [u8; 8],
}

impl BpfEvent {
    pub(crate) fn take(mut cursor: Cursor<'_>) -> Decode<Self> {
        Ok(Self {
            kind: cursor.u16("type")?,
            flags: cursor.u16("flags")?,
            id: cursor.u32("id")?,
            tag: cursor.u64("tag")?.to_ne_bytes(),
        })
    }
}

/// A new cgroup (`PERF_RECORD_CGROUP`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup<'a> {
    /// Its id, as samples carry it.
    pub id: u64,
    /// Its path from the root of the cgroup file system.
    pub path: &'a OsStr,
}

impl<'a> Cgroup<'a> {
    pub(crate) fn take(mut cursor: Cursor<'a>) -> Decode<Self> {
        Ok(Self {
            id: cursor.u64("id")?,
            path: string(cursor),
        })
    }
}

/// Kernel text changed (`PERF_RECORD_TEXT_POKE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPoke<'a> {
    /// Where.
    pub addr: u64,
    /// What was there; empty where something is new.
    pub old: &'a [u8],
    /// What is there now; empty where something went.
    pub new: &'a [u8],
}

impl<'a> TextPoke<'a> {
    pub(crate) fn take(mut cursor: Cursor<'a>) -> Decode<Self> {
        let addr = cursor.u64("addr")?;
        let (old, new) = (cursor.u16("old_len")?, cursor.u16("new_len")?);
        Ok(Self {
            addr,
            old: cursor.bytes(old.into(), "old bytes")?,
            new: cursor.bytes(new.into(), "new bytes")?,
        })
    }
}

/// The number that the hardware uses for an event in the AUX area
/// (`PERF_RECORD_AUX_OUTPUT_HW_ID`). The event is that of the record's [`SampleId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxOutputHwId {
    /// The number.
    pub hw_id: u64,
}

impl AuxOutputHwId {
    pub(crate) fn take(mut cursor: Cursor<'_>) -> Decode<Self> {
        Ok(Self {
            hw_id: cursor.u64("hw_id")?,
        })
    }
}

/// A user call chain that samples before promised (`PERF_RECORD_CALLCHAIN_DEFERRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallchainDeferred<'a> {
    /// What those samples' chains end in.
    pub cookie: u64,
    /// The chain: user addresses, innermost first, without a marker.
    pub callchain: CallChain<'a>,
}

impl<'a> CallchainDeferred<'a> {
    pub(crate) fn take(mut cursor: Cursor<'a>) -> Decode<Self> {
        let cookie = cursor.u64("cookie")?;
        let count = cursor.u64("nr")?;
        Ok(Self {
            cookie,
            callchain: CallChain(cursor.words(count, "ips")?),
        })
    }
}
