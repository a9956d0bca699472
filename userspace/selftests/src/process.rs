// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes that wait until a test has opened its events on them.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::ptr;

use anyhow::{Context, Result, ensure};
use perfshim::Target;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use workloads::el0;

use crate::guest;

/// Waits until a process sleeps.
pub fn wait_asleep(pid: u32) -> Result<()> {
    guest::wait_until("a process that sleeps", || {
        let stat = guest::read(format!("/proc/{pid}/stat"))?;
        Ok(stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('S')))
    })
}

/// A program that is killed when the test is over.
pub struct Victim(Child);

impl Victim {
    /// Starts it, with nobody to read what it prints.
    pub fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null());
        Ok(Self(command.spawn().with_context(|| program.to_owned())?))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A child that waits for [`Stopped::run`] and then runs the counted loop. Dropped before that, it
/// is killed.
pub struct Stopped {
    pid: Pid,
    start: Option<OwnedFd>,
}

impl Stopped {
    /// A child that will run `iterations` of the counted loop itself.
    pub fn new(iterations: u64) -> Result<Self> {
        Self::fork(|| workloads::run_loop(iterations))
    }

    /// A child that will exec this program to run `iterations` of the counted loop.
    pub fn new_exec(iterations: u64) -> Result<Self> {
        // Prepared here: a forked child must not allocate.
        let program = CString::new("/proc/self/exe")?;
        let args = ["selftests", "child", &iterations.to_string()].map(CString::new);
        let args = args.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<_> = args.iter().map(|arg| arg.as_ptr()).collect();
        pointers.push(ptr::null());
        Self::fork(|| {
            // SAFETY: the strings end in NUL and the array in a null pointer; all of them live in
            // the child's copy of this frame.
            unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
            // SAFETY: ends the child at once, as must be after a failed exec.
            unsafe { libc::_exit(127) };
        })
    }

    /// A child that will read the cycle counter by instruction, which may end it.
    pub fn new_reader() -> Result<Self> {
        Self::fork(|| {
            el0::read_counter(el0::CYCLE_COUNTER);
        })
    }

    fn fork(work: impl FnOnce()) -> Result<Self> {
        let (wait, start) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child only reads, runs `work`, and ends. `work` is one of the three above,
        // which call nothing that is unsafe after a fork.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("fork"),
            0 => {
                let mut byte = [0u8; 1];
                // SAFETY: `byte` has room for one byte. What the parent holds open for writing is
                // closed here first, so that the read ends when the parent does.
                let started = unsafe {
                    libc::close(start.as_raw_fd());
                    libc::read(wait.as_raw_fd(), byte.as_mut_ptr().cast(), 1)
                };
                if started == 1 {
                    work();
                }
                // SAFETY: ends the child without running what the parent has set up for its end.
                unsafe { libc::_exit(if started == 1 { 0 } else { 1 }) }
            }
            pid => {
                let child = Self {
                    pid: Pid::from_raw(pid).context("fork returned a negative pid")?,
                    start: Some(start),
                };
                // Until it sleeps in its read, it has instructions before that to run.
                wait_asleep(pid.unsigned_abs())?;
                Ok(child)
            }
        }
    }

    /// What follows the child's only thread.
    pub fn target(&self) -> Target<'static> {
        Target::Thread(self.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Lets the child run to its end.
    pub fn run(self) -> Result<()> {
        let status = self.end()?;
        ensure!(
            status.exit_status() == Some(0),
            "the child ended with {status:?}"
        );
        Ok(())
    }

    /// Lets the child run, and returns how it ended.
    pub fn end(mut self) -> Result<WaitStatus> {
        let start = self.start.take().context("the child runs already")?;
        ensure!(
            rustix::io::write(&start, b"!")? == 1,
            "the child cannot be started"
        );
        let (_, status) = waitpid(Some(self.pid), WaitOptions::empty())?.context("no child")?;
        Ok(status)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.start.is_some() {
            // The child is ours and not yet waited for, so that the pid is still its own.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}
