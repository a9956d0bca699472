// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was mapped where, and what tasks were called, at any time of a recording.
//!
//! The records of several rings do not come in the order of time, and a sample may be looked at
//! long after its process has gone. So nothing is ever overwritten: each process has a list of
//! changes by time, and a look-up goes back from the sample's time to the latest change that
//! decides. A fork is a change too, that sends the look-up on to the parent at that time.

use std::collections::HashMap;
use std::sync::Arc;

/// How the file behind a mapping can be told from another one of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum FileId {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The inode's number. Device numbers are left out: on file systems with subvolumes and
    /// overlays mappings and stat(2) give different ones for one file.
    Inode(u64),
    /// The build ID in the file.
    BuildId(Vec<u8>),
}

/// A part of a file mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// The file's offset at the first address, in bytes.
    pub offset: u64,
    /// The file's path as the process saw it, or a name in brackets such as `[vdso]`.
    pub path: Arc<str>,
    /// Which file of that path it was.
    pub file_id: FileId,
}

/// Changes by time, in nanoseconds of the recording's clock.
struct Timeline<T> {
    changes: Vec<(u64, T)>,
}

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
        }
    }
}

impl<T> Timeline<T> {
    fn add(&mut self, time: u64, change: T) {
        let index = self.changes.partition_point(|(known, _)| *known <= time);
        self.changes.insert(index, (time, change));
    }

    /// What changed at or before `time`, the latest first.
    fn before(&self, time: u64) -> impl Iterator<Item = &(u64, T)> {
        let index = self.changes.partition_point(|(known, _)| *known <= time);
        self.changes[..index].iter().rev()
    }
}

enum Space {
    Map(Mapping),
    /// Nothing from before is mapped any more.
    Exec,
    /// Everything is as in that process at that time.
    Fork {
        parent: u32,
    },
}

enum Name {
    Is(Arc<str>),
    /// The same as that of the task at that time.
    As {
        parent: u32,
    },
}

/// The address spaces of processes and the names of tasks.
#[derive(Default)]
pub struct Processes {
    spaces: HashMap<u32, Timeline<Space>>,
    names: HashMap<u32, Timeline<Name>>,
    /// No look-up follows more forks than there were, unless it goes in circles.
    forks: usize,
}

impl Processes {
    /// A file was mapped.
    pub fn map(&mut self, pid: u32, time: u64, mapping: Mapping) {
        self.spaces
            .entry(pid)
            .or_default()
            .add(time, Space::Map(mapping));
    }

    /// The process runs a new program.
    pub fn exec(&mut self, pid: u32, time: u64) {
        self.spaces.entry(pid).or_default().add(time, Space::Exec);
    }

    /// A task was given a name.
    pub fn name(&mut self, tid: u32, time: u64, name: &str) {
        let name = Name::Is(name.into());
        self.names.entry(tid).or_default().add(time, name);
    }

    /// The task `parent_tid` of the process `parent` started the task `tid` of the process `pid`,
    /// which is another process unless it is a thread.
    pub fn fork(&mut self, (pid, tid): (u32, u32), (parent, parent_tid): (u32, u32), time: u64) {
        self.forks += 1;
        if pid != parent {
            let change = Space::Fork { parent };
            self.spaces.entry(pid).or_default().add(time, change);
        }
        if tid != parent_tid {
            let change = Name::As { parent: parent_tid };
            self.names.entry(tid).or_default().add(time, change);
        }
    }

    /// Whether anything is known about the process.
    pub fn knows(&self, pid: u32) -> bool {
        self.spaces.contains_key(&pid)
    }

    /// What was mapped at an address of the process at that time.
    pub fn mapping_at(&self, mut pid: u32, mut time: u64, address: u64) -> Option<&Mapping> {
        // Records that contradict each other could make two processes each other's parent.
        for _ in 0..=self.forks {
            let space = self.spaces.get(&pid)?;
            let decides = |(_, change): &&(u64, Space)| match change {
                Space::Map(mapping) => (mapping.start..mapping.end).contains(&address),
                Space::Exec | Space::Fork { .. } => true,
            };
            match space.before(time).find(decides)? {
                (_, Space::Map(mapping)) => return Some(mapping),
                (_, Space::Exec) => return None,
                (at, Space::Fork { parent }) => (pid, time) = (*parent, *at),
            }
        }
        None
    }

    /// The name of the task at that time.
    pub fn name_at(&self, mut tid: u32, mut time: u64) -> Option<Arc<str>> {
        for _ in 0..=self.forks {
            match self.names.get(&tid)?.before(time).next()? {
                (_, Name::Is(name)) => return Some(name.clone()),
                (at, Name::As { parent }) => (tid, time) = (*parent, *at),
            }
        }
        None
    }
}
