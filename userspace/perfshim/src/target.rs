// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an event watches: the pid and cpu arguments of perf_event_open(2).

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::flags::OpenFlags;

/// What an event watches.
///
/// To the kernel a "pid" here is one thread. A process of several threads takes one event for
/// each, or [`inherit`](crate::Attr::inherit) set before they start.
#[derive(Clone, Copy, Debug)]
pub enum Target<'fd> {
    /// The calling thread, on any CPU.
    ThisThread,
    /// The calling thread, while it is on this CPU.
    ThisThreadOnCpu(u32),
    /// The thread with this id, on any CPU.
    Thread(u32),
    /// The thread with this id, while it is on this CPU.
    ThreadOnCpu(u32, u32),
    /// All that runs on this CPU.
    Cpu(u32),
    /// All of a cgroup that runs on this CPU.
    Cgroup(BorrowedFd<'fd>, u32),
}

impl Target<'_> {
    /// The pid, cpu and flags that the system call wants; `None` when an id exceeds its range.
    pub(crate) fn arguments(self) -> Option<(i32, i32, OpenFlags)> {
        let none = OpenFlags::empty();
        // A thread id of 0 would mean the caller to the kernel: `ThisThread` says that.
        let tid = |tid: u32| i32::try_from(tid).ok().filter(|&tid| tid > 0);
        let cpu = |cpu: u32| i32::try_from(cpu).ok();
        Some(match self {
            Self::ThisThread => (0, -1, none),
            Self::ThisThreadOnCpu(c) => (0, cpu(c)?, none),
            Self::Thread(t) => (tid(t)?, -1, none),
            Self::ThreadOnCpu(t, c) => (tid(t)?, cpu(c)?, none),
            Self::Cpu(c) => (-1, cpu(c)?, none),
            Self::Cgroup(fd, c) => (fd.as_raw_fd(), cpu(c)?, OpenFlags::PID_CGROUP),
        })
    }

    /// The one CPU that is watched, if it is one.
    pub fn cpu(self) -> Option<u32> {
        match self {
            Self::ThisThread | Self::Thread(_) => None,
            Self::ThisThreadOnCpu(cpu)
            | Self::ThreadOnCpu(_, cpu)
            | Self::Cpu(cpu)
            | Self::Cgroup(_, cpu) => Some(cpu),
        }
    }
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThisThread => write!(f, "the calling thread"),
            Self::ThisThreadOnCpu(cpu) => write!(f, "the calling thread on CPU {cpu}"),
            Self::Thread(tid) => write!(f, "thread {tid}"),
            Self::ThreadOnCpu(tid, cpu) => write!(f, "thread {tid} on CPU {cpu}"),
            Self::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Self::Cgroup(fd, cpu) => {
                write!(
                    f,
                    "the cgroup of descriptor {} on CPU {cpu}",
                    fd.as_raw_fd()
                )
            }
        }
    }
}
