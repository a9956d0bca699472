// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several processes that do random operations at the same time.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use crate::machine::Machine;
use crate::operation::{KINDS, Operation, Role, Stream};
use crate::process::{Failure, Patience, Process, Value};
use crate::sys::last;

/// The most processes that there can be.
const MAX_PROCESSES: usize = 64;
/// More than the largest error number that perf events answer with.
const ERRORS: usize = 134;
/// For how long a process may be at its last operation.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often to tell that all is well.
const NEWS: Duration = Duration::from_secs(10);

/// A storm.
pub struct Plan {
    /// What all operations follow from.
    pub seed: u64,
    /// When it ends.
    pub until: Until,
    /// How many processes open and use events. Two more take CPUs and the driver away.
    pub users: usize,
    /// Whether each operation is written to the kernel's log before it is done.
    pub trace: bool,
}

/// When a storm ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so long.
    Time(Duration),
    /// When each process that uses events has done so many operations.
    Operations(u64),
}

/// What the processes of a storm share.
struct Shared {
    stop: AtomicBool,
    /// The operation that each process is at.
    at: [AtomicU64; MAX_PROCESSES],
    /// Operations of each kind that there was something for.
    tried: [AtomicU64; KINDS.len()],
    /// Those that were done.
    done: [AtomicU64; KINDS.len()],
    /// Events that were refused, by error number.
    refused: [AtomicU64; ERRORS],
    samples: AtomicU64,
    counted: AtomicU64,
}

impl Shared {
    /// In memory that forked processes have in common. It stays until this program ends.
    fn new() -> Result<&'static Self> {
        // SAFETY: the kernel picks the address. The memory is large enough and aligned to a page,
        // all zeros are a valid value, and nothing unmaps it.
        unsafe {
            let memory = mmap_anonymous(
                ptr::null_mut(),
                size_of::<Self>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )?;
            Ok(&*memory.cast::<Self>())
        }
    }
}

/// What happened in a storm.
pub struct Tally {
    /// For each kind of operation: its name, how often it was tried and done.
    pub kinds: Vec<(&'static str, u64, u64)>,
    /// How often an open was refused with which error.
    pub refused: Vec<(Errno, u64)>,
    /// Samples that were read.
    pub samples: u64,
    /// Reads that returned a count other than 0.
    pub counted: u64,
    /// How long it took.
    pub time: Duration,
}

struct Worker {
    pid: Pid,
    fd: OwnedFd,
    role: Role,
    running: bool,
}

impl Plan {
    fn role(&self, process: usize) -> Role {
        match process.checked_sub(self.users) {
            None => Role::User,
            Some(0) => Role::Cpus,
            Some(_) => Role::Binding,
        }
    }

    fn processes(&self) -> usize {
        self.users + 2
    }

    /// The operations of one of the processes.
    pub fn stream(&self, process: usize, cpus: u32) -> Stream {
        Stream::new(self.seed, process as u64, self.role(process), cpus)
    }

    /// Runs the storm and waits for its end. Then all CPUs are on line.
    ///
    /// # Errors
    ///
    /// When a process ends early, finds something that must not be, or does not end.
    pub fn run(&self, machine: &Machine) -> Result<Tally> {
        ensure!(
            (1..=MAX_PROCESSES - 2).contains(&self.users),
            "from 1 to {} processes can use events, not {}",
            MAX_PROCESSES - 2,
            self.users
        );
        let shared = Shared::new()?;
        let start = Instant::now();
        let mut workers = (0..self.processes())
            .map(|process| self.fork(machine, shared, process))
            .collect::<Result<Vec<_>>>()?;
        let result = self.watch(machine, shared, &mut workers, start);
        shared.stop.store(true, Relaxed);
        let ended = self.await_end(machine, shared, &mut workers);
        machine.all_online()?;
        result.and(ended)?;
        Ok(Tally {
            kinds: (0..KINDS.len())
                .map(|kind| {
                    let [tried, done] =
                        [&shared.tried, &shared.done].map(|counts| counts[kind].load(Relaxed));
                    (KINDS[kind], tried, done)
                })
                .collect(),
            refused: (1..)
                .zip(&shared.refused[1..])
                .map(|(number, count)| (Errno::from_raw_os_error(number), count.load(Relaxed)))
                .filter(|&(_, count)| count > 0)
                .collect(),
            samples: shared.samples.load(Relaxed),
            counted: shared.counted.load(Relaxed),
            time: start.elapsed(),
        })
    }

    fn fork(&self, machine: &Machine, shared: &Shared, process: usize) -> Result<Worker> {
        // SAFETY: this process has one thread, so that the child's copy of it is whole.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(last()).context("fork"),
            0 => {
                let status = match self.work(machine, shared, process) {
                    Ok(()) => 0,
                    Err(error) => {
                        eprintln!("fuzz: process {process}: {error:#}");
                        1
                    }
                };
                // SAFETY: ends the process at once, without what its parent has set up for its end.
                unsafe { libc::_exit(status) }
            }
            pid => Pid::from_raw(pid).context("fork returned no pid")?,
        };
        Ok(Worker {
            pid,
            fd: pidfd_open(pid, PidfdFlags::empty())?,
            role: self.role(process),
            running: true,
        })
    }

