// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open event.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_ulong};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::attr::Attr;
use crate::count::{Count, Counts};
use crate::diagnose;
use crate::error::{Error, Operation, Refusal, Result};
use crate::flags::{OpenFlags, ReadFormat};
use crate::sys;
use crate::target::Target;

/// An open event: a counter, which may take samples into a ring.
///
/// Dropping it closes the descriptor. An event whose ring is mapped lives on until the
/// [`Ring`](crate::Ring) is dropped too; so the kernel has it.
#[derive(Debug)]
pub struct Event {
    pub(crate) shared: Arc<Shared>,
}

/// What an event and its ring share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fd: OwnedFd,
    pub(crate) attr: Attr,
    /// The event and its target in words, for errors.
    subject: String,
    /// The thread that can tell the count without the kernel, if there is one.
    reader: Option<NonZeroU64>,
    /// Held while the kernel is asked to change it, so that it is what the kernel has.
    output: Mutex<Output>,
}

/// Where an event writes its records.
///
/// A ring has one reader: two would move its tail under each other. So an event that has a ring
/// gets no second one, and one that writes to another's gets none: kernels before 7.3 would map
/// that other ring's memory once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Nowhere,
    /// To its own ring.
    Own,
    /// To another event's ring.
    Other,
}

thread_local! {
    /// Number of a thread that has opened events on itself. Unlike the id of a thread, no other one
    /// ever has it.
    static THREAD: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
}

/// The right to an event's ring, which there is once. Dropping it gives it back: do so when the
/// memory is unmapped.
#[derive(Debug)]
pub(crate) struct RingClaim {
    shared: Arc<Shared>,
}

impl Event {
    /// Opens an event on `target`. It starts disabled, unless [`Attr::enabled`] was set.
    ///
    /// # Errors
    ///
    /// [`Error::Attr`] if the attributes contradict each other, [`Error::Target`] for a number
    /// out of range, and [`Error::Refused`] with cause and remedy if the kernel refuses.
    pub fn open(attr: &Attr, target: Target<'_>) -> Result<Self> {
        Self::open_with(attr, target, None, OpenFlags::default())
    }

    /// Opens an event as a member of the group that `leader` leads: all members are on counters
    /// at the same time, or none is.
    ///
    /// The leader's enabling governs the group, so a member is usually opened with
    /// [`Attr::enabled`]; [`Group`](crate::Group) does that.
    pub fn open_in_group(attr: &Attr, target: Target<'_>, leader: &Event) -> Result<Self> {
        Self::open_with(attr, target, Some(leader), OpenFlags::default())
    }

    /// Opens an event with all arguments of the system call.
    pub fn open_with(
        attr: &Attr,
        target: Target<'_>,
        group: Option<&Event>,
        flags: OpenFlags,
    ) -> Result<Self> {
        attr.check()?;
        let Some((pid, cpu, target_flags)) = target.arguments() else {
            return Err(Error::Target(target.to_string()));
        };
        let group_fd = group.map_or(-1, |group| group.shared.fd.as_raw_fd());
        let to_group = flags.contains(OpenFlags::FD_OUTPUT) && group.is_some();
        let flags = (flags | target_flags).bits() as c_ulong;
        let fd = attr.with_kernel_form(|raw| {
            // SAFETY: `raw` is a whole perf_event_attr whose size field is right or was set by
            // the caller of `from_raw`, in which case the kernel reads at most a page and this
            // is the kernel's to refuse. Pointers in it are valid for the call.
            check(unsafe { perf_event_open_sys::perf_event_open(raw, pid, cpu, group_fd, flags) })
        });
        let subject = format!("{} on {target}", describe(attr));
        match fd {
            Ok(fd) => Ok(Self {
                shared: Arc::new(Shared {
                    // SAFETY: the kernel has just made this descriptor; nobody else owns it.
                    fd: unsafe { OwnedFd::from_raw_fd(fd) },
                    attr: attr.clone(),
                    subject,
                    reader: reader(attr, target),
                    output: Mutex::new(match to_group {
                        true => Output::Other,
                        false => Output::Nowhere,
                    }),
                }),
            }),
            Err(errno) => {
                let request = diagnose::OpenRequest {
                    attr,
                    target,
                    in_group: group.is_some(),
                };
                let diagnosis = diagnose::open(errno, &request, &diagnose::Limits::read());
                let refusal = Refusal::new(Operation::Open, subject, errno, diagnosis);
                Err(Box::new(refusal).into())
            }
        }
    }

    /// The attributes it was opened with.
    pub fn attr(&self) -> &Attr {
        &self.shared.attr
    }

