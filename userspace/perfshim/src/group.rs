// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that count together.

use crate::attr::Attr;
use crate::count::Count;
use crate::error::Result;
use crate::event::Event;
use crate::flags::ReadFormat;
use crate::target::Target;

/// Events that are on counters at the same time or not at all, so that their counts can be
/// compared, and that are read at one moment.
#[derive(Debug)]
pub struct Group {
    leader: Event,
    members: Vec<Event>,
}

impl Group {
    /// Opens a group that `attr`'s event leads. Reads return the id and both times too.
    pub fn open(attr: &Attr, target: Target<'_>) -> Result<Self> {
        let format = ReadFormat::GROUP | ReadFormat::ID | ReadFormat::TIMES;
        let leader = Event::open(&attr.clone().read_format(format), target)?;
        Ok(Self {
            leader,
            members: Vec::new(),
        })
    }

    /// Opens another event in the group. `target` must be the leader's. Returns its place in
    /// what [`read`](Self::read) returns; the leader's is 0.
    ///
    /// # Errors
    ///
    /// The kernel refuses a group that cannot fit on the counters, with `EINVAL`.
    pub fn add(&mut self, attr: &Attr, target: Target<'_>) -> Result<usize> {
        let member = Event::open_in_group(&attr.clone().enabled(), target, &self.leader)?;
        self.members.push(member);
        Ok(self.members.len())
    }

    /// The event that leads the group.
    pub fn leader(&self) -> &Event {
        &self.leader
    }

    /// All events: the leader, then the others as they were added.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        std::iter::once(&self.leader).chain(&self.members)
    }

    /// Starts counting.
    pub fn enable(&self) -> Result<()> {
        self.leader.enable_group()
    }

    /// Stops counting.
    pub fn disable(&self) -> Result<()> {
        self.leader.disable_group()
    }

    /// Sets all counts to 0.
    pub fn reset(&self) -> Result<()> {
        self.leader.reset_group()
    }

    /// The counts at one moment, the leader's first, then the others' as they were added.
    pub fn read(&self) -> Result<Vec<Count>> {
        self.leader.read_group()
    }
}
