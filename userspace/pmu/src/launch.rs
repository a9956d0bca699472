// SPDX-License-Identifier: MIT OR Apache-2.0
//! A command that waits just before its exec, so that events can be opened on it first.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};

use rustix::pipe::{PipeFlags, pipe_with};

/// A process that has been forked and waits. Dropped before [`Waiting::start`], it ends without
/// having run anything.
pub struct Waiting {
    pid: u32,
    go: File,
    spawn: JoinHandle<io::Result<Child>>,
}

impl Waiting {
    /// Forks a process that will run `command`.
    ///
    /// # Errors
    /// Those of making pipes, a thread and a process.
    pub fn new(mut command: Command) -> io::Result<Self> {
        let (mut pid_reader, pid_writer) = pipe()?;
        let (go_reader, go) = pipe()?;
        let parents_end = go.as_raw_fd();
        let hook = move || {
            // The parent's end, copied by fork: open here, it would keep the read below waiting
            // when the parent is gone.
            // SAFETY: closes this process's copy only, which nothing here uses.
            unsafe { libc::close(parents_end) };
            (&pid_writer).write_all(&std::process::id().to_ne_bytes())?;
            (&go_reader).read_exact(&mut [0])
        };
        // SAFETY: the hook only closes, writes and reads descriptors, which is allowed between
        // fork and exec.
        unsafe { command.pre_exec(hook) };
        // spawn() returns after the exec, hence the thread.
        let spawn = thread::spawn(move || command.spawn());
        let mut pid = [0; 4];
        match pid_reader.read_exact(&mut pid) {
            Ok(()) => Ok(Self {
                pid: u32::from_ne_bytes(pid),
                go,
                spawn,
            }),
            // There is no process, and spawn knows why.
            Err(error) => Err(join(spawn).err().unwrap_or(error)),
        }
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it exec.
    ///
    /// # Errors
    /// Those of exec: there is no such program, or it is none.
    pub fn start(mut self) -> io::Result<Child> {
        self.go.write_all(b"!")?;
        join(self.spawn)
    }
}

fn pipe() -> io::Result<(File, File)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((reader.into(), writer.into()))
}

fn join(spawn: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    spawn.join().unwrap_or_else(|_| {
        Err(io::Error::other(
            "the thread that starts the command ended early",
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_and_then_runs() {
        let mut command = Command::new("cat");
        command
            .arg("/proc/self/stat")
            .stdout(std::process::Stdio::piped());
        let waiting = Waiting::new(command).unwrap();
        let pid = waiting.pid();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(!stat.contains("(cat)"), "it runs already: {stat}");
        let output = waiting.start().unwrap().wait_with_output().unwrap();
        let stat = String::from_utf8(output.stdout).unwrap();
        assert!(stat.starts_with(&format!("{pid} (cat)")), "{stat}");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_at_the_start() {
        let waiting = Waiting::new(Command::new("/no/such/program")).unwrap();
        let error = waiting.start().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn dropped_it_ends() {
        let waiting = Waiting::new(Command::new("true")).unwrap();
        let Waiting { go, spawn, .. } = waiting;
        drop(go);
        assert!(join(spawn).is_err());
    }
}