    /// Starts counting.
    pub fn enable(&self) -> Result<()> {
        self.flagged(Operation::Enable, sys::ENABLE, 0)
    }

    /// Stops counting. The count stays.
    pub fn disable(&self) -> Result<()> {
        self.flagged(Operation::Disable, sys::DISABLE, 0)
    }

    /// Sets the count to 0. The times stay.
    pub fn reset(&self) -> Result<()> {
        self.flagged(Operation::Reset, sys::RESET, 0)
    }

    /// Starts counting, in all events of the group.
    pub fn enable_group(&self) -> Result<()> {
        self.flagged(Operation::Enable, sys::ENABLE, sys::PERF_IOC_FLAG_GROUP)
    }

    /// Stops counting, in all events of the group.
    pub fn disable_group(&self) -> Result<()> {
        self.flagged(Operation::Disable, sys::DISABLE, sys::PERF_IOC_FLAG_GROUP)
    }

    /// Sets the counts of all events of the group to 0.
    pub fn reset_group(&self) -> Result<()> {
        self.flagged(Operation::Reset, sys::RESET, sys::PERF_IOC_FLAG_GROUP)
    }

    fn flagged(&self, operation: Operation, request: u32, flags: u32) -> Result<()> {
        // SAFETY: these requests take a flag word by value.
        self.shared.done(operation, unsafe {
            self.shared.ioctl(request, flags as c_ulong)
        })
    }

    /// Lets the event overflow `overflows` more times, then disables it; enables it until then.
    ///
    /// Nobody is told when they are used up: poll(2) reports a hang-up only when the tasks have
    /// ended. Each overflow wakes the ring's reader as [`Wakeup`](crate::Wakeup) says; the reader
    /// counts samples to know.
    pub fn refresh(&self, overflows: u32) -> Result<()> {
        // SAFETY: this request takes a number by value.
        self.shared.done(Operation::Refresh, unsafe {
            self.shared.ioctl(sys::REFRESH, c_ulong::from(overflows))
        })
    }

    /// Changes the period, or the frequency for an event that was opened with one.
    pub fn set_period(&self, period_or_frequency: u64) -> Result<()> {
        // The argument is a pointer, whatever other wrappers make of it.
        // SAFETY: this request reads a u64 through the pointer, which lives until it returns.
        self.shared.done(Operation::Period, unsafe {
            self.shared
                .ioctl(sys::PERIOD, pointer(&raw const period_or_frequency))
        })
    }

    /// Writes records into the ring of `other` from now on; with `None`, nowhere. An event that
    /// writes to another's ring can have none of its own.
    ///
    /// # Errors
    ///
    /// [`Error::RingUse`] if the event has a ring of its own, [`Error::Refused`] if the kernel
    /// refuses: `other` has no ring, or watches another CPU or thread.
    pub fn set_output(&self, other: Option<&Event>) -> Result<()> {
        self.redirect(other.map(|other| &*other.shared))
    }

    /// As [`set_output`](Self::set_output), to the event that a ring belongs to.
    pub(crate) fn set_output_to(&self, other: &Shared) -> Result<()> {
        self.redirect(Some(other))
    }

    fn redirect(&self, other: Option<&Shared>) -> Result<()> {
        let mut output = self.shared.output();
        if *output == Output::Own {
            return Err(Error::RingUse(
                "the event has a ring of its own, and the kernel takes no other while it is \
                 mapped: drop that one first",
            ));
        }
        let fd = other.map_or(-1, |other| other.fd.as_raw_fd());
        // SAFETY: this request takes a descriptor by value, or -1.
        self.shared.done(Operation::SetOutput, unsafe {
            self.shared.ioctl(sys::SET_OUTPUT, fd as c_ulong)
        })?;
        *output = match other {
            Some(_) => Output::Other,
            None => Output::Nowhere,
        };
        Ok(())
    }

    /// Lets through only what `filter` names: an expression on the fields of a tracepoint, or
    /// address ranges of a tracing PMU.
    pub fn set_filter(&self, filter: &CStr) -> Result<()> {
        // SAFETY: this request reads a string that ends in NUL, which lives until it returns.
        self.shared.done(Operation::SetFilter, unsafe {
            self.shared.ioctl(sys::SET_FILTER, pointer(filter.as_ptr()))
        })
    }

    /// The id that records and group reads carry.
    pub fn id(&self) -> Result<u64> {
        let mut id = 0u64;
        // SAFETY: this request writes a u64 through the pointer, which lives until it returns.
        self.shared.done(Operation::Id, unsafe {
            self.shared.ioctl(sys::ID, pointer(&raw mut id))
        })?;
        Ok(id)
    }

