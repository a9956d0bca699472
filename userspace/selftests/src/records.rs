// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test keeps of the records that an event wrote.

use anyhow::{Context as _, Result, ensure};
use perfshim::record::{Context, CpuMode, Decoder, Record};
use perfshim::symbols::{Frame, Mode, Symbolizer};
use perfshim::{Attr, Ring};

/// A sample, copied out of the ring. A field that was not asked for is `None`, or empty.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    ip: Option<u64>,
    time: Option<u64>,
    /// Process.
    pub pid: Option<u32>,
    /// Thread.
    pub tid: Option<u32>,
    /// CPU.
    pub cpu: Option<u32>,
    /// Events that it stands for.
    pub period: Option<u64>,
    /// Whether the header says that the CPU was in the kernel.
    pub in_kernel: bool,
    /// Call chain in the kernel, innermost first.
    pub kernel_chain: Vec<u64>,
    /// Call chain in user space, innermost first.
    pub user_chain: Vec<u64>,
}

impl Sample {
    /// Instruction pointer.
    pub fn ip(&self) -> Result<u64> {
        self.ip.context("a sample without an IP")
    }

    /// Time in nanoseconds.
    pub fn time(&self) -> Result<u64> {
        self.time.context("a sample without a time")
    }

    fn new(sample: &perfshim::record::Sample<'_>, mode: CpuMode) -> Result<Self> {
        let mut copy = Self {
            ip: sample.ip,
            time: sample.time,
            pid: sample.thread.map(|thread| thread.pid),
            tid: sample.thread.map(|thread| thread.tid),
            cpu: sample.cpu,
            period: sample.period,
            in_kernel: mode == CpuMode::Kernel,
            ..Self::default()
        };
        for frame in sample
            .callchain
            .into_iter()
            .flat_map(|chain| chain.frames())
        {
            match frame.context {
                Context::Kernel => copy.kernel_chain.push(frame.address),
                Context::User => copy.user_chain.push(frame.address),
                other => anyhow::bail!("a frame {:#x} in {other:?}", frame.address),
            }
        }
        Ok(copy)
    }
}

/// The records that tests look at.
#[derive(Debug, Default)]
pub struct Records {
    /// Samples in the order of the ring.
    pub samples: Vec<Sample>,
    /// What records of lost records add up to.
    pub lost: u64,
    /// Records that say that sampling stopped.
    pub throttled: u64,
    /// Records that say that it went on.
    pub unthrottled: u64,
}

impl Records {
    /// Adds what is unread in `ring`, which the events with these attributes write to.
    pub fn drain(&mut self, ring: &mut Ring, attr: &Attr) -> Result<()> {
        let decoder = Decoder::new(attr);
        let mut unread = ring.read()?;
        while let Some(raw) = unread.next_record()? {
            let decoded = decoder.decode(raw)?;
            match decoded.record {
                Record::Sample(sample) => {
                    self.samples
                        .push(Sample::new(&sample, decoded.misc.cpu_mode())?);
                }
                Record::Lost(lost) => self.lost += lost.lost,
                Record::Throttle(_) => self.throttled += 1,
                Record::Unthrottle(_) => self.unthrottled += 1,
                other => anyhow::bail!("a record that nobody asked for: {other:?}"),
            }
        }
        Ok(())
    }

    /// Fails if a record was lost, or sampling stopped for a while.
    pub fn check_nothing_lost(&self) -> Result<()> {
        ensure!(
            self.lost == 0 && self.throttled == 0,
            "{} records were lost, and sampling was throttled {} times",
            self.lost,
            self.throttled
        );
        Ok(())
    }
}

/// The functions of a process's user-space call chain; empty where there is none.
pub fn names(symbolizer: &mut Symbolizer, pid: u32, chain: &[u64]) -> Vec<String> {
    let addresses = chain.iter().map(|&address| (Mode::User, address));
    let frames = symbolizer.stack(pid, u64::MAX, addresses);
    let name = |frame: &Frame| frame.symbol.as_ref().map(|symbol| symbol.name.to_string());
    frames
        .iter()
        .map(|frame| name(frame).unwrap_or_default())
        .collect()
}
