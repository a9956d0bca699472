// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many events and groups, one after the other: what the kernel says of each, and what it counts.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use fastrand::Rng;
use perfshim::sys;
use rustix::io::Errno;

use crate::choice::{chance, part};
use crate::hardware::Counters;
use crate::machine::Machine;
use crate::operation::Descriptors;
use crate::process::{Count, Patience, Repeatable, Share};
use crate::puppet::{Child, Command};
use crate::request::{Request, Use, Whom};
use crate::ring::{Mode, Records, Ring, State};
use crate::sys::{control, name, open};

/// Samples a second, at most. An event may take more than any exact one here does in a tick, and
/// the overflows of a group must not take all of a tick, or nothing else would ever be done.
const SAMPLE_RATE: u64 = 20_000;

/// One event or group.
pub struct Combination {
    members: Vec<Member>,
}

struct Member {
    request: Request,
    /// Whose descriptor says which group it joins.
    group: Option<usize>,
}

impl Combination {
    /// The combination `index` of `seed`, for a machine of `cpus` CPUs.
    pub fn new(seed: u64, index: u64, cpus: u32) -> Self {
        let mut rng = part(seed, index);
        let rng = &mut rng;
        let mut leader = Request::random(rng, Use::Sweep, cpus);
        let members = match rng.u32(..100) {
            0..60 => Vec::new(),
            60..72 => vec![leader.clone(); rng.usize(1..9)],
            72..90 => {
                let members = rng.usize(1..8);
                (0..members)
                    .map(|_| match chance(rng, 80) {
                        true => Request::counting(rng),
                        false => Request::random(rng, Use::Sweep, cpus),
                    })
                    .collect()
            }
            90..95 => {
                let member = leader.clone();
                leader.soften(rng);
                vec![member; rng.usize(1..9)]
            }
            _ => {
                let mut member = leader.clone();
                member.soften(rng);
                vec![member, leader.clone()]
            }
        };
        let mut all = vec![Member {
            request: leader,
            group: None,
        }];
        for mut request in members {
            request.follow(rng, &all[0].request);
            // A member's descriptor names no group.
            let group = match chance(rng, 2) {
                true => all.len() - 1,
                false => 0,
            };
            all.push(Member {
                request,
                group: Some(group),
            });
        }
        Self { members: all }
    }

    /// What can be said of the count of a member.
    fn repeatable(&self, request: &Request) -> Repeatable {
        if !request.is_hardware() {
            return Repeatable::No;
        }
        // Perf core may throttle these, when depends on how long the kernel takes for each overflow.
        let storm = self.members.iter().any(|Member { request, .. }| {
            let period = request.period().unwrap_or(0);
            let often = match request.is_exact() {
                // A child does more than the loop.
                true => matches!(request.whom, Whom::Child(_)) && period < 10,
                false => period < 10_000,
            };
            request.samples() && often
        });
        // An event that counts from its open on counts what is done in between, too.
        let starts_here = self.members[0].request.is_disabled();
        match (storm, starts_here && request.is_exact()) {
            (true, _) => Repeatable::IsZero,
            (false, true) => Repeatable::Yes,
            (false, false) => Repeatable::Roughly,
        }
    }

    /// Iterations of the counted loop for a few overflows, and not so many that perf core throttles.
    fn iterations(&self) -> u64 {
        let periods = self.members.iter().filter_map(|m| m.request.period());
        match periods.min() {
            Some(0..10) => 2,
            Some(10..1000) => 500,
            Some(period) => (period * 3 / 10).clamp(2000, 20_000),
            None => 2000,
        }
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, member) in self.members.iter().enumerate() {
            match member.group {
                None => {}
                Some(0) => write!(f, " + ")?,
                Some(group) => write!(f, " +{group} ")?,
            }
            // The same again is said in short.
            match index.checked_sub(1).map(|before| &self.members[before]) {
                Some(before) if before.request.to_string() == member.request.to_string() => {
                    write!(f, "same")?
                }
                _ => write!(f, "{}", member.request)?,
            }
        }
        Ok(())
    }
}

