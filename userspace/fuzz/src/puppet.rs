// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes that do what they are told.

use std::cell::Cell;
use std::ffi::CStr;
use std::fs;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socketpair};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::sched_yield;

use crate::gate::Gate;
use crate::machine::Machine;
use crate::operation::{Descriptors, Role, Stream};
use crate::process::{Patience, Process};
use crate::sys;

/// What a child can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the counted loop.
    Run(u64),
    /// Fork a child that runs the counted loop, and wait for it.
    Fork(u64),
    /// Run the counted loop in so many threads.
    Threads(usize, u64),
    /// Execute this program anew.
    Exec,
    /// So many random operations of this seed.
    Random(u64, u64),
}

/// The argument that has a program of this crate be a child.
const PUPPET: &CStr = c"puppet";

impl Command {
    const SIZE: usize = 3 * 8;

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let words = match self {
            Self::Run(iterations) => [0, iterations, 0],
            Self::Fork(iterations) => [1, iterations, 0],
            Self::Threads(threads, iterations) => [2, threads as u64, iterations],
            Self::Exec => [3, 0, 0],
            Self::Random(seed, operations) => [4, seed, operations],
        };
        let mut bytes = [0; Self::SIZE];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..][..8]);
            u64::from_ne_bytes(word)
        };
        Some(match word(0) {
            0 => Self::Run(word(1)),
            1 => Self::Fork(word(1)),
            2 => Self::Threads(word(1) as usize, word(2)),
            3 => Self::Exec,
            4 => Self::Random(word(1), word(2)),
            _ => return None,
        })
    }
}

/// A child. Dropping it kills it.
///
/// It stops itself when it has nothing to do: then it does not execute an instruction more until it
/// is told to go on, which a child that says "ready" and then waits would.
pub struct Child {
    pid: Pid,
    socket: OwnedFd,
    /// Set when it has ended and its process id is free.
    ended: Cell<bool>,
}

impl Child {
    /// Forks a child and waits until it waits for commands.
    pub fn fork(machine: &Machine, descriptors: Descriptors) -> Result<Self, Errno> {
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // SAFETY: this process has one thread, so that the child's copy of it is whole.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(sys::last()),
            0 => Self::live(machine, socket, theirs, descriptors),
            pid => Pid::from_raw(pid).ok_or(Errno::SRCH)?,
        };
        let child = Self {
            pid,
            socket,
            ended: Cell::new(false),
        };
        child.await_stop()?;
        Ok(child)
    }

    /// The child's life. Nothing of its parent's is dropped here: it is the parent's.
    fn live(machine: &Machine, parent: OwnedFd, own: OwnedFd, descriptors: Descriptors) -> ! {
        // SAFETY: plain calls. The socket becomes descriptor 0, which this process does not use;
        // what is closed is used no more, since this function does not return.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::dup2(own.into_raw_fd(), 0);
            match descriptors {
                Descriptors::Close => libc::close_range(3, u32::MAX, 0),
                Descriptors::Keep => libc::close(parent.into_raw_fd()),
            };
        }
        serve(Some(machine))
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Has the child do something; with [`Patience::Wait`], until it is done.
    pub fn command(&self, command: Command, patience: Patience) -> Result<(), Errno> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send(&self.socket, &command.to_bytes(), flags)?;
        if self.ended.get() {
            return Err(Errno::CHILD);
        }
        kill_process(self.pid, Signal::CONT)?;
        match patience {
            Patience::Wait => self.await_stop(),
            Patience::Go => Ok(()),
        }
    }

    fn await_stop(&self) -> Result<(), Errno> {
        loop {
            match waitpid(Some(self.pid), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => return self.await_rest(),
                Ok(_) => {
                    self.ended.set(true);
                    return Err(Errno::CHILD);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Waits until the child is off its CPU. It tells its parent that it stops before it does, and
    /// may lose the CPU in between: then what is left of its way would be counted later.
    fn await_rest(&self) -> Result<(), Errno> {
        let path = format!("/proc/{}/syscall", self.pid.as_raw_nonzero());
        // To say where the child is, the kernel waits until it is there for good.
        while fs::read(&path)
            .map_err(|error| sys::errno_of(&error))?
            .starts_with(b"running")
        {
            sched_yield();
        }
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.ended.get() {
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}

/// Serves as a child if this process was executed by one. To be called first in `main`.
pub fn serve_if_asked() {
    let word = std::env::args_os().nth(1);
    if word.is_some_and(|word| word.as_encoded_bytes() == PUPPET.to_bytes()) {
        serve(None)
    }
}

/// Stops, takes a command from descriptor 0, obeys, and so on until that is closed.
fn serve(machine: Option<&Machine>) -> ! {
    // SAFETY: descriptor 0 is the socket, and stays open until the process ends.
    let socket = unsafe { BorrowedFd::borrow_raw(0) };
    loop {
        // SAFETY: a plain call.
        unsafe { libc::raise(libc::SIGSTOP) };
        let mut bytes = [0; Command::SIZE];
        let command = match recv(socket, &mut bytes, RecvFlags::empty()) {
            Ok((_, Command::SIZE)) => Command::from_bytes(&bytes),
            Err(Errno::INTR) => continue,
            _ => None,
        };
        match command {
            Some(command) => obey(command, machine),
            // SAFETY: ends the process at once, without what its parent has set up for its end.
            None => unsafe { libc::_exit(0) },
        }
    }
}

fn obey(command: Command, machine: Option<&Machine>) {
    match command {
        Command::Run(iterations) => workloads::run_loop(iterations),
        // A fork that fails is one of the things that can happen.
        Command::Fork(iterations) => {
            let _gate = Gate::to_fork();
            drop(workloads::run_fork(iterations));
        }
        Command::Threads(threads, iterations) => {
            let _gate = Gate::to_fork();
            workloads::run_threads(threads, iterations);
        }
        Command::Exec => execute(),
        Command::Random(seed, operations) => {
            let Some(machine) = machine else { return };
            let mut process = Process::new(machine, Patience::Go);
            let stream = Stream::new(seed, 0, Role::User, machine.cpus);
            for operation in stream.take(operations as usize) {
                // Its parent's children are not its own.
                let _ = process.perform(&operation);
            }
        }
    }
}

/// Becomes a new image of this program that serves. Returns if that fails.
fn execute() {
    let args = [c"fuzz".as_ptr(), PUPPET.as_ptr(), ptr::null()];
    // SAFETY: the strings end in NUL and the array in a null pointer.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), args.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_survives_the_socket() {
        for command in [
            Command::Run(1),
            Command::Fork(u64::MAX),
            Command::Threads(2, 3),
            Command::Exec,
            Command::Random(4, 5),
        ] {
            assert_eq!(Command::from_bytes(&command.to_bytes()), Some(command));
        }
        assert_eq!(Command::from_bytes(&[0xff; Command::SIZE]), None);
    }
}