    /// Runs the BPF program behind `program` on each overflow, tracepoint hit or probe hit.
    pub fn set_bpf(&self, program: BorrowedFd<'_>) -> Result<()> {
        // SAFETY: this request takes a descriptor by value.
        self.shared.done(Operation::SetBpf, unsafe {
            self.shared
                .ioctl(sys::SET_BPF, program.as_raw_fd() as c_ulong)
        })
    }

    /// Stops writing to the ring. What would have been written is counted as lost.
    pub fn pause_output(&self) -> Result<()> {
        self.shared.set_paused(true)
    }

    /// Writes to the ring again.
    pub fn resume_output(&self) -> Result<()> {
        self.shared.set_paused(false)
    }

    /// The ids of the BPF programs attached to this tracepoint or probe, by anybody.
    pub fn query_bpf(&self) -> Result<Vec<u32>> {
        /// Words of `struct perf_event_query_bpf` before its array.
        const HEADER: usize = 2;
        let mut room = 16;
        loop {
            // ids_len, prog_cnt, then the ids.
            let mut words = vec![0u32; HEADER + room];
            words[0] = room as u32;
            // SAFETY: the kernel writes at most `ids_len` ids behind the two header words, and
            // the vector has room for them.
            let result = unsafe {
                self.shared
                    .ioctl(sys::QUERY_BPF, pointer(words.as_mut_ptr()))
            };
            let count = words[1] as usize;
            match result {
                // There are more than fit; the kernel says how many.
                Err(Errno::NOSPC) if count > room => room = count,
                result => {
                    self.shared.done(Operation::QueryBpf, result)?;
                    words.drain(..HEADER);
                    words.truncate(count);
                    return Ok(words);
                }
            }
        }
    }

    /// Changes the attributes of an open breakpoint; the kernel refuses it for other events.
    pub fn modify_attributes(&self, attr: &Attr) -> Result<()> {
        attr.check()?;
        let result = attr.with_kernel_form(|raw| {
            // SAFETY: this request reads a perf_event_attr, and may write its size field; both
            // within `raw`, as at open.
            unsafe { self.shared.ioctl(sys::MODIFY_ATTRIBUTES, pointer(raw)) }
        });
        self.shared.done(Operation::ModifyAttributes, result)
    }

    /// Reads the count, by read(2). [`Ring::count`](crate::Ring::count) does the same, and can do
    /// without a system call.
    ///
    /// # Errors
    ///
    /// [`Error::NotOnCounter`] if the event is pinned and fell into its error state,
    /// [`Error::ReadFormat`] if it was opened with [`ReadFormat::GROUP`].
    pub fn read(&self) -> Result<Count> {
        self.shared.read()
    }

