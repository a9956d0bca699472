// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for records.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{Operation, Result};
use crate::event::Shared;
use crate::ring::Ring;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// There is something to read.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
    /// All tasks that were watched have ended. What they left in the ring can still be read.
    HungUp,
    /// The event is dead: its PMU is gone, or it is pinned and could not be put on a counter.
    Failed,
}

impl Wake {
    /// Whether nothing new will come, and every later wait would end at once for this reason.
    pub fn is_final(self) -> bool {
        matches!(self, Self::HungUp | Self::Failed)
    }
}

/// Waits for one event.
pub(super) fn one(shared: &Shared, timeout: Option<Duration>) -> Result<Wake> {
    let mut fds = [PollFd::from_borrowed_fd(shared.fd.as_fd(), PollFlags::IN)];
    match poll_for(&mut fds, timeout) {
        Ok(0) => Ok(Wake::TimedOut),
        Ok(_) => Ok(wake(fds[0].revents())),
        Err(Errno::INTR) => Ok(Wake::Interrupted),
        Err(errno) => Err(shared.refused(Operation::Poll, errno)),
    }
}

/// Waits for any of several rings, and says of each why it is worth a look; those that need none
/// are not in the list. An empty list means that the time is over, or that a signal handler ran.
///
/// A ring whose tasks have all ended, or whose event is dead, is in every list from then on: take
/// it out when it was read to the end.
pub fn wait_any<'r>(
    rings: impl IntoIterator<Item = &'r Ring>,
    timeout: Option<Duration>,
) -> Result<Vec<(usize, Wake)>> {
    let rings: Vec<&Ring> = rings.into_iter().collect();
    let fds = rings.iter().map(|ring| ring.as_fd());
    let mut fds: Vec<_> = fds
        .map(|fd: BorrowedFd<'_>| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll_for(&mut fds, timeout) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Vec::new()),
        Err(errno) => {
            return match rings.first() {
                Some(ring) => Err(ring.claim.shared().refused(Operation::Poll, errno)),
                None => Ok(Vec::new()),
            };
        }
    }
    let woken = fds
        .iter()
        .enumerate()
        .filter(|(_, fd)| !fd.revents().is_empty());
    Ok(woken
        .map(|(index, fd)| (index, wake(fd.revents())))
        .collect())
}

fn poll_for(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> rustix::io::Result<usize> {
    let timeout = timeout.map(|timeout| Timespec {
        // Longer than the type can say is as good as for ever.
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    poll(fds, timeout.as_ref())
}

/// What the kernel's poll says: `EPOLLIN` after a wake-up, `EPOLLHUP` when the tasks have ended,
/// `EPOLLERR` for an event that was revoked or is in its error state.
fn wake(flags: PollFlags) -> Wake {
    if flags.contains(PollFlags::ERR) || flags.contains(PollFlags::NVAL) {
        Wake::Failed
    } else if flags.contains(PollFlags::IN) {
        Wake::Ready
    } else {
        Wake::HungUp
    }
}
