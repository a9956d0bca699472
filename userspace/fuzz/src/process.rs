// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that does operations: its events and children, and what came of each operation.

use std::cell::Cell;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use perfshim::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::gate::Gate;
use crate::machine::Machine;
use crate::operation::{CHILDREN, Control, Operation, Reach, SLOTS, Tunable};
use crate::puppet::Child;
use crate::request::{Request, Whom};
use crate::ring::{Mode, Records, Ring};
use crate::sys::{control, id, name, open, set_period, switch_own_events};

/// Whether a process waits until its children have done what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It does, so that nothing happens at the same time.
    Wait,
    /// It goes on at once.
    Go,
}

/// What an operation came to.
#[derive(Debug)]
pub enum Value {
    /// It is done, and there is nothing to say of it.
    Done,
    /// Counts.
    Counts(Vec<Count>),
    /// Records, and whether their number is the same whenever the same was done before.
    Records(Records, Repeatable),
}

/// A count.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// How often the event was counted.
    pub value: u64,
    /// How much of the time the event was on a counter.
    pub share: Share,
    /// Whether the count is the same whenever the same was done before.
    pub repeatable: Repeatable,
}

/// Whether two runs under two drivers must give the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeatable {
    /// They must.
    Yes,
    /// What the kernel did is in it, which differs.
    Roughly,
    /// Only whether it is zero can be told.
    IsZero,
    /// Nothing can be told.
    No,
}

/// How much of the time that an event was enabled it was on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// It was not enabled.
    Never,
    /// It had no counter.
    None,
    /// It shared one.
    Part,
    /// It had one.
    All,
}

impl Share {
    /// From the two times that a read returns.
    pub fn of(enabled: u64, running: u64) -> Self {
        match (enabled, running) {
            (0, _) => Self::Never,
            (_, 0) => Self::None,
            (enabled, running) if running < enabled => Self::Part,
            _ => Self::All,
        }
    }
}

/// Why an operation was not done.
#[derive(Debug)]
pub enum Failure {
    /// The slot is empty.
    Empty,
    /// The kernel did not want to.
    Refused(Errno),
    /// The kernel did what it must not do.
    Wrong(String),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

/// What came of an operation.
pub type Outcome = Result<Value, Failure>;

struct Event {
    // The ring goes first: that is the order in which programs let go.
    ring: Option<Ring>,
    fd: OwnedFd,
    repeatable: Repeatable,
    /// That of the whole group, which its members share.
    group: Rc<Cell<Repeatable>>,
    /// That of its ring.
    records: Repeatable,
    reads_group: bool,
    writes_backward: bool,
}

/// A process.
pub struct Process<'m> {
    machine: &'m Machine,
    patience: Patience,
    events: [Option<Event>; SLOTS],
    children: [Option<Child>; CHILDREN],
}

impl<'m> Process<'m> {
    /// A process that has nothing yet.
    pub fn new(machine: &'m Machine, patience: Patience) -> Self {
        Self {
            machine,
            patience,
            events: [const { None }; SLOTS],
            children: [const { None }; CHILDREN],
        }
    }