/// An open member of a combination.
struct Open {
    ring: Result<Ring, Errno>,
    fd: OwnedFd,
}

/// What came of a member that was opened.
struct Measured {
    count: Option<Count>,
    records: Records,
    samples: Repeatable,
    /// Of its page, or why it could not be mapped.
    state: Result<State, Errno>,
}

/// What it takes to measure combinations.
pub struct Sweep<'m> {
    machine: &'m Machine,
    counters: Counters,
    children: [Child; 2],
    /// Disabled, so that it takes no counter. That it is there lets user space see counters.
    _witness: Option<OwnedFd>,
}

impl<'m> Sweep<'m> {
    /// Makes ready.
    pub fn new(machine: &'m Machine) -> Result<Self> {
        machine.limit_sampling(SAMPLE_RATE, 0)?;
        let witness = match machine.set_user_access(1) {
            Ok(()) => Some(witness(machine).context("an event that user space may read")?),
            Err(_) => None,
        };
        Ok(Self {
            machine,
            counters: Counters::new(event_counters(machine)?),
            children: [
                Child::fork(machine, Descriptors::Close)?,
                Child::fork(machine, Descriptors::Close)?,
            ],
            _witness: witness,
        })
    }

    /// Opens a combination, counts with it, and says what came of it, and where its events were.
    pub fn measure(&self, combination: &Combination) -> Result<Report> {
        let mut opened: Vec<Result<Open, Errno>> = Vec::new();
        for member in &combination.members {
            opened.push(self.open(member, &opened));
        }
        if let Err(errno) = opened[0] {
            return Ok(Report::refusal(errno));
        }
        self.run(combination, &opened)?;
        let mut results = Vec::new();
        let mut before = Vec::new();
        for (member, opened) in combination.members.iter().zip(&opened) {
            let repeatable = combination.repeatable(&member.request);
            let reading = match opened {
                Ok(opened) => opened.read()?,
                Err(_) => None,
            };
            before.push(reading);
            results.push(match opened {
                Ok(_) => Ok(Measured::new(&member.request, reading, repeatable)),
                Err(errno) => Err(*errno),
            });
        }
        for (result, opened) in results.iter_mut().zip(&mut opened) {
            if let (Ok(measured), Ok(opened)) = (result, opened) {
                measured.records = opened.drain()?;
            }
        }
        self.smooth(combination, &opened, &mut results, before)?;
        let in_use = self.look(combination, &opened, &mut results)?;
        Ok(Report::new(&results, in_use))
    }

    /// Runs the group again and keeps the lowest of those counts that the kernel is part of: a tick
    /// may have been in the first.
    fn smooth(
        &self,
        combination: &Combination,
        opened: &[Result<Open, Errno>],
        results: &mut [Result<Measured, Errno>],
        mut before: Vec<Option<Reading>>,
    ) -> Result<()> {
        let rough = |result: &Result<Measured, Errno>| match result {
            Ok(Measured {
                count: Some(count), ..
            }) => count.repeatable == Repeatable::Roughly,
            _ => false,
        };
        if !results.iter().any(rough) {
            return Ok(());
        }
        for _ in 0..2 {
            self.run(combination, opened)?;
            for ((result, opened), before) in results.iter_mut().zip(opened).zip(&mut before) {
                if !rough(result) {
                    continue;
                }
                let (
                    Ok(Measured {
                        count: Some(count), ..
                    }),
                    Ok(opened),
                ) = (result, opened)
                else {
                    continue;
                };
                let now = opened.read()?;
                if let (Some(now), Some(before)) = (now, &before) {
                    count.value = count.value.min(now.value - before.value);
                }
                *before = now;
            }
        }
        Ok(())
    }

