// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring: memory that the kernel writes records to and this process reads them from.
//!
//! The kernel moves the head, the reader the tail; what lies between is unread, and the kernel
//! does not touch it. Both count bytes since the ring was made and are never taken back to 0.
//! When a record does not fit, the kernel drops it and, when there is room again, first writes
//! how many it dropped ([`Record::Lost`](crate::Record::Lost)).

mod map;
mod overwrite;
mod page;
mod registers;
mod span;
#[cfg(test)]
mod tests;
mod wait;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use map::{Mapping, Mode, page_size};

use crate::count::Count;
use crate::error::{Error, Result};
use crate::event::{Event, RingClaim};
use crate::flags::ReadFormat;
use crate::record::RawRecord;

pub use overwrite::{OverwriteRing, Snapshot};
pub use page::{Capabilities, Page, PageState};
pub use span::{RingError, Span};
pub use wait::{Wake, wait_any};

/// A ring that keeps what is unread: when it is full, new records are lost, and counted.
#[derive(Debug)]
pub struct Ring {
    buffer: Buffer,
    /// Behind the mapping: given back when that is gone.
    claim: RingClaim,
}

/// The memory of a ring and its one reader.
#[derive(Debug)]
struct Buffer {
    mapping: Mapping,
    /// Records that go round the end of the ring are put together here.
    scratch: Vec<u8>,
}

impl Ring {
    /// Maps a ring of at least `bytes` for `event`: the next power of two of pages. The page in
    /// front of it comes on top.
    ///
    /// With `bytes` 0 there is no ring, but the page is there, which is enough for
    /// [`count`](Self::count).
    ///
    /// # Errors
    ///
    /// [`Error::RingUse`] if the event is mapped already, writes to another event's ring, or was
    /// opened to be overwritten;
    /// [`Error::Refused`] for limits on locked memory, and for inherited events of a thread on
    /// any CPU, which can have no ring.
    pub fn map(event: &Event, bytes: usize) -> Result<Self> {
        if event.attr().raw().write_backward() != 0 {
            return Err(Error::RingUse(
                "the event writes its ring backward, so that it can be overwritten: map it with \
                 OverwriteRing, or open it without Attr::write_backward",
            ));
        }
        let (mapping, claim) = map_event(event, bytes, Mode::Keep)?;
        Ok(Self {
            buffer: Buffer {
                mapping,
                scratch: Vec::new(),
            },
            claim,
        })
    }

    /// The page in front of the ring.
    pub fn page(&self) -> Page<'_> {
        self.buffer.mapping.control()
    }

    /// The event's count and times, as [`Event::read`] returns them, without a system call where
    /// that can be.
    ///
    /// A system call takes about a thousand instructions, this a few dozen; so a thread can count
    /// what a small piece of its own work takes. For that there must be
    ///
    /// - an arm64 CPU with a PMUv3, and 1 in `/proc/sys/kernel/perf_user_access`;
    /// - an event of this PMU with the field `rdpmc` (`config1` bit 1), [`Target::ThisThread`],
    ///   and no [`ReadFormat`] but the times,
    ///
    /// the event must be on a counter, and the thread that calls the one that opened it. Where
    /// anything of this is missing, it is a read(2) that returns the count.
    ///
    /// ```no_run
    /// use perfshim::discovery::Pmus;
    /// use perfshim::{Event, Ring, Target, spec};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let groups = spec::resolve("armv8_pmuv3/inst_retired,rdpmc/u", &Pmus::system()?)?;
    /// let event = Event::open(&groups[0].events[0].counting().enabled(), Target::ThisThread)?;
    /// let ring = Ring::map(&event, 0)?;
    /// let before = ring.count()?.value;
    /// let sum: u64 = std::hint::black_box(0..100).sum();
    /// println!("{sum} took {} instructions", ring.count()?.value - before);
    /// # Ok(()) }
    /// ```
    ///
    /// The kernel's side of this is described in its Documentation/arch/arm64/perf.rst, and the
    /// page in `struct perf_event_mmap_page` of linux/perf_event.h.
    ///
    /// # Errors
    ///
    /// Those of [`Event::read`], from which they come.
    ///
    /// # Signals
    ///
    /// The kernel may close the counters to the thread in the instant between the look at whether
    /// they are open and the instruction that reads one: when `perf_user_access` is set to 0, the
    /// PMU's driver goes, the thread moves to a CPU of another kind, or, under the C driver, another
    /// thread disables the event while this one moves. `SIGILL` ends the process then. Who keeps a
    /// thread on the CPUs of its event's PMU (sched_setaffinity(2)) need not fear the moves.
    ///
    /// A child that was forked has no such page (`SIGSEGV`): it must not call this.
    ///
    /// [`Target::ThisThread`]: crate::Target::ThisThread
    #[inline]
    pub fn count(&self) -> Result<Count> {
        let shared = self.claim.shared();
        // This much is inlined where it is called.
        if shared.is_counted_here() && !shared.attr.read_fields().intersects(ReadFormat::TIMES) {
            if let Some(value) = self.page().read(registers::counter) {
                return Ok(Count {
                    value,
                    ..Count::default()
                });
            }
        }
        self.count_otherwise()
    }

    /// With the times, or by a system call.
    #[inline(never)]
    fn count_otherwise(&self) -> Result<Count> {
        let shared = self.claim.shared();
        let format = shared.attr.read_fields();
        if shared.is_counted_here() && format.intersects(ReadFormat::TIMES) {
            let page = self.page();
            if let Some(count) = page.read_with_times(format, registers::counter, registers::clock)
            {
                return Ok(count);
            }
        }
        shared.read()
    }

    /// Size of the ring in bytes.
    pub fn size(&self) -> usize {
        self.buffer.mapping.data_size()
    }

    /// Has the records of `event` written to this ring too. Both must watch the same CPU, or the
    /// same thread on any CPU. `event` must have no ring of its own, and can have none until
    /// [`Event::set_output`] with `None` ends this.
    pub fn take_output_of(&self, event: &Event) -> Result<()> {
        event.set_output_to(self.claim.shared())
    }

    /// Reads what is unread now.
    ///
    /// ```no_run
    /// # fn f(ring: &mut perfshim::Ring) -> perfshim::Result<()> {
    /// let mut unread = ring.read()?;
    /// while let Some(record) = unread.next_record()? {
    ///     println!("{:?}", record.header());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Ring`] if head and tail contradict each other: somebody else wrote to the page.
    pub fn read(&mut self) -> Result<Unread<'_>> {
        Ok(self.buffer.read()?)
    }

    /// Waits until the kernel says that there is something to read, according to the event's
    /// [`Wakeup`](crate::Wakeup), or until the time is over. `None` waits for ever.
    ///
    /// What is unread but does not reach the threshold wakes nobody: read once more in the end.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Wake> {
        wait::one(self.claim.shared(), timeout)
    }
}