    /// Does something.
    pub fn perform(&mut self, operation: &Operation) -> Outcome {
        match *operation {
            Operation::Open {
                slot,
                ref request,
                leader,
            } => self.open(slot, request, leader),
            Operation::Close(slot) => match self.events[slot].take() {
                Some(_) => Ok(Value::Done),
                None => Err(Failure::Empty),
            },
            Operation::Control(slot, control) => self.control(slot, control),
            Operation::Map(slot, pages, mode) => {
                let event = self.event_mut(slot)?;
                // In place of the one that there is, which goes first.
                event.ring = None;
                // There the kernel writes towards lower addresses, and waits for nobody.
                let mode = if event.writes_backward {
                    Mode::ReadOnly
                } else {
                    mode
                };
                event.ring = Some(Ring::map(event.fd.as_fd(), pages, mode)?);
                Ok(Value::Done)
            }
            Operation::Unmap(slot) => match self.event_mut(slot)?.ring.take() {
                Some(_) => Ok(Value::Done),
                None => Err(Failure::Empty),
            },
            Operation::Drain(slot) => {
                let event = self.event_mut(slot)?;
                let ring = event.ring.as_mut().ok_or(Failure::Empty)?;
                let records = ring.drain().map_err(Failure::Wrong)?;
                Ok(Value::Records(records, event.records))
            }
            Operation::Read(slot, numbers) => self.read(slot, numbers),
            Operation::Poll(slot) => {
                let event = self.event(slot)?;
                let mut fds = [PollFd::new(&event.fd, PollFlags::IN)];
                poll(&mut fds, Some(&Timespec::default()))?;
                Ok(Value::Done)
            }
            Operation::Run(iterations) => {
                workloads::run_loop(iterations);
                Ok(Value::Done)
            }
            Operation::Threads(threads, iterations) => {
                let _gate = Gate::to_fork()?;
                workloads::run_threads(threads, iterations);
                Ok(Value::Done)
            }
            Operation::Fork(child, descriptors) => {
                self.children[child] = None;
                let _gate = Gate::to_fork()?;
                self.children[child] = Some(Child::fork(self.machine, descriptors)?);
                Ok(Value::Done)
            }
            Operation::Child(child, command) => {
                let child = self.children[child].as_ref().ok_or(Failure::Empty)?;
                child.command(command, self.patience)?;
                Ok(Value::Done)
            }
            Operation::Kill(child) => match self.children[child].take() {
                Some(_) => Ok(Value::Done),
                None => Err(Failure::Empty),
            },
            Operation::Move(whom, cpus) => {
                let pid = self.pid(whom)?;
                sched_setaffinity(Pid::from_raw(pid), &set_of(cpus))?;
                Ok(Value::Done)
            }
            Operation::Switch(on) => {
                switch_own_events(on)?;
                Ok(Value::Done)
            }
            Operation::Cpu(cpu, online) => {
                self.machine.set_online(cpu, online)?;
                Ok(Value::Done)
            }
            Operation::Rebind(iterations) => {
                let binding = self.machine.binding().ok_or(Failure::Empty)?;
                {
                    let _gate = Gate::to_unbind()?;
                    binding.unbind()?;
                }
                workloads::run_loop(iterations);
                binding.bind()?;
                Ok(Value::Done)
            }
            Operation::Tune(tunable, value) => self.tune(tunable, value),
        }
    }

    fn event(&self, slot: usize) -> Result<&Event, Failure> {
        self.events[slot].as_ref().ok_or(Failure::Empty)
    }

    fn event_mut(&mut self, slot: usize) -> Result<&mut Event, Failure> {
        self.events[slot].as_mut().ok_or(Failure::Empty)
    }

    /// The process id by which the kernel knows it, or -1 for all.
    fn pid(&self, whom: Whom) -> Result<i32, Failure> {
        Ok(match whom {
            Whom::This => 0,
            Whom::Child(slot) => {
                let child = self.children.get(slot).and_then(Option::as_ref);
                child.ok_or(Failure::Empty)?.pid().as_raw_nonzero().get()
            }
            Whom::All => -1,
            Whom::Init => 1,
            // Above the largest that there can be.
            Whom::Nobody => i32::MAX,
        })
    }

    fn open(&mut self, slot: usize, request: &Request, leader: Option<usize>) -> Outcome {
        // It may be the leader of the new one, which then goes with its group.
        let before = self.events[slot].take();
        let pid = self.pid(request.whom)?;
        let group = match leader {
            Some(leader) if leader == slot => before.as_ref(),
            Some(leader) => self.events[leader].as_ref(),
            None => None,
        };
        let mut attr = request.attr(self.machine.pmu);
        // A child that nobody waits for may execute a program just then: Linux 7.3 does not survive
        // an event that goes by that while it is made, see docs/debugging.md.
        if self.patience == Patience::Go && matches!(request.whom, Whom::Child(_)) {
            attr.set_remove_on_exec(0);
        }
        let fd = open(
            &attr,
            pid,
            request.cpu,
            group.map(|group| group.fd.as_fd()),
            request.flags,
        )?;
        let repeatable = self.repeatable(request);
        let group = group.map_or_else(
            || Rc::new(Cell::new(repeatable)),
            |group| Rc::clone(&group.group),
        );
        group.set(group.get().min(repeatable));
        self.events[slot] = Some(Event {
            ring: None,
            fd,
            repeatable,
            group,
            records: match repeatable {
                Repeatable::Yes => Repeatable::Yes,
                _ => Repeatable::No,
            },
            reads_group: request.reads_group(),
            writes_backward: request.writes_backward(),
        });
        Ok(Value::Done)
    }

    /// What can be said of the counts of an event of a process that waits for its children.
    fn repeatable(&self, request: &Request) -> Repeatable {
        match request.whom {
            // What this process does in between depends on the outcomes.
            Whom::Child(_) if self.machine.is_exact && request.is_exact() => Repeatable::Yes,
            Whom::Child(_) | Whom::This => Repeatable::IsZero,
            _ => Repeatable::No,
        }
    }

