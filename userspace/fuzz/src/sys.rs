// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls, with nothing between them and the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perfshim::sys::{self, perf_event_attr};
use rustix::io::Errno;

/// Attributes with room behind them, for a `size` that says there is more.
#[repr(C)]
struct Padded {
    attr: perf_event_attr,
    room: [u64; ROOM],
}

/// Words of room behind the attributes.
const ROOM: usize = 8;

/// The largest `size` that [`open`] passes on.
pub const MAX_SIZE: u32 = (size_of::<perf_event_attr>() + ROOM * 8) as u32;

/// perf_event_open(2).
pub fn open(
    attr: &perf_event_attr,
    pid: i32,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
    flags: u64,
) -> Result<OwnedFd, Errno> {
    let mut padded = Padded {
        attr: *attr,
        room: [0; ROOM],
    };
    assert!(attr.size <= MAX_SIZE);
    let group = group.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: the kernel reads `size` bytes, which lie within `padded`, and may write the size. It
    // does not keep the pointer.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw mut padded,
            pid,
            cpu,
            group,
            flags,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor; nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(last()),
    }
}

/// An ioctl whose argument is a number or, being 0, no pointer.
pub fn control(event: BorrowedFd<'_>, request: u32, argument: u64) -> Result<u64, Errno> {
    let by_pointer = [
        sys::PERIOD,
        sys::ID,
        sys::SET_FILTER,
        sys::QUERY_BPF,
        sys::MODIFY_ATTRIBUTES,
    ];
    assert!(argument == 0 || !by_pointer.contains(&request));
    // SAFETY: the kernel takes the argument as a number, or as a null pointer, which it refuses.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) };
    u64::try_from(done).map_err(|_| last())
}

/// `PERF_EVENT_IOC_PERIOD`.
pub fn set_period(event: BorrowedFd<'_>, period: u64) -> Result<u64, Errno> {
    // SAFETY: the kernel reads a u64 through the pointer, which is valid until it returns.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), sys::PERIOD as _, &raw const period) };
    u64::try_from(done).map_err(|_| last())
}

/// `PERF_EVENT_IOC_ID`.
pub fn id(event: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut id = 0u64;
    // SAFETY: the kernel writes a u64 through the pointer, which is valid until it returns.
    match unsafe { libc::ioctl(event.as_raw_fd(), sys::ID as _, &raw mut id) } {
        0 => Ok(id),
        _ => Err(last()),
    }
}

/// Switches all events that this process has opened: `PR_TASK_PERF_EVENTS_ENABLE` and `_DISABLE`.
pub fn switch_own_events(on: bool) -> Result<(), Errno> {
    let option = match on {
        true => libc::PR_TASK_PERF_EVENTS_ENABLE,
        false => libc::PR_TASK_PERF_EVENTS_DISABLE,
    };
    // SAFETY: these options take no further argument.
    match unsafe { libc::prctl(option) } {
        0 => Ok(()),
        _ => Err(last()),
    }
}

/// The error of the last call of the C library.
pub fn last() -> Errno {
    errno_of(&io::Error::last_os_error())
}

/// The error number behind an error of the standard library.
pub fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// How an error is printed: by its name.
pub fn name(errno: Errno) -> String {
    match perfshim::errno_name(errno) {
        Some(name) => name.to_owned(),
        None => format!("errno {}", errno.raw_os_error()),
    }
}