    /// A stretch of work that the group counts.
    fn run(&self, combination: &Combination, opened: &[Result<Open, Errno>]) -> Result<()> {
        let child = combination.members.iter().find_map(|member| {
            let Whom::Child(slot) = member.request.whom else {
                return None;
            };
            Some(&self.children[slot])
        });
        let iterations = combination.iterations();
        // From here to the next call, what this process does must not depend on what went before.
        switch(opened, sys::ENABLE)?;
        workloads::run_loop(iterations);
        if let Some(child) = child {
            child.command(Command::Run(iterations), Patience::Wait)?;
        }
        switch(opened, sys::DISABLE)
    }

    /// Runs the group once more, to see where its events are.
    fn look(
        &self,
        combination: &Combination,
        opened: &[Result<Open, Errno>],
        results: &mut [Result<Measured, Errno>],
    ) -> Result<Option<Vec<(u64, u64)>>> {
        switch(opened, sys::ENABLE)?;
        // Only an event that runs now makes the kernel let user space look.
        let here = combination
            .members
            .iter()
            .zip(opened)
            .any(|(member, opened)| {
                let request = &member.request;
                opened.is_ok()
                    && request.is_hardware()
                    && matches!(request.whom, Whom::This | Whom::All)
            });
        let in_use = if here { self.counters.in_use() } else { None };
        for (result, opened) in results.iter_mut().zip(opened) {
            if let (Ok(measured), Ok(opened)) = (result, opened) {
                measured.state = opened
                    .ring
                    .as_ref()
                    .map(Ring::state)
                    .map_err(|errno| *errno);
            }
        }
        switch(opened, sys::DISABLE)?;
        Ok(in_use)
    }

    fn open(&self, member: &Member, before: &[Result<Open, Errno>]) -> Result<Open, Errno> {
        let request = &member.request;
        let group = match member.group {
            None => None,
            Some(group) => match &before[group] {
                Ok(open) => Some(open.fd.as_fd()),
                // Without the group it would join there is nothing to say of it.
                Err(_) => return Err(Errno::BADF),
            },
        };
        let pid = match request.whom {
            Whom::This => 0,
            Whom::Child(slot) => self.children[slot].pid().as_raw_nonzero().get(),
            Whom::All => -1,
            Whom::Init => 1,
            Whom::Nobody => i32::MAX,
        };
        let fd = open(
            &request.attr(self.machine.pmu),
            pid,
            request.cpu,
            group,
            request.flags,
        )?;
        let pages = if request.samples() { 4 } else { 0 };
        let ring = Ring::map(fd.as_fd(), pages, Mode::Writable);
        Ok(Open { ring, fd })
    }
}

/// A disabled event of this process that user space may read.
fn witness(machine: &Machine) -> Result<OwnedFd, Errno> {
    let mut attr = Request::counting(&mut Rng::with_seed(0)).attr(machine.pmu);
    (attr.type_, attr.config) = (machine.pmu, 0x11);
    attr.__bindgen_anon_3.config1 = 1 << 1;
    open(&attr, 0, -1, None, 0)
}

/// How many event counters there are: as many events as fit into one group.
fn event_counters(machine: &Machine) -> Result<u64> {
    let mut attr = Request::counting(&mut Rng::with_seed(0)).attr(machine.pmu);
    // An event that has no counter of its own.
    (attr.type_, attr.config) = (machine.pmu, 0x3c);
    let leader = open(&attr, 0, -1, None, 0)?;
    attr.set_disabled(0);
    let mut members = Vec::new();
    loop {
        match open(&attr, 0, -1, Some(leader.as_fd()), 0) {
            Ok(member) => members.push(member),
            // The leader, being disabled, does not count.
            Err(Errno::INVAL) => return Ok(members.len() as u64),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Enables or disables a group, if its leader was opened.
fn switch(opened: &[Result<Open, Errno>], request: u32) -> Result<()> {
    if let Some(Ok(leader)) = opened.first() {
        let group = u64::from(sys::PERF_IOC_FLAG_GROUP);
        control(leader.fd.as_fd(), request, group).context("switching the group")?;
    }
    Ok(())
}

/// What a read returns.
#[derive(Clone, Copy)]
struct Reading {
    value: u64,
    share: Share,
}

impl Open {
    /// `None` stands for the error state.
    fn read(&self) -> Result<Option<Reading>> {
        let mut bytes = [0u8; 3 * 8];
        let len = rustix::io::read(&self.fd, &mut bytes).context("reading a count")?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..][..8]);
            u64::from_ne_bytes(word)
        };
        Ok((len == bytes.len()).then(|| Reading {
            value: word(0),
            share: Share::of(word(1), word(2)),
        }))
    }

    fn drain(&mut self) -> Result<Records> {
        match &mut self.ring {
            Ok(ring) => ring.drain().map_err(anyhow::Error::msg),
            Err(_) => Ok(Records::default()),
        }
    }
}