    fn control(&mut self, slot: usize, what: Control) -> Outcome {
        let reach = |reach| match reach {
            Reach::One => 0,
            Reach::Group => u64::from(sys::PERF_IOC_FLAG_GROUP),
        };
        let event = self.event(slot)?.fd.as_fd();
        match what {
            Control::Enable(whom) => control(event, sys::ENABLE, reach(whom)),
            Control::Disable(whom) => control(event, sys::DISABLE, reach(whom)),
            Control::Reset(whom) => control(event, sys::RESET, reach(whom)),
            Control::Refresh(overflows) => control(event, sys::REFRESH, overflows),
            Control::Period(period) => set_period(event, period),
            Control::Output(other) => {
                let ring = match other {
                    Some(other) => Some(self.event(other)?.fd.as_fd()),
                    None => None,
                };
                set_output(event, ring)?;
                let repeatable = self.event(slot)?.records;
                if let Some(other) = other {
                    let other = self.event_mut(other)?;
                    other.records = other.records.min(repeatable);
                }
                Ok(0)
            }
            Control::Id => id(event),
            Control::Pause(paused) => control(event, sys::PAUSE_OUTPUT, paused.into()),
            Control::Other(number) => {
                // The size of the argument is in the number, too: as if it had none.
                control(event, u32::from(b'$') << 8 | number, 0)
            }
        }?;
        Ok(Value::Done)
    }

    fn read(&self, slot: usize, numbers: usize) -> Outcome {
        let event = self.event(slot)?;
        let mut words = [0u64; 64];
        let room = &mut words[..numbers];
        // SAFETY: any bytes make numbers, and the slice covers `room` and no more.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), size_of_val(room))
        };
        let len = rustix::io::read(&event.fd, bytes)?;
        let got = &words[..len / 8];
        // Of one event, or of a group: the number of its members comes first.
        Ok(Value::Counts(match (event.reads_group, got) {
            (false, &[value, enabled, running, ..]) => vec![Count {
                value,
                share: Share::of(enabled, running),
                repeatable: event.repeatable,
            }],
            (true, &[_, enabled, running, ref values @ ..]) => values
                .iter()
                .map(|&value| Count {
                    value,
                    share: Share::of(enabled, running),
                    repeatable: event.group.get(),
                })
                .collect(),
            _ => Vec::new(),
        }))
    }

    fn tune(&self, tunable: Tunable, value: u64) -> Outcome {
        match tunable {
            Tunable::SampleRate => self.machine.set_sample_rate(value)?,
            Tunable::UserAccess => self.machine.set_user_access(value)?,
            Tunable::Interval => self.machine.set_interval(value)?,
        }
        Ok(Value::Done)
    }
}

fn set_output(event: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>) -> Result<u64, Errno> {
    use std::os::fd::AsRawFd;
    let other = other.map_or(-1, |other| other.as_raw_fd());
    // -1 becomes all ones, whose lower half the kernel takes.
    control(event, sys::SET_OUTPUT, other as u64)
}

/// The CPUs whose bits are set.
fn set_of(cpus: u64) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in (0..64).filter(|cpu| cpus >> cpu & 1 == 1) {
        set.set(cpu);
    }
    set
}

impl Repeatable {
    /// The weaker of two promises.
    fn min(self, other: Self) -> Self {
        let rank = |repeatable| match repeatable {
            Self::Yes => 3,
            Self::Roughly => 2,
            Self::IsZero => 1,
            Self::No => 0,
        };
        match rank(self) < rank(other) {
            true => self,
            false => other,
        }
    }

    /// A number in a form that is equal, or near, in two runs.
    pub fn show(self, number: u64) -> String {
        match self {
            Self::Yes => number.to_string(),
            Self::Roughly => format!("~{number}"),
            Self::IsZero => if number == 0 { "0" } else { "+" }.to_owned(),
            Self::No => "?".to_owned(),
        }
    }
}

/// For comparison: equal where the same was done under another driver.
pub struct Comparable<'a>(pub &'a Outcome);

impl fmt::Display for Comparable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(Value::Done) => write!(f, "ok"),
            Ok(Value::Counts(counts)) => {
                write!(f, "counts")?;
                for count in counts {
                    write!(f, " {count}")?;
                }
                Ok(())
            }
            Ok(Value::Records(records, repeatable)) => write!(
                f,
                "samples={} bytes={}",
                repeatable.show(records.samples),
                repeatable.show(records.bytes)
            ),
            Err(Failure::Empty) => write!(f, "-"),
            Err(Failure::Refused(errno)) => write!(f, "{}", name(*errno)),
            Err(Failure::Wrong(what)) => write!(f, "WRONG: {what}"),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = match (self.repeatable, self.share) {
            (Repeatable::No, _) => "?",
            (_, Share::Never) => "never",
            // It depends on what else ran.
            (Repeatable::IsZero, _) => "some",
            (_, Share::None) => "none",
            (_, Share::Part) => "part",
            (_, Share::All) => "all",
        };
        write!(f, "{}/{share}", self.repeatable.show(self.value))
    }
}
