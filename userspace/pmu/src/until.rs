// SPDX-License-Identifier: MIT OR Apache-2.0
//! When to stop: at the end of a command or process, after some time, or when the user says so.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Waits for the end of what is watched.
pub struct Until {
    signal: UnixStream,
    process: Option<OwnedFd>,
    deadline: Option<Instant>,
}

/// Why a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Some of the other descriptors have something to read.
    Look {
        /// Those, by their place, that will never have anything new: what they watch has ended.
        /// Left in, they would end every wait at once.
        ended: Vec<usize>,
    },
    /// It is time to stop.
    Stop,
}

impl Until {
    /// From now on SIGINT and SIGTERM do not end this program, but stop the wait.
    ///
    /// # Errors
    /// Those of setting signal handlers.
    pub fn new(limit: Option<Duration>) -> Result<Self> {
        let (signal, handler) = UnixStream::pair().context("making a socket pair")?;
        for number in [SIGINT, SIGTERM] {
            let handler = handler.try_clone().context("copying a socket")?;
            signal_hook::low_level::pipe::register(number, handler)
                .with_context(|| format!("catching signal {number}"))?;
        }
        Ok(Self {
            signal,
            process: None,
            // What is too far away to be a time is no limit.
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
        })
    }

    /// Stops when this child has ended.
    ///
    /// # Errors
    /// As [`Until::process`].
    pub fn child(&mut self, child: &Child) -> Result<()> {
        self.process(child.id())
    }

    /// Stops when this process has ended.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn process(&mut self, pid: u32) -> Result<()> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.with_context(|| format!("{pid} is no process id"))?;
        let fd = pidfd_open(raw, PidfdFlags::empty());
        self.process = Some(fd.with_context(|| format!("watching process {pid}"))?);
        Ok(())
    }

    /// Waits for `others` to have something to read, or for the end.
    ///
    /// # Errors
    /// Those of poll.
    pub fn wait(&self, others: &[BorrowedFd<'_>]) -> io::Result<Event> {
        let ends = self.process.iter().map(AsFd::as_fd);
        let ends: Vec<_> = std::iter::once(self.signal.as_fd()).chain(ends).collect();
        let mut fds: Vec<_> = ends
            .iter()
            .chain(others)
            .map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let left = self
            .deadline
            .map(|end| end.saturating_duration_since(Instant::now()));
        match poll(&mut fds, left.map(timespec).as_ref()) {
            // The handler has written to the socket by now: the next wait sees it.
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let (ends, others) = fds.split_at(ends.len());
        let late = self.deadline.is_some_and(|end| Instant::now() >= end);
        if late || ends.iter().any(|fd| !fd.revents().is_empty()) {
            return Ok(Event::Stop);
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let others = others.iter().enumerate();
        let ended = others.filter(|(_, fd)| fd.revents().intersects(gone));
        Ok(Event::Look {
            ended: ended.map(|(place, _)| place).collect(),
        })
    }
}

/// The exit status of a child that has ended; one that still runs is sent SIGTERM first.
///
/// `None` when a signal ended it.
///
/// # Errors
/// Those of waiting.
pub fn end(child: &mut Child) -> io::Result<Option<i32>> {
    if child.try_wait()?.is_none() {
        // It may have ended by itself just now, which is as good.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }
    Ok(child.wait()?.code())
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Command;

    #[test]
    fn it_ends_with_the_child() {
        let mut until = Until::new(None).unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        until.child(&child).unwrap();
        assert_eq!(until.wait(&[]).unwrap(), Event::Stop);
        child.wait().unwrap();
    }

    #[test]
    fn it_ends_after_the_limit() {
        let until = Until::new(Some(Duration::from_millis(20))).unwrap();
        assert_eq!(until.wait(&[]).unwrap(), Event::Stop);
    }

    #[test]
    fn what_has_ended_is_told_apart_from_what_has_news() {
        let until = Until::new(None).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"!").unwrap();
        let look = until.wait(&[ours.as_fd()]).unwrap();
        assert_eq!(look, Event::Look { ended: vec![] });
        drop(theirs);
        let look = until.wait(&[ours.as_fd()]).unwrap();
        assert_eq!(look, Event::Look { ended: vec![0] });
    }

    #[test]
    fn a_child_that_runs_is_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(end(&mut child).unwrap(), None);
    }
}
