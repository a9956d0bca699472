// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process can do, and sequences of it.

use std::fmt;

use fastrand::Rng;

use crate::choice::{chance, one, part};
use crate::puppet::Command;
use crate::request::{Request, Use, Whom};
use crate::ring::Mode;

/// Events that a process has at the same time.
pub const SLOTS: usize = 12;
/// Children that a process has at the same time.
pub const CHILDREN: usize = 3;

/// One thing to do. Numbers stand for slots; what is in an empty one is not there.
#[derive(Clone)]
pub enum Operation {
    /// Opens an event, in place of the one in the slot.
    Open {
        /// Where.
        slot: usize,
        /// What.
        request: Box<Request>,
        /// Into whose group.
        leader: Option<usize>,
    },
    /// Closes an event.
    Close(usize),
    /// An ioctl.
    Control(usize, Control),
    /// Maps so many pages of records, and the page in front of them.
    Map(usize, usize, Mode),
    /// Unmaps.
    Unmap(usize),
    /// Reads all records.
    Drain(usize),
    /// A read(2) with room for so many numbers.
    Read(usize, usize),
    /// A poll(2).
    Poll(usize),
    /// Runs the counted loop.
    Run(u64),
    /// Runs the counted loop in so many threads.
    Threads(usize, u64),
    /// Forks a child, which keeps the descriptors or closes them.
    Fork(usize, Descriptors),
    /// Has a child do something.
    Child(usize, Command),
    /// Kills a child.
    Kill(usize),
    /// Sets the CPUs of a thread, a bit each.
    Move(Whom, u64),
    /// Switches all events that the process has opened.
    Switch(bool),
    /// Brings a CPU on line or takes it off.
    Cpu(u32, bool),
    /// Takes the driver off its device, runs the counted loop, and puts it back.
    Rebind(u64),
    /// Writes a number to a file of the kernel.
    Tune(Tunable, u64),
}

/// An ioctl of an event.
#[derive(Clone, Copy, Debug)]
pub enum Control {
    /// Starts it, or its group.
    Enable(Reach),
    /// Stops it.
    Disable(Reach),
    /// Sets it to 0.
    Reset(Reach),
    /// Lets it overflow so often.
    Refresh(u64),
    /// Changes its period.
    Period(u64),
    /// Has it write to the ring of another event, or of none.
    Output(Option<usize>),
    /// Asks its number.
    Id,
    /// Stops the kernel from writing to the ring.
    Pause(bool),
    /// A request by number, without an argument.
    Other(u32),
}

/// What an ioctl is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The event.
    One,
    /// Its group.
    Group,
}

/// What a child does with its parent's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptors {
    /// Keeps them, so that the events live as long as it does.
    Keep,
    /// Closes them.
    Close,
}

/// A number that the kernel lets one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunable {
    /// `kernel.perf_event_max_sample_rate`.
    SampleRate,
    /// `kernel.perf_user_access`, where there is one.
    UserAccess,
    /// The PMU's `perf_event_mux_interval_ms`.
    Interval,
}

/// How a process is to behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens and uses events, whatever comes of it.
    User,
    /// Takes CPUs off line and brings them back.
    Cpus,
    /// Takes the driver away and puts it back.
    Binding,
    /// Opens and uses events so that each step has one right answer.
    Exact,
}

/// The operations of a process, without end.
pub struct Stream {
    rng: Rng,
    role: Role,
    cpus: u32,
    step: usize,
    /// What was asked for in each slot, whether or not the kernel agreed.
    asked: [Option<Request>; SLOTS],
    /// What to do next, last first.
    planned: Vec<Operation>,
}

impl Stream {
    /// The sequence `index` of `seed`, on a machine of `cpus` CPUs.
    pub fn new(seed: u64, index: u64, role: Role, cpus: u32) -> Self {
        Self {
            rng: part(seed, index),
            role,
            cpus,
            step: 0,
            asked: [const { None }; SLOTS],
            planned: Vec::new(),
        }
    }

