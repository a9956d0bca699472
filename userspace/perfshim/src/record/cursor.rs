// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking fields off the front of a record, with every length checked.

/// Bytes that are no record of the kernel's: cut short, too long, or laid out in a way that the
/// event's attributes do not describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Each message says it.
pub enum DecodeError {
    #[error("the field `{field}` needs {needed} bytes where the record has {left} left")]
    Short {
        field: &'static str,
        needed: u64,
        left: usize,
    },
    #[error("{left} bytes are left behind the last field that was asked for")]
    Trailing { left: usize },
    #[error("a record's header says {size} bytes where there are {given}")]
    HeaderSize { size: u16, given: usize },
    #[error("the sample fields {0:#x} are newer than this library, which cannot know their order")]
    UnknownFields(u64),
    #[error("no event with the id {0} is known to this decoder")]
    UnknownEvent(u64),
    #[error(
        "events whose records differ share this decoder, so each needs the sample field IDENTIFIER"
    )]
    Ambiguous,
}

/// What is left of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn left(self) -> usize {
        self.rest.len()
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes. `len` may come from the record: any value is safe.
    pub(crate) fn bytes(&mut self, len: u64, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let taken = usize::try_from(len)
            .ok()
            .and_then(|len| self.rest.split_at_checked(len));
        let Some((bytes, rest)) = taken else {
            return Err(DecodeError::Short {
                field,
                needed: len,
                left: self.rest.len(),
            });
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(DecodeError::Short {
                field,
                needed: N as u64,
                left: self.rest.len(),
            });
        };
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array(field).map(u8::from_ne_bytes)
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_ne_bytes)
    }

    /// The next `count` 64-bit words.
    pub(crate) fn words(
        &mut self,
        count: u64,
        field: &'static str,
    ) -> Result<Words<'a>, DecodeError> {
        // A count whose length overflows is too long for any record.
        let len = count.checked_mul(8).unwrap_or(u64::MAX);
        self.bytes(len, field).map(Words)
    }
}

/// 64-bit words that lie in a record, at any alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'a>(
    /// A whole number of words.
    &'a [u8],
);

impl<'a> Words<'a> {
    /// How many words there are.
    pub fn len(self) -> usize {
        self.0.len() / 8
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The word number `index`, from 0.
    pub fn get(self, index: usize) -> Option<u64> {
        let start = index.checked_mul(8)?;
        let bytes = self.0.get(start..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*bytes))
    }

    /// The words in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        self.0.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_ne_bytes(bytes)
        })
    }
}
