// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a ring: one page of control data, then the data area.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::ring::RingError;
use crate::ring::page::Page;
use crate::sys::perf_event_mmap_page;

/// Whether the kernel may write over what has not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It waits for the reader: the mapping is writable, for the tail.
    Keep,
    /// It may: the mapping is read-only.
    Overwrite,
}

/// Mapped memory of a ring.
///
/// # Invariants
///
/// `base` points to `len` mapped bytes, of which the first are a `perf_event_mmap_page`, and
/// `data_offset` + `data_size` is at most `len`. `data_offset` is a multiple of 8, and behind that
/// structure, unless `data_size` is 0.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    data_offset: usize,
    data_size: usize,
    /// Whether dropping this unmaps it. Tests have memory of their own.
    owned: bool,
}

// SAFETY: the memory is not bound to a thread, and all that is shared in it is reached through
// atomics or, in the data area, by the one reader.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Size of the control page in bytes: the system's page size.
pub(crate) fn page_size() -> usize {
    rustix::param::page_size()
}

impl Mapping {
    /// Maps the control page of the event behind `fd` and `data_size` bytes of ring behind it.
    pub(crate) fn map(fd: BorrowedFd<'_>, data_size: usize, mode: Mode) -> Result<Self, Errno> {
        let protection = match mode {
            Mode::Keep => ProtFlags::READ | ProtFlags::WRITE,
            Mode::Overwrite => ProtFlags::READ,
        };
        let len = page_size().checked_add(data_size).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel picks the address, so nothing that exists is replaced.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            len,
            data_offset: page_size(),
            data_size,
            owned: true,
        })
    }

    /// Takes the place and size of the data area from the page.
    ///
    /// Kernels before 4.1 leave both 0; there the data area is what follows the first page.
    pub(crate) fn locate_data(&mut self) -> Result<(), RingError> {
        let page = self.control();
        let (offset, size) = (page.data_offset(), page.data_size());
        if offset == 0 && size == 0 {
            return Ok(());
        }
        let error = RingError::Layout {
            offset,
            size,
            mapped: self.len,
        };
        let end = offset.checked_add(size).ok_or(error)?;
        // Over the control page there would be what both sides write at any time.
        let behind_page = offset >= size_of::<perf_event_mmap_page>() as u64;
        if !behind_page || end > self.len as u64 || offset % 8 != 0 || size % 8 != 0 {
            return Err(error);
        }
        // Both fit in usize, as `len` does.
        self.data_offset = offset as usize;
        self.data_size = size as usize;
        Ok(())
    }

    /// Memory of a test in the place of a ring.
    ///
    /// # Safety
    ///
    /// `base` must point to `len` bytes, aligned as a control page, that start with one and that
    /// live longer than what is returned; nobody may hold a reference to them meanwhile.
    #[cfg(test)]
    pub(crate) unsafe fn of_memory(base: NonNull<u8>, len: usize) -> Result<Self, RingError> {
        let mut mapping = Self {
            base,
            len,
            data_offset: 0,
            data_size: 0,
            owned: false,
        };
        mapping.locate_data()?;
        Ok(mapping)
    }

    pub(crate) fn page(&self) -> *mut perf_event_mmap_page {
        self.base.as_ptr().cast()
    }

    pub(crate) fn control(&self) -> Page<'_> {
        Page::new(self)
    }

    /// Size of the data area in bytes.
    pub(crate) fn data_size(&self) -> usize {
        self.data_size
    }

    /// Start of the data area.
    pub(crate) fn data(&self) -> NonNull<u8> {
        // SAFETY: `data_offset` is within the mapping, by the invariant.
        unsafe { self.base.add(self.data_offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `map` made this mapping, and whoever borrowed from it is gone.
            let result = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
            debug_assert!(result.is_ok(), "munmap: {result:?}");
        }
    }
}