    /// The life of a process.
    fn work(&self, machine: &Machine, shared: &Shared, process: usize) -> Result<()> {
        // SAFETY: plain calls: the name, and that this process ends with its parent.
        unsafe {
            let name = format!("fuzz-{process}\0");
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        let mut log = match self.trace {
            true => Some(OpenOptions::new().write(true).open("/dev/kmsg")?),
            false => None,
        };
        let mut hands = Process::new(machine, Patience::Go);
        let stream = self.stream(process, machine.cpus);
        for (number, operation) in (0..).zip(stream) {
            let enough = match self.until {
                Until::Operations(operations) => number >= operations && process < self.users,
                Until::Time(_) => false,
            };
            if enough || shared.stop.load(Relaxed) {
                break;
            }
            shared.at[process].store(number, Relaxed);
            if let Some(log) = &mut log {
                log.write_all(format!("fuzz {process}.{number}: {operation}\n").as_bytes())?;
            }
            let kind = operation.kind();
            let outcome = hands.perform(&operation);
            if !matches!(outcome, Err(Failure::Empty)) {
                shared.tried[kind].fetch_add(1, Relaxed);
            }
            match outcome {
                Ok(value) => {
                    shared.done[kind].fetch_add(1, Relaxed);
                    shared.note(&value);
                }
                Err(Failure::Refused(errno)) if matches!(operation, Operation::Open { .. }) => {
                    shared.note_refusal(errno);
                }
                Err(Failure::Wrong(what)) => bail!("operation {number}, {operation}: {what}"),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Waits until it is time to end.
    fn watch(
        &self,
        machine: &Machine,
        shared: &Shared,
        workers: &mut [Worker],
        start: Instant,
    ) -> Result<()> {
        let mut news = start + NEWS;
        loop {
            let now = Instant::now();
            let end = match self.until {
                Until::Time(time) => start + time,
                Until::Operations(_) => now + NEWS,
            };
            let users_run = workers.iter().any(|w| w.running && w.role == Role::User);
            if now >= end || !users_run {
                return Ok(());
            }
            if now >= news {
                news += NEWS;
                shared.tell(now - start);
            }
            await_one(workers, end.min(news) - now)?;
            for (process, worker) in workers.iter_mut().enumerate() {
                let Some(status) = worker.ended()? else {
                    continue;
                };
                let early = matches!(self.until, Until::Time(_)) || worker.role != Role::User;
                ensure!(
                    status == Some(0) && !early,
                    "process {process} ended with {status:?} at {}",
                    self.operation(machine, shared, process)
                );
            }
        }
    }

    /// Waits for those that have been told to end.
    fn await_end(&self, machine: &Machine, shared: &Shared, workers: &mut [Worker]) -> Result<()> {
        let start = Instant::now();
        let mut result = Ok(());
        while let Some(left) = PATIENCE.checked_sub(start.elapsed()) {
            if !workers.iter().any(|worker| worker.running) {
                return result;
            }
            await_one(workers, left)?;
            for (process, worker) in workers.iter_mut().enumerate() {
                if let Some(status) = worker.ended()?.filter(|&status| status != Some(0)) {
                    result = result.and_then(|()| {
                        bail!("process {process} ended with {status:?}");
                    });
                }
            }
        }
        let mut text = String::new();
        for (process, worker) in workers.iter().enumerate().filter(|(_, w)| w.running) {
            let pid = worker.pid.as_raw_nonzero();
            let stack = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
            let at = self.operation(machine, shared, process);
            let _ = write!(text, "\nprocess {process} at {at}\n{stack}");
        }
        bail!(
            "not ended {} s after they were told to:{text}",
            PATIENCE.as_secs()
        )
    }

    /// The operation that a process is at.
    fn operation(&self, machine: &Machine, shared: &Shared, process: usize) -> String {
        let number = shared.at[process].load(Relaxed);
        let operation: Option<Operation> = self
            .stream(process, machine.cpus)
            .nth(usize::try_from(number).unwrap_or(0));
        match operation {
            Some(operation) => format!("operation {number}, {operation}"),
            None => format!("operation {number}"),
        }
    }
}

impl Shared {
    fn note(&self, value: &Value) {
        match value {
            Value::Counts(counts) => {
                let counted = counts.iter().any(|count| count.value > 0);
                self.counted.fetch_add(counted.into(), Relaxed);
            }
            Value::Records(records, _) => {
                self.samples.fetch_add(records.samples, Relaxed);
            }
            Value::Done => {}
        }
    }

    fn note_refusal(&self, errno: Errno) {
        let number = usize::try_from(errno.raw_os_error()).unwrap_or(0);
        if let Some(count) = self.refused.get(number) {
            count.fetch_add(1, Relaxed);
        }
    }

    fn tell(&self, time: Duration) {
        let all: u64 = self.tried.iter().map(|count| count.load(Relaxed)).sum();
        eprintln!(
            "fuzz: {} s, {all} operations, {} events opened, {} samples",
            time.as_secs(),
            self.done[0].load(Relaxed),
            self.samples.load(Relaxed)
        );
    }
}

impl Worker {
    /// `Some` once it has ended: its exit status, or `None` for a signal.
    fn ended(&mut self) -> Result<Option<Option<i32>>> {
        if !self.running {
            return Ok(None);
        }
        match waitpid(Some(self.pid), WaitOptions::NOHANG)? {
            None => Ok(None),
            Some((_, status)) => {
                self.running = false;
                Ok(Some(status.exit_status()))
            }
        }
    }
}

/// Waits until a process ends, for at most so long.
fn await_one(workers: &[Worker], time: Duration) -> Result<()> {
    let mut fds: Vec<_> = workers
        .iter()
        .filter(|worker| worker.running)
        .map(|worker| PollFd::new(&worker.fd, PollFlags::IN))
        .collect();
    let time = Timespec {
        tv_sec: time.as_secs().try_into()?,
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&time)) {
        // A signal of an event that somebody opened on this process.
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