    fn user(&mut self) -> Operation {
        let (rng, cpus) = (&mut self.rng, self.cpus);
        let slot = rng.usize(..SLOTS);
        let child = rng.usize(..CHILDREN);
        match rng.u32(..1000) {
            0..260 => {
                let mut request = Request::random(rng, Use::Fuzz, cpus);
                let mut leader = chance(rng, 35).then(|| rng.usize(..SLOTS));
                match leader.and_then(|leader| self.asked[leader].as_ref()) {
                    // Linux 7.3 does not survive that a PMU goes which has a software event in
                    // the group of one of its own: see docs/debugging.md.
                    Some(other) if !(other.is_hardware() && request.is_hardware()) => leader = None,
                    Some(other) => request.follow(rng, other),
                    None => {}
                }
                self.asked[slot] = Some(request.clone());
                if chance(rng, 50) {
                    // Most of what can be done to an event needs one that counts, and has a ring.
                    self.planned = vec![
                        Operation::Drain(slot),
                        Operation::Run(1000),
                        Operation::Control(slot, Control::Enable(Reach::One)),
                        Operation::Map(slot, 8, Mode::Writable),
                    ];
                }
                Operation::Open {
                    slot,
                    request: Box::new(request),
                    leader,
                }
            }
            260..290 => Operation::Close(slot),
            290..480 => Operation::Control(slot, any_control(rng)),
            480..580 => {
                let pages = one(rng, &[0, 1, 1, 2, 4, 8, 16, 3]);
                let mode = one(rng, &[Mode::Writable, Mode::Writable, Mode::ReadOnly]);
                Operation::Map(slot, pages, mode)
            }
            580..590 => Operation::Unmap(slot),
            590..690 => Operation::Drain(slot),
            690..800 => Operation::Read(slot, one(rng, &[0, 1, 3, 16, 64, 64])),
            800..815 => Operation::Poll(slot),
            815..880 => Operation::Run(one(rng, &[10, 1000, 20_000])),
            880..885 => Operation::Threads(rng.usize(1..4), 1000),
            885..910 => {
                let descriptors = one(rng, &[Descriptors::Keep, Descriptors::Close]);
                Operation::Fork(child, descriptors)
            }
            910..950 => {
                let command = match rng.u32(..100) {
                    0..40 => Command::Run(20_000),
                    40..55 => Command::Fork(1000),
                    55..65 => Command::Threads(2, 1000),
                    65..80 => Command::Exec,
                    _ => Command::Random(rng.u64(..), rng.u64(1..20)),
                };
                Operation::Child(child, command)
            }
            950..965 => Operation::Kill(child),
            965..990 => {
                let whom = one(rng, &[Whom::This, Whom::Child(child)]);
                Operation::Move(whom, 1 + rng.u64(..(1 << cpus) - 1))
            }
            _ => Operation::Switch(rng.bool()),
        }
    }

    fn cpus(&mut self) -> Operation {
        let rng = &mut self.rng;
        match chance(rng, 50) && self.cpus > 1 {
            true => Operation::Cpu(rng.u32(1..self.cpus), chance(rng, 60)),
            false => Operation::Run(50_000),
        }
    }

    fn binding(&mut self) -> Operation {
        let rng = &mut self.rng;
        match rng.u32(..1000) {
            // It takes a while, and all others should have a driver most of the time.
            0..3 => Operation::Rebind(rng.u64(..100_000)),
            3..10 => Operation::Tune(Tunable::SampleRate, one(rng, &[100, 1000, 4000])),
            10..20 => Operation::Tune(Tunable::UserAccess, rng.u64(..2)),
            20..30 => Operation::Tune(Tunable::Interval, one(rng, &[1, 4, 50])),
            _ => Operation::Run(100_000),
        }
    }

