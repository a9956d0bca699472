// SPDX-License-Identifier: MIT OR Apache-2.0
//! When to stop: at the end of a command or process, after some time, or when the user says so.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGINT, SIGTERM};

/// How long a child may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

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
        // For `forget_signals`, which reads until there is nothing.
        signal
            .set_nonblocking(true)
            .context("setting up a socket")?;
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

    /// The exit status of a child that has ended by itself; 128 and the number of the signal if
    /// one ended it, as shells have it.
    ///
    /// `None` for a child that still runs, which is stopped: with SIGTERM, and with SIGKILL when
    /// it is still there two seconds later or the user asks again.
    ///
    /// # Errors
    /// Those of waiting.
    pub fn end(&self, child: &mut Child) -> io::Result<Option<i32>> {
        if let Some(status) = child.try_wait()? {
            let killed = || status.signal().map(|number| 128 + number);
            return Ok(status.code().or_else(killed));
        }
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        self.forget_signals()?;
        // It may have ended by itself just now, which is as good; so below.
        let _ = pidfd_send_signal(&process, Signal::TERM);
        if !self.ends_in_time(process.as_fd())? {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
        child.wait()?;
        Ok(None)
    }

    /// Takes the signals that came so far out of the socket, to see the next one.
    fn forget_signals(&self) -> io::Result<()> {
        loop {
            match (&self.signal).read(&mut [0; 64]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a process ends before [`PATIENCE`] is over and before the next signal.
    fn ends_in_time(&self, process: BorrowedFd<'_>) -> io::Result<bool> {
        let end = Instant::now() + PATIENCE;
        let mut fds =
            [process, self.signal.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        loop {
            let left = timespec(end.saturating_duration_since(Instant::now()));
            match poll(&mut fds, Some(&left)) {
                Ok(_) => return Ok(!fds[0].revents().is_empty()),
                // The handler has written to the socket by now.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
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
    use std::process::{Command, Stdio};

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

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn a_child_that_runs_is_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let until = Until::new(None).unwrap();
        assert_eq!(until.end(&mut child).unwrap(), None);
    }

    #[test]
    fn a_child_that_ignores_it_is_killed() {
        let mut child = shell("trap '' TERM; echo ready; exec sleep 1000");
        let mut ready = [0; 6];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut ready)
            .unwrap();
        let until = Until::new(None).unwrap();
        assert_eq!(until.end(&mut child).unwrap(), None);
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn a_child_that_ended_by_itself_has_its_status() {
        for (script, expected) in [("exit 3", 3), ("kill -KILL $$", 137)] {
            let mut child = shell(script);
            let mut until = Until::new(None).unwrap();
            until.child(&child).unwrap();
            assert_eq!(until.wait(&[]).unwrap(), Event::Stop);
            assert_eq!(until.end(&mut child).unwrap(), Some(expected));
        }
    }
}
