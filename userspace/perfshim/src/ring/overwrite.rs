// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring that keeps the newest records, like a flight recorder.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::event::{Event, RingClaim};
use crate::record::RawRecord;
use crate::ring::map::{Mapping, Mode};
use crate::ring::page::Page;
use crate::ring::{RingError, Span, Wake, map_event, wait};

/// A ring in which new records replace the oldest.
///
/// The event writes it backward ([`Attr::write_backward`](crate::Attr::write_backward)): each
/// record is put in front of the one before, so the head always points to the newest, and
/// reading from there meets ever older ones, until one that is partly overwritten.
#[derive(Debug)]
pub struct OverwriteRing {
    mapping: Mapping,
    /// Behind the mapping: given back when that is gone.
    claim: RingClaim,
}

impl OverwriteRing {
    /// Maps a ring of at least `bytes` for `event`, as [`Ring::map`](crate::Ring::map) does.
    ///
    /// # Errors
    ///
    /// [`Error::RingUse`] if the event is mapped already, writes to another event's ring, or does
    /// not write backward;
    /// [`Error::Refused`] if the kernel refuses.
    pub fn map(event: &Event, bytes: usize) -> Result<Self> {
        if event.attr().raw().write_backward() == 0 {
            return Err(Error::RingUse(
                "the event writes its ring forward, where nothing says how far the oldest record \
                 is overwritten: open it with Attr::write_backward, or map it with Ring",
            ));
        }
        let (mapping, claim) = map_event(event, bytes, Mode::Overwrite)?;
        Ok(Self { mapping, claim })
    }

    /// The page in front of the ring.
    pub fn page(&self) -> Page<'_> {
        self.mapping.control()
    }

    /// Size of the ring in bytes.
    pub fn size(&self) -> usize {
        self.mapping.data_size()
    }

    /// Has the records of `event` written to this ring too, as
    /// [`Ring::take_output_of`](crate::Ring::take_output_of).
    pub fn take_output_of(&self, event: &Event) -> Result<()> {
        event.set_output_to(self.claim.shared())
    }

    /// Copies the newest records. The kernel's writing is paused meanwhile; what it would have
    /// written is counted as lost.
    ///
    /// A CPU that was amidst a record when the pause began may still write over the oldest
    /// records while they are copied. Nothing tells; such a record fails to decode, or is cut
    /// off as one that was overwritten.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.claim.shared().set_paused(true)?;
        let copied = copy_stable(&self.mapping);
        // Always resumed, whatever came of the copy.
        self.claim.shared().set_paused(false)?;
        Ok(copied)
    }

    /// Waits as [`Ring::wait`](crate::Ring::wait) does.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Wake> {
        wait::one(self.claim.shared(), timeout)
    }
}

impl AsFd for OverwriteRing {
    /// The event's descriptor, to be polled.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.claim.shared().fd.as_fd()
    }
}

/// Copies the data area, again and again until the head stays where it is: a CPU that was amidst
/// a record when the pause began finishes it.
pub(super) fn copy_stable(mapping: &Mapping) -> Snapshot {
    let page = mapping.control();
    loop {
        let head = page.data_head();
        let data = copy(mapping.data(), mapping.data_size());
        // The load of the head that is an acquire keeps the copy behind it; the fence keeps the
        // copy before the second load, which an acquire there would not. If the head did not
        // move, no record was published while the copy was made.
        fence(Ordering::Acquire);
        if page.data_head() == head {
            return Snapshot::new(data, head);
        }
    }
}

/// Copies `len` bytes, a multiple of 8, that the kernel may be changing.
fn copy(data: NonNull<u8>, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for offset in (0..len).step_by(8) {
        // SAFETY: the offset is within the data area, which is a multiple of 8 long and starts
        // at a multiple of 8 (the mapping's invariant). It is mapped read-only, which a relaxed
        // load respects; it is atomic, so that a change meanwhile is no undefined behaviour.
        let word = unsafe { AtomicU64::from_ptr(data.add(offset).cast().as_ptr()) };
        bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    bytes
}

/// The newest records of an [`OverwriteRing`], copied at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    data: Vec<u8>,
    head: u64,
}

impl Snapshot {
    /// A ring's content that was written backward to `head`. Before anything was written `head`
    /// is 0, and it goes down from there, as a signed number would.
    pub fn new(data: Vec<u8>, head: u64) -> Self {
        Self { data, head }
    }

    /// The head when the copy was made. Two snapshots with one head hold the same records.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Calls `each` with every whole record, the newest first. The oldest one is left out where
    /// it is partly overwritten.
    ///
    /// # Errors
    ///
    /// [`Error::Ring`] if a record's size is less than its header's, and what `each` returns.
    pub fn for_each<E: From<Error>>(
        &self,
        mut each: impl FnMut(RawRecord<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        // So many bytes were written since the ring was made, but no more than it holds remain.
        let written = self.head.wrapping_neg().min(self.data.len() as u64);
        let end = self.head.wrapping_add(written);
        let mut span = Span::of_ring(&self.data, self.head, end).map_err(Error::from)?;
        let mut scratch = Vec::new();
        let full = written == self.data.len() as u64;
        loop {
            match span.take_record(&mut scratch) {
                Ok(Some(record)) => each(record)?,
                Ok(None) => return Ok(()),
                // The newest record went round the end of the ring and over the end of this one.
                Err(RingError::TooLarge { .. }) if full => return Ok(()),
                Err(error) => return Err(Error::from(error).into()),
            }
        }
    }
}