    /// Few enough events that all are counted all the time: at most two at once take two counters
    /// of 32 bits. The first steps make sure that there is something to use.
    fn exact(&mut self) -> Operation {
        const EVENTS: usize = 4;
        const CHILDREN: usize = 2;
        let (rng, cpus) = (&mut self.rng, self.cpus);
        match self.step {
            step if step < CHILDREN => {
                return Operation::Fork(step, Descriptors::Close);
            }
            step if step < CHILDREN + EVENTS => return open_exact(rng, step - CHILDREN, cpus),
            _ => {}
        }
        let slot = rng.usize(..EVENTS);
        let child = rng.usize(..CHILDREN);
        let reach = one(rng, &[Reach::One, Reach::Group]);
        match rng.u32(..100) {
            0..11 => open_exact(rng, slot, cpus),
            11..13 => Operation::Close(slot),
            13..27 => Operation::Control(slot, Control::Enable(reach)),
            27..31 => Operation::Control(slot, Control::Disable(reach)),
            31..33 => Operation::Control(slot, Control::Reset(reach)),
            33..38 => {
                let control = match rng.u32(..6) {
                    0 => Control::Refresh(rng.u64(..4)),
                    1 => Control::Period(one(rng, &[0, 20_000, 50_000, 1 << 63])),
                    2 => Control::Output(Some(rng.usize(..EVENTS))),
                    3 => Control::Output(None),
                    4 => Control::Pause(rng.bool()),
                    _ => Control::Other(rng.u32(..14)),
                };
                Operation::Control(slot, control)
            }
            38..56 => Operation::Read(slot, 16),
            56..61 => Operation::Map(slot, one(rng, &[0, 1, 4, 3]), Mode::Writable),
            61..62 => Operation::Unmap(slot),
            62..69 => Operation::Drain(slot),
            69..87 => Operation::Child(child, Command::Run(one(rng, &[1000, 10_000]))),
            87..89 => {
                let descriptors = one(rng, &[Descriptors::Keep, Descriptors::Close]);
                Operation::Fork(child, descriptors)
            }
            89..91 => Operation::Child(child, Command::Fork(1000)),
            91..93 => Operation::Child(child, Command::Exec),
            93..94 => Operation::Kill(child),
            94..96 if cpus > 1 => {
                let whom = one(rng, &[Whom::This, Whom::Child(child)]);
                Operation::Move(whom, 1 << rng.u32(..cpus))
            }
            96..98 if cpus > 1 => Operation::Cpu(rng.u32(1..cpus), rng.bool()),
            _ => Operation::Run(1000),
        }
    }
}

/// An event that can be compared.
fn open_exact(rng: &mut Rng, slot: usize, cpus: u32) -> Operation {
    let mut request = Request::random(rng, Use::Together, cpus);
    let leader = chance(rng, 30).then(|| rng.usize(..4));
    if chance(rng, 5) {
        request.soften(rng);
    } else if slot < 2 && chance(rng, 30) {
        request.lengthen();
    }
    Operation::Open {
        slot,
        request: Box::new(request),
        leader,
    }
}

impl Iterator for Stream {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        if let Some(operation) = self.planned.pop() {
            return Some(operation);
        }
        let operation = match self.role {
            Role::User => self.user(),
            Role::Cpus => self.cpus(),
            Role::Binding => self.binding(),
            Role::Exact => self.exact(),
        };
        self.step += 1;
        Some(operation)
    }
}

fn any_control(rng: &mut Rng) -> Control {
    let reach = one(rng, &[Reach::One, Reach::Group]);
    match rng.u32(..100) {
        0..30 => Control::Enable(reach),
        30..50 => Control::Disable(reach),
        50..58 => Control::Reset(reach),
        58..68 => Control::Refresh(one(rng, &[0, 1, 3, 1000])),
        68..80 => Control::Period(one(rng, &[0, 1, 1000, 1 << 20, 1 << 40, 1 << 63])),
        80..88 => Control::Output(chance(rng, 80).then(|| rng.usize(..SLOTS))),
        88..92 => Control::Id,
        92..96 => Control::Pause(rng.bool()),
        _ => Control::Other(rng.u32(..16)),
    }
}