impl Buffer {
    fn read(&mut self) -> std::result::Result<Unread<'_>, RingError> {
        let page = self.mapping.control();
        // The head is read once: what the kernel adds from here on is for the next call, so that
        // a reader slower than the kernel comes back now and then.
        let head = page.data_head();
        let tail = page.data_tail();
        let (start, first, second) = span::pieces(self.mapping.data_size(), tail, head)?;
        let data = self.mapping.data();
        // SAFETY: both pieces lie in the data area (`pieces` saw to that), which stays mapped
        // while `self` is borrowed. The kernel does not write between tail and head, and this
        // is the only reader that moves the tail: `Ring::map` hands out one ring for an event, and
        // none for an event that writes to another's, whose memory older kernels would map; and
        // `Unread` borrows it mutably until it moves the tail in its `drop`.
        let span = unsafe {
            Span::new(
                std::slice::from_raw_parts(data.add(start).as_ptr(), first),
                std::slice::from_raw_parts(data.as_ptr(), second),
                tail,
            )
        };
        Ok(Unread {
            page,
            span,
            head,
            scratch: &mut self.scratch,
        })
    }
}

impl AsFd for Ring {
    /// The event's descriptor, to be polled.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.claim.shared().fd.as_fd()
    }
}

/// What was unread when [`Ring::read`] was called.
///
/// Records are handed out one at a time, borrowed from the ring. Their bytes are given back to
/// the kernel when this is dropped, or by [`commit`](Self::commit); those of records that were
/// not handed out stay unread.
#[derive(Debug)]
pub struct Unread<'r> {
    page: Page<'r>,
    span: Span<'r>,
    head: u64,
    scratch: &'r mut Vec<u8>,
}

impl Unread<'_> {
    /// The next record; `None` when all are read.
    ///
    /// # Errors
    ///
    /// [`Error::Ring`] if its size cannot be right. The place of the next record is unknown
    /// then: [`discard`](Self::discard) goes on with what comes later.
    pub fn next_record(&mut self) -> Result<Option<RawRecord<'_>>> {
        Ok(self.span.take_record(self.scratch)?)
    }

    /// How many bytes are still to be read here.
    pub fn len(&self) -> usize {
        self.span.len()
    }

    /// Whether all is read.
    pub fn is_empty(&self) -> bool {
        self.span.is_empty()
    }

    /// Gives the bytes of the records handed out so far back to the kernel, before this is
    /// dropped: for readers who take long over many records.
    pub fn commit(&mut self) {
        // No record is borrowed any more, as this borrows mutably what they borrow from.
        self.page.set_data_tail(self.span.position());
    }

    /// Skips all that is unread here; returns how many bytes that were.
    pub fn discard(mut self) -> usize {
        let skipped = self.span.len();
        self.span = Span::new(&[], &[], self.head);
        skipped
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.commit();
    }
}

/// Maps the ring of `event`, which then has one.
fn map_event(event: &Event, bytes: usize, mode: Mode) -> Result<(Mapping, RingClaim)> {
    let shared = &event.shared;
    let Some(data_size) = data_size(bytes) else {
        return Err(shared.map_refused(rustix::io::Errno::NOMEM, bytes));
    };
    let claim = RingClaim::take(shared)?;
    let mut mapping = Mapping::map(shared.fd.as_fd(), data_size, mode)
        .map_err(|errno| shared.map_refused(errno, data_size))?;
    mapping.locate_data()?;
    Ok((mapping, claim))
}

/// The least size that is a power of two of pages and holds `bytes`; 0 for 0.
fn data_size(bytes: usize) -> Option<usize> {
    match bytes.div_ceil(page_size()) {
        0 => Some(0),
        pages => pages.checked_next_power_of_two()?.checked_mul(page_size()),
    }
}