    /// Reads the counts of all events of the group at one moment, the leader's first.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); the event must have been opened with [`ReadFormat::GROUP`].
    pub fn read_group(&self) -> Result<Vec<Count>> {
        let format = self.shared.attr.read_fields();
        if !format.contains(ReadFormat::GROUP) {
            return Err(Error::ReadFormat(
                "the event was not opened to read its group: use read, or open it with \
                 ReadFormat::GROUP",
            ));
        }
        // Nobody but the kernel knows how many members there are by now: ask with more room
        // until it suffices. Groups are limited to 16 KiB of counts, older kernels' to 64.
        let mut buffer = vec![0; 512];
        loop {
            match self.shared.read_bytes(&mut buffer) {
                Ok(len) => {
                    let counts = Counts::from_read(format, &buffer[..len])?;
                    return Ok(counts.iter().collect());
                }
                Err(error) if error.errno() == Some(Errno::NOSPC) && buffer.len() < 1 << 17 => {
                    let doubled = buffer.len() * 2;
                    buffer.resize(doubled, 0);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}

impl Shared {
    /// Whether the event counts the calling thread, and its page says all that a read would.
    #[inline]
    pub(crate) fn is_counted_here(&self) -> bool {
        self.reader.is_some() && self.reader == THREAD.get()
    }

    /// As [`Event::read`].
    pub(crate) fn read(&self) -> Result<Count> {
        let format = self.attr.read_fields();
        if format.contains(ReadFormat::GROUP) {
            return Err(Error::ReadFormat(
                "the event was opened to read its whole group: use read_group",
            ));
        }
        // The value, two times, an id and a lost count.
        let mut buffer = [0; 5 * 8];
        let len = self.read_bytes(&mut buffer)?;
        let counts = Counts::from_read(format, &buffer[..len])?;
        Ok(counts.first().unwrap_or_default())
    }

    /// A `read(2)` into `buffer`; how many bytes it returned.
    fn read_bytes(&self, buffer: &mut [u8]) -> Result<usize> {
        let result = loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        match result {
            // End of file stands for the error state of pinned events.
            Ok(0) => Err(Error::NotOnCounter),
            Ok(len) => Ok(len),
            Err(errno) => Err(self.refused(Operation::Read, errno)),
        }
    }

    pub(crate) fn done(
        &self,
        operation: Operation,
        result: std::result::Result<c_int, Errno>,
    ) -> Result<()> {
        match result {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.refused(operation, errno)),
        }
    }

    /// # Safety
    ///
    /// `argument` must be what `request` takes; if that is a pointer, it must be valid for what
    /// the request does with it.
    unsafe fn ioctl(&self, request: u32, argument: c_ulong) -> std::result::Result<c_int, Errno> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: the descriptor is open, and the caller vouches for the argument. The C library
        // differs in the type of the request, hence the inferred cast.
        check(unsafe { libc::ioctl(fd, request as _, argument) })
    }

    /// Pauses or resumes the kernel's writing to the ring.
    pub(crate) fn set_paused(&self, paused: bool) -> Result<()> {
        // SAFETY: this request takes a truth value by value.
        self.done(Operation::PauseOutput, unsafe {
            self.ioctl(sys::PAUSE_OUTPUT, c_ulong::from(paused))
        })
    }

    /// An operation on this event failed.
    pub(crate) fn refused(&self, operation: Operation, errno: Errno) -> Error {
        let diagnosis = diagnose::control(operation, errno, &self.attr);
        Box::new(Refusal::new(
            operation,
            self.subject.clone(),
            errno,
            diagnosis,
        ))
        .into()
    }

    /// Mapping `bytes` of this event failed.
    pub(crate) fn map_refused(&self, errno: Errno, bytes: usize) -> Error {
        let diagnosis = diagnose::map(errno, &self.attr, bytes, &diagnose::Limits::read());
        Box::new(Refusal::new(
            Operation::Map,
            self.subject.clone(),
            errno,
            diagnosis,
        ))
        .into()
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        // Nothing panics while it is held; if something did, the value would still be whole.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RingClaim {
    /// Claims the ring of an event that writes nowhere yet.
    pub(crate) fn take(shared: &Arc<Shared>) -> Result<Self> {
        let mut output = shared.output();
        match *output {
            Output::Nowhere => *output = Output::Own,
            Output::Own => {
                return Err(Error::RingUse(
                    "the event's ring is mapped already, and a ring has one reader: use that one",
                ));
            }
            Output::Other => {
                return Err(Error::RingUse(
                    "the event writes to another event's ring: read that one, or end this with \
                     set_output(None)",
                ));
            }
        }
        Ok(Self {
            shared: Arc::clone(shared),
        })
    }

    /// The event.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for RingClaim {
    fn drop(&mut self) {
        // Nobody else changes it while it is `Own`.
        *self.shared.output() = Output::Nowhere;
    }
}

/// Which thread can tell the count of an event without the kernel: none but the one that the event
/// counts, and only if the page says all that a read is to return.
///
/// The event must follow the thread to all CPUs: on another than its own, where it can have no
/// counter, the kernel may not let the thread read one. That children inherit it need not be asked:
/// such an event can have no page.
fn reader(attr: &Attr, target: Target<'_>) -> Option<NonZeroU64> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let in_page = ReadFormat::TIMES.contains(attr.read_fields());
    if !in_page || !matches!(target, Target::ThisThread) {
        return None;
    }
    if THREAD.get().is_none() {
        THREAD.set(NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)));
    }
    THREAD.get()
}

/// The event in words.
fn describe(attr: &Attr) -> String {
    let raw = attr.raw();
    let kind = match raw.type_ {
        sys::PERF_TYPE_HARDWARE => "hardware event",
        sys::PERF_TYPE_SOFTWARE => "software event",
        sys::PERF_TYPE_TRACEPOINT => "tracepoint",
        sys::PERF_TYPE_HW_CACHE => "cache event",
        sys::PERF_TYPE_RAW => "raw event",
        sys::PERF_TYPE_BREAKPOINT => "breakpoint",
        number => return format!("event {:#x} of PMU number {number}", raw.config),
    };
    format!("{kind} {:#x}", raw.config)
}

/// A C return value as a result.
fn check(returned: c_int) -> std::result::Result<c_int, Errno> {
    if returned >= 0 {
        return Ok(returned);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// A pointer as the argument of an ioctl.
fn pointer<T>(pointer: *const T) -> c_ulong {
    pointer.expose_provenance() as c_ulong
}