/// Kinds of operation, as [`Operation::kind`] numbers them.
pub const KINDS: [&str; 18] = [
    "open", "close", "ioctl", "map", "unmap", "drain", "read", "poll", "run", "threads", "fork",
    "child", "kill", "move", "switch", "cpu", "rebind", "tune",
];

impl Operation {
    /// The index of the operation's name in [`KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Open { .. } => 0,
            Self::Close(_) => 1,
            Self::Control(..) => 2,
            Self::Map(..) => 3,
            Self::Unmap(_) => 4,
            Self::Drain(_) => 5,
            Self::Read(..) => 6,
            Self::Poll(_) => 7,
            Self::Run(_) => 8,
            Self::Threads(..) => 9,
            Self::Fork(..) => 10,
            Self::Child(..) => 11,
            Self::Kill(_) => 12,
            Self::Move(..) => 13,
            Self::Switch(_) => 14,
            Self::Cpu(..) => 15,
            Self::Rebind(_) => 16,
            Self::Tune(..) => 17,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", KINDS[self.kind()])?;
        match self {
            Self::Open {
                slot,
                request,
                leader,
            } => {
                write!(f, " {slot}: {request}")?;
                leader.map_or(Ok(()), |leader| write!(f, " leader={leader}"))
            }
            Self::Close(slot) | Self::Unmap(slot) | Self::Drain(slot) | Self::Poll(slot) => {
                write!(f, " {slot}")
            }
            Self::Control(slot, control) => write!(f, " {slot}: {control:?}"),
            Self::Map(slot, pages, mode) => write!(f, " {slot}: 1+{pages} pages, {mode:?}"),
            Self::Read(slot, numbers) => write!(f, " {slot}: {numbers} numbers"),
            Self::Run(iterations) | Self::Rebind(iterations) => {
                write!(f, " {iterations} iterations")
            }
            Self::Threads(threads, iterations) => {
                write!(f, " {threads}, {iterations} iterations each")
            }
            Self::Fork(child, descriptors) => write!(f, " child{child}: {descriptors:?}"),
            Self::Child(child, command) => write!(f, " child{child}: {command:?}"),
            Self::Kill(child) => write!(f, " child{child}"),
            Self::Move(whom, cpus) => write!(f, " {whom}: CPUs {cpus:#x}"),
            Self::Switch(on) => write!(f, " all own events {}", if *on { "on" } else { "off" }),
            Self::Cpu(cpu, online) => write!(f, " {cpu} {}", if *online { "on" } else { "off" }),
            Self::Tune(tunable, value) => write!(f, " {tunable:?}={value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(seed: u64, index: u64, role: Role) -> Vec<String> {
        let stream = Stream::new(seed, index, role, 4);
        stream.take(300).map(|op| op.to_string()).collect()
    }

    #[test]
    fn seed_and_index_decide_the_sequence() {
        for role in [Role::User, Role::Cpus, Role::Binding, Role::Exact] {
            assert_eq!(texts(1, 2, role), texts(1, 2, role));
            assert_ne!(texts(1, 2, role), texts(1, 3, role));
            assert_ne!(texts(1, 2, role), texts(2, 2, role));
        }
    }

    #[test]
    fn every_kind_of_operation_comes_up() {
        let mut seen = [false; KINDS.len()];
        for role in [Role::User, Role::Cpus, Role::Binding] {
            for operation in Stream::new(1, 1, role, 4).take(5000) {
                seen[operation.kind()] = true;
            }
        }
        assert_eq!(seen, [true; KINDS.len()]);
    }

    #[test]
    fn cpu_0_stays_on_line() {
        for role in [Role::Cpus, Role::Exact] {
            assert!(
                !Stream::new(1, 1, role, 4)
                    .take(3000)
                    .any(|operation| matches!(operation, Operation::Cpu(0, _)))
            );
        }
        let mut alone = Stream::new(1, 1, Role::Cpus, 1).take(3000);
        assert!(!alone.any(|operation| matches!(operation, Operation::Cpu(..))));
    }
}
