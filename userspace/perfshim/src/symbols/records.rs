// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the records of a ring tell a [`Symbolizer`], and what it tells about their samples.

use super::FileId;
use super::Frame;
use super::Mapping;
use super::Mode;
use super::Symbolizer;
use crate::record::Context;
use crate::record::CpuMode;
use crate::record::Decoded;
use crate::record::MapIdentity;
use crate::record::Misc;
use crate::record::Mmap;
use crate::record::Record;
use crate::record::Sample;

impl Symbolizer {
    /// Learns from a record what was mapped, run, named or forked; other records say nothing here.
    ///
    /// Feed it everything that the rings hold, in any order if the records have times, and ask
    /// for samples after that. Records without a time count as just after the latest time seen.
    /// That a process ended changes nothing: its samples may still be to come.
    pub fn learn(&mut self, decoded: &Decoded<'_>) {
        let time = self.time_of(decoded.id.time);
        match &decoded.record {
            Record::Mmap(mmap) => self.learn_mapping(decoded.misc, time, mmap, FileId::Unknown),
            Record::Mmap2(mmap2) => {
                let file_id = match &mmap2.identity {
                    MapIdentity::Inode { inode: 0, .. } => FileId::Unknown,
                    MapIdentity::Inode { inode, .. } => FileId::Inode(*inode),
                    MapIdentity::BuildId(id) => FileId::BuildId(id.as_bytes().to_vec()),
                };
                self.learn_mapping(decoded.misc, time, &mmap2.mmap, file_id);
            }
            Record::Comm(comm) => {
                if decoded.misc.is_comm_exec() {
                    self.processes.exec(comm.thread.pid, time);
                }
                let name = comm.comm.to_string_lossy();
                self.processes.name(comm.thread.tid, time, &name);
            }
            Record::Fork(task) => {
                let time = self.time_of(Some(task.time));
                let ids = |thread: crate::record::ThreadId| (thread.pid, thread.tid);
                self.processes
                    .fork(ids(task.thread), ids(task.parent), time);
            }
            _ => {}
        }
    }

    /// The frames of a sample, the innermost first: its call chain, or where it has none just its
    /// instruction pointer. Empty when it has neither, or no process.
    pub fn sample(&mut self, misc: Misc, sample: &Sample<'_>) -> Vec<Frame> {
        let Some(thread) = sample.thread else {
            return Vec::new();
        };
        let time = self.time_of(sample.time);
        let here = match misc.cpu_mode() {
            CpuMode::User => Mode::User,
            CpuMode::Kernel => Mode::Kernel,
            _ => Mode::Other,
        };
        let Some(chain) = sample.callchain else {
            let address = sample.ip.map(|ip| (here, ip));
            return self.stack(thread.pid, time, address);
        };
        let addresses = chain.frames().map(|frame| {
            let mode = match frame.context {
                Context::Unmarked => here,
                Context::User => Mode::User,
                Context::Kernel => Mode::Kernel,
                _ => Mode::Other,
            };
            (mode, frame.address)
        });
        self.stack(thread.pid, time, addresses)
    }

    /// The time of a record, or the latest one known for a record that has none.
    fn time_of(&mut self, time: Option<u64>) -> u64 {
        let time = time.unwrap_or(self.latest);
        self.latest = self.latest.max(time);
        time
    }

    fn learn_mapping(&mut self, misc: Misc, time: u64, mmap: &Mmap<'_>, file_id: FileId) {
        // Kernel mappings are in kallsyms, and data is not executed.
        if misc.cpu_mode() != CpuMode::User || misc.is_mmap_data() {
            return;
        }
        let mapping = Mapping {
            start: mmap.addr,
            end: mmap.addr.saturating_add(mmap.len),
            offset: mmap.page_offset,
            path: mmap.filename.to_string_lossy().into(),
            file_id,
        };
        self.processes.map(mmap.thread.pid, time, mapping);
    }
}