impl Measured {
    fn new(request: &Request, reading: Option<Reading>, repeatable: Repeatable) -> Self {
        Self {
            count: reading.map(|Reading { value, share }| Count {
                value,
                share,
                repeatable,
            }),
            records: Records::default(),
            samples: match (repeatable, request.period()) {
                (Repeatable::Yes, _) => Repeatable::Yes,
                // By frequency.
                (_, None) if request.samples() => Repeatable::No,
                // What a tick counts is enough for some.
                (_, Some(1000..)) if !request.counts_user() => Repeatable::No,
                _ => Repeatable::IsZero,
            },
            state: Err(Errno::INVAL),
        }
    }
}

/// What came of a combination.
pub struct Report {
    /// For each member the error, or the count and how much of the time it had a counter, samples
    /// and bytes of records, and what its page says of user space's rights.
    pub results: String,
    /// What the page of each member says of its counter, and the counters in use, each with the
    /// upper bits of its value. `None` if no member was opened.
    pub places: Option<String>,
}

impl Report {
    fn refusal(errno: Errno) -> Self {
        Self {
            results: name(errno),
            places: None,
        }
    }

    fn new(results: &[Result<Measured, Errno>], in_use: Option<Vec<(u64, u64)>>) -> Self {
        let join = |each: &dyn Fn(&Result<Measured, Errno>) -> String| {
            results.iter().map(each).collect::<Vec<_>>().join(" + ")
        };
        let text = join(&|result| match result {
            Ok(measured) => measured.to_string(),
            Err(errno) => name(*errno),
        });
        let mut places = join(&|result| match result {
            Ok(Measured {
                state: Ok(state), ..
            }) => format!("index={}", state.index),
            _ => "-".to_owned(),
        });
        for (index, value) in in_use.into_iter().flatten() {
            places += &format!(" counter{index}={value:x}");
        }
        Self {
            results: text,
            places: Some(places),
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.count {
            Some(count) => write!(f, "count={count}")?,
            None => write!(f, "count=error")?,
        }
        // Whether there are any is a result, unless nothing can be said of it.
        if self.records != Records::default() || self.samples == Repeatable::No {
            let [samples, bytes] =
                [self.records.samples, self.records.bytes].map(|n| self.samples.show(n));
            write!(f, " samples={samples} bytes={bytes}")?;
        }
        match self.state {
            Ok(State {
                capabilities,
                width,
                ..
            }) => write!(f, " caps={capabilities:#x} width={width}"),
            Err(errno) => write!(f, " map={}", name(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_combination_can_be_had_alone() {
        let all: Vec<_> = (0..50).map(|n| Combination::new(3, n, 1)).collect();
        assert_eq!(all[20].to_string(), Combination::new(3, 20, 1).to_string());
    }

    #[test]
    fn a_sweep_has_enough_different_combinations() {
        let texts: HashSet<_> = (0..25_000)
            .map(|n| Combination::new(1, n, 1).to_string())
            .collect();
        assert!(texts.len() >= 20_000, "only {}", texts.len());
    }
}
