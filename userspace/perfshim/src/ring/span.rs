// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splitting the unread bytes of a ring into records. No shared memory here, so that bytes from
//! anywhere (a ring, a test, a fuzzer) go through the same code.

use crate::record::{Header, RawRecord};

/// Bytes in a ring that are no sequence of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// More bytes are said to be unread than the ring holds.
    #[error("head {head} is {} bytes past tail {tail} in a ring of {size}", head.wrapping_sub(*tail))]
    Overrun {
        /// Where the writer is.
        head: u64,
        /// Where the reader is.
        tail: u64,
        /// Size of the ring in bytes.
        size: usize,
    },
    /// A record claims to be smaller than its own header.
    #[error("the record at {position} claims {size} bytes, which is less than its header's 8")]
    TooSmall {
        /// Where the record starts.
        position: u64,
        /// The size in its header.
        size: u16,
    },
    /// A record claims more bytes than are unread, or than the ring holds.
    #[error("the record at {position} claims {size} bytes where {left} are unread")]
    TooLarge {
        /// Where the record starts.
        position: u64,
        /// The size in its header.
        size: u16,
        /// Unread bytes from there.
        left: usize,
    },
    /// The page in front of the ring describes a data area that is not there.
    #[error("the ring's page says {size} bytes at {offset} in a mapping of {mapped}")]
    Layout {
        /// `data_offset` of the page.
        offset: u64,
        /// `data_size` of the page.
        size: u64,
        /// Bytes mapped.
        mapped: usize,
    },
}

/// Unread bytes: in one piece, or in two where they go round the end of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// From the tail on.
    first: &'a [u8],
    /// From the start of the ring on; empty if nothing goes round its end.
    second: &'a [u8],
    /// The tail: where `first` starts, counted since the ring was made.
    position: u64,
}

impl<'a> Span<'a> {
    /// Bytes in two pieces, of which the first starts at `position`.
    pub fn new(first: &'a [u8], second: &'a [u8], position: u64) -> Self {
        Self {
            first,
            second,
            position,
        }
    }

    /// The bytes from `tail` to `head` of the ring `data`. Both count on and on; their places are
    /// what is left on division by the ring's size.
    ///
    /// # Errors
    ///
    /// [`RingError::Overrun`] if they are further apart than the ring is large.
    pub fn of_ring(data: &'a [u8], tail: u64, head: u64) -> Result<Self, RingError> {
        let (start, first, second) = pieces(data.len(), tail, head)?;
        Ok(Self::new(
            &data[start..start + first],
            &data[..second],
            tail,
        ))
    }

    /// Where the next record starts, counted since the ring was made.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many bytes are unread.
    pub fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Whether all is read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next record. One that goes round the end of the ring is put together in
    /// `scratch`, which is empty or holds what an earlier call left there; any other is borrowed
    /// where it lies.
    ///
    /// # Errors
    ///
    /// [`RingError::TooSmall`] and [`RingError::TooLarge`]. Nothing is taken then, and there is
    /// no way to tell where the next record starts.
    pub fn take_record<'s>(
        &mut self,
        scratch: &'s mut Vec<u8>,
    ) -> Result<Option<RawRecord<'s>>, RingError>
    where
        'a: 's,
    {
        if self.is_empty() {
            return Ok(None);
        }
        let header = self.header()?;
        let size = usize::from(header.size);
        let bytes = match self.first.split_at_checked(size) {
            Some((record, rest)) => {
                self.first = rest;
                record
            }
            None => {
                let (rest_of_record, rest) = self.second.split_at(size - self.first.len());
                scratch.clear();
                scratch.extend_from_slice(self.first);
                scratch.extend_from_slice(rest_of_record);
                (self.first, self.second) = (rest, &[]);
                scratch.as_slice()
            }
        };
        self.position = self.position.wrapping_add(u64::from(header.size));
        Ok(Some(RawRecord::of_checked(header, bytes)))
    }

    /// The header of the next record, whose size is right.
    fn header(&self) -> Result<Header, RingError> {
        let mut bytes = [0; Header::SIZE];
        // The kernel aligns records to 8 bytes, so a header is in one piece; but these bytes
        // need not be the kernel's.
        let from_first = self.first.len().min(Header::SIZE);
        let from_second = Header::SIZE - from_first;
        let left = self.len();
        if from_second > self.second.len() {
            return Err(RingError::TooLarge {
                position: self.position,
                size: Header::SIZE as u16,
                left,
            });
        }
        bytes[..from_first].copy_from_slice(&self.first[..from_first]);
        bytes[from_first..].copy_from_slice(&self.second[..from_second]);
        let header = Header::from_bytes(bytes);
        let (position, size) = (self.position, header.size);
        if usize::from(size) < Header::SIZE {
            Err(RingError::TooSmall { position, size })
        } else if usize::from(size) > left {
            Err(RingError::TooLarge {
                position,
                size,
                left,
            })
        } else {
            Ok(header)
        }
    }
}

/// Where the bytes from `tail` to `head` lie in a ring of `size` bytes: the offset of the first
/// piece, its length, and the length of the second, which starts at offset 0.
pub(crate) fn pieces(
    size: usize,
    tail: u64,
    head: u64,
) -> Result<(usize, usize, usize), RingError> {
    let unread = head.wrapping_sub(tail);
    if unread > size as u64 {
        return Err(RingError::Overrun { head, tail, size });
    }
    if size == 0 {
        return Ok((0, 0, 0));
    }
    // Both fit in usize: one is less than `size`, the other at most `size`.
    let start = (tail % size as u64) as usize;
    let unread = unread as usize;
    let first = unread.min(size - start);
    Ok((start, first, unread - first))
}
