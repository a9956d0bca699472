// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to watch: a command, a process, or CPUs.

use std::ffi::OsString;
use std::fs;
use std::process::{Child, Command};

use anyhow::{Context, Result, bail, ensure};
use perfshim::discovery::CpuList;
use perfshim::spec::ResolvedEvent;
use perfshim::{Attr, Target};

use crate::launch::Waiting;

/// What a person asked to watch.
#[derive(Clone, Debug)]
pub enum Request {
    /// A program with its arguments, from its exec to its end.
    Command(Vec<OsString>),
    /// A process with all its threads.
    Process(u32),
    /// Everything that runs on these CPUs; a command, if there is one, says for how long.
    Cpus(CpuList, Vec<OsString>),
    /// As [`Request::Cpus`] on all CPUs.
    System(Vec<OsString>),
}

impl Request {
    /// The program of the command, or nothing.
    fn program(&self) -> String {
        let command = match self {
            Self::Command(command) | Self::Cpus(_, command) | Self::System(command) => command,
            Self::Process(_) => return String::new(),
        };
        command
            .first()
            .map(|program| program.to_string_lossy().into_owned())
            .unwrap_or_default()
    }
}

/// What is watched, ready for events to be opened on it.
pub struct Watch {
    threads: Vec<u32>,
    /// The CPUs to watch, or those to which a thread may move.
    cpus: CpuList,
    command: Option<Waiting>,
    /// The command's program, for errors.
    program: String,
    /// Whether the command is what is watched, so that the events start with its exec.
    from_exec: bool,
    process: Option<u32>,
}

impl Watch {
    /// Finds the threads or CPUs, or forks the command.
    ///
    /// # Errors
    /// When there is no such process or CPU, or the command cannot be forked.
    pub fn new(request: Request) -> Result<Self> {
        let online = CpuList::online().context("reading the list of CPUs that are on line")?;
        Self::with_cpus(request, online)
    }

    fn with_cpus(request: Request, online: CpuList) -> Result<Self> {
        let mut watch = Self {
            threads: Vec::new(),
            cpus: online,
            command: None,
            program: request.program(),
            from_exec: false,
            process: None,
        };
        match request {
            Request::Command(command) => {
                let waiting = fork(&command)?;
                watch.threads.push(waiting.pid());
                watch.command = Some(waiting);
                watch.from_exec = true;
            }
            Request::Process(pid) => {
                watch.threads = threads(pid)?;
                watch.process = Some(pid);
            }
            Request::Cpus(cpus, command) => {
                // The first alone: a range may name 2^32 of them.
                if let Some(cpu) = cpus.iter().find(|&cpu| !watch.cpus.contains(cpu)) {
                    bail!("CPU {cpu} is not on line; those that are: {}", watch.cpus);
                }
                watch.cpus = cpus;
                watch.command = fork_any(&command)?;
            }
            Request::System(command) => watch.command = fork_any(&command)?,
        }
        Ok(watch)
    }

    /// Whether threads are watched, not CPUs.
    pub fn is_per_thread(&self) -> bool {
        !self.threads.is_empty()
    }

    /// The command's process, until it is started.
    pub fn waiting(&self) -> Option<u32> {
        self.command.as_ref().map(Waiting::pid)
    }

    /// The process that is watched and was there before.
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// The targets on which to open an event that only counts.
    pub fn targets(&self) -> Vec<Target<'static>> {
        if self.is_per_thread() {
            self.threads
                .iter()
                .map(|&tid| Target::Thread(tid))
                .collect()
        } else {
            self.cpus.iter().map(Target::Cpu).collect()
        }
    }

    /// The targets on which to open an event that has a ring: an inherited event can have one only
    /// if it is bound to a CPU.
    pub fn targets_with_ring(&self) -> Vec<Target<'static>> {
        if self.is_per_thread() {
            let on_cpus = |&tid| {
                self.cpus
                    .iter()
                    .map(move |cpu| Target::ThreadOnCpu(tid, cpu))
            };
            self.threads.iter().flat_map(on_cpus).collect()
        } else {
            self.targets()
        }
    }

    /// Adds to attributes what this way of watching needs.
    pub fn attr(&self, attr: Attr, event: &ResolvedEvent) -> Attr {
        let mut attr = attr;
        if self.is_per_thread() && event.inherit != Some(false) {
            attr = attr.inherit();
        }
        if self.from_exec {
            attr = attr.enable_on_exec();
        }
        attr
    }

    /// Whether events enable themselves when the command execs.
    pub fn starts_by_itself(&self) -> bool {
        self.from_exec
    }

    /// Lets the command run, if there is one.
    ///
    /// # Errors
    /// When it cannot be executed.
    pub fn start(&mut self) -> Result<Option<Child>> {
        self.command
            .take()
            .map(|waiting| {
                let failed = || format!("{} cannot be run", self.program);
                waiting.start().with_context(failed)
            })
            .transpose()
    }
}

fn fork_any(command: &[OsString]) -> Result<Option<Waiting>> {
    (!command.is_empty()).then(|| fork(command)).transpose()
}

fn fork(command: &[OsString]) -> Result<Waiting> {
    let Some((program, args)) = command.split_first() else {
        bail!("there is no command: give one after `--`");
    };
    let mut command = Command::new(program);
    command.args(args);
    Waiting::new(command).with_context(|| format!("starting {}", program.to_string_lossy()))
}

/// The ids of a process's threads.
fn threads(pid: u32) -> Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&folder)
        .with_context(|| format!("there is no process {pid} that you may look at"))?;
    let mut threads = Vec::new();
    for entry in entries {
        let name = entry
            .with_context(|| format!("reading {folder}"))?
            .file_name();
        threads.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    ensure!(!threads.is_empty(), "process {pid} has ended");
    threads.sort_unstable();
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(request: Request) -> Result<Watch> {
        Watch::with_cpus(request, "0-3".parse().unwrap())
    }

    #[test]
    fn a_process_has_its_main_thread() {
        let pid = std::process::id();
        let watched = watch(Request::Process(pid)).unwrap();
        assert!(watched.threads.contains(&pid));
        assert_eq!(watched.process(), Some(pid));
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = watch(Request::Process(u32::MAX)).err().unwrap();
        assert!(error.to_string().contains("4294967295"), "{error}");
    }

    #[test]
    fn a_ring_has_one_cpu() {
        let watched = watch(Request::Process(std::process::id())).unwrap();
        assert!(
            watched
                .targets_with_ring()
                .iter()
                .all(|target| target.cpu().is_some())
        );
        assert!(
            watched
                .targets()
                .iter()
                .all(|target| target.cpu().is_none())
        );
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        for (cpus, missing) in [("2,70000", "CPU 70000 "), ("0-4294967295", "CPU 4 ")] {
            let cpus = cpus.parse().unwrap();
            let error = watch(Request::Cpus(cpus, Vec::new())).err().unwrap();
            assert!(error.to_string().contains(missing), "{error}");
        }
    }
}
