// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mapped event: its page, and perhaps a ring of records.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use perfshim::sys::{self, perf_event_mmap_page};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Who may change the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// This process moves the tail.
    Writable,
    /// The kernel writes over what is old.
    ReadOnly,
}

/// What was in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// `PERF_RECORD_SAMPLE`.
    pub samples: u64,
    /// Records of all kinds.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What the page says of an event that is not about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Number of the counter plus one, or 0.
    pub index: u32,
    /// The `cap_*` bits.
    pub capabilities: u64,
    /// Bits of the counter.
    pub width: u16,
}

/// A mapping of an event.
#[derive(Debug)]
pub struct Ring {
    /// Of `len` mapped bytes, the first of which are a `perf_event_mmap_page`.
    base: NonNull<u8>,
    len: usize,
    mode: Mode,
}

impl Ring {
    /// Maps the page of an event and `pages` of records behind it.
    pub fn map(event: BorrowedFd<'_>, pages: usize, mode: Mode) -> Result<Self, Errno> {
        let len = (1 + pages) * rustix::param::page_size();
        let protection = match mode {
            Mode::Writable => ProtFlags::READ | ProtFlags::WRITE,
            Mode::ReadOnly => ProtFlags::READ,
        };
        // SAFETY: the kernel picks the address, so nothing that exists is replaced.
        let base = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, event, 0) }?;
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            len,
            mode,
        })
    }

    /// What the page says. The event must be one that this thread's calls move, or nobody.
    pub fn state(&self) -> State {
        let page: *const perf_event_mmap_page = self.base.as_ptr().cast();
        // SAFETY: the page is mapped. Each field is read as a whole, once.
        unsafe {
            State {
                index: ptr::read_volatile(&raw const (*page).index),
                capabilities: ptr::read_volatile(&raw const (*page).__bindgen_anon_1.capabilities),
                width: ptr::read_volatile(&raw const (*page).pmc_width),
            }
        }
    }

    /// Takes all records out of a writable ring.
    ///
    /// # Errors
    ///
    /// What is wrong with them, since the kernel must not write such records.
    pub fn drain(&mut self) -> Result<Records, String> {
        let page: *mut perf_event_mmap_page = self.base.as_ptr().cast();
        // SAFETY: the fields are mapped and aligned, and all accesses from here are atomic.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let data = rustix::param::page_size();
        let size = (self.len - data) as u64;
        let mut found = Records::default();
        if self.mode == Mode::ReadOnly || size == 0 {
            return Ok(found);
        }
        // Acquire: the records before the head are read after it.
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        if end.wrapping_sub(at) > size {
            return Err(format!(
                "head {end:#x} is more than {size:#x} from tail {at:#x}"
            ));
        }
        while at != end {
            // A header has 8 bytes and records are multiples of that, so that it never wraps.
            let offset = data + (at % size) as usize;
            // SAFETY: it lies within the mapping, and the kernel leaves it alone up to the head.
            let header: sys::perf_event_header =
                unsafe { ptr::read_volatile(self.base.as_ptr().add(offset).cast()) };
            let len = u64::from(header.size);
            if len < 8 || len % 8 != 0 || len > end - at {
                return Err(format!(
                    "a record of type {} at {at:#x} has {len} bytes, {} are left",
                    header.type_,
                    end - at
                ));
            }
            found.records += 1;
            found.samples += u64::from(header.type_ == sys::PERF_RECORD_SAMPLE);
            found.bytes += len;
            at += len;
        }
        // Release: all is read before the kernel may write over it.
        tail.store(end, Ordering::Release);
        Ok(found)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and nothing borrows from it.
        let result = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(result.is_ok(), "munmap: {result:?}");
    }
}
