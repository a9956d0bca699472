// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine around a test: sysctls, CPUs, and the PMU under test. What a test changes here is
//! put back when the guard that it got is dropped.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use perfshim::EventConfig;
use perfshim::discovery::Pmus;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::tap::Skip;

/// Reads a file of /proc or /sys, without the line's end.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.trim_end().to_owned())
}

/// Writes a file of /proc or /sys.
pub fn write(path: impl AsRef<Path>, value: impl ToString) -> Result<()> {
    let (path, value) = (path.as_ref(), value.to_string());
    fs::write(path, &value).with_context(|| format!("writing {value:?} to {}", path.display()))
}

/// The errno in an error of [`read`] or [`write`].
pub fn errno(error: &anyhow::Error) -> Option<Errno> {
    Errno::from_io_error(error.downcast_ref::<std::io::Error>()?)
}

const RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
const PERCENT: &str = "/proc/sys/kernel/perf_cpu_time_max_percent";

/// Another limit on sampling while this lives.
pub struct SampleRate {
    rate: String,
    percent: String,
}

impl SampleRate {
    /// Lets an event take so many samples a second, and keeps the kernel from lowering that: under
    /// emulation an overflow takes long enough for it to do so.
    pub fn limit(samples_per_second: u32) -> Result<Self> {
        let before = Self {
            rate: read(RATE)?,
            percent: read(PERCENT)?,
        };
        Self::set(&samples_per_second.to_string(), "0")?;
        Ok(before)
    }

    /// No limit that a test could reach.
    pub fn unlimited() -> Result<Self> {
        Self::limit(10_000_000)
    }

    fn set(rate: &str, percent: &str) -> Result<()> {
        // The kernel takes no new rate while the percentage is 0 or 100, which stands for no
        // limit.
        write(PERCENT, 25)?;
        write(RATE, rate)?;
        write(PERCENT, percent)
    }
}

impl Drop for SampleRate {
    fn drop(&mut self) {
        if let Err(error) = Self::set(&self.rate, &self.percent) {
            eprintln!("# {error:#}");
        }
    }
}

/// Another value of a file below /proc/sys while this lives.
pub struct Sysctl {
    path: String,
    before: String,
}

impl Sysctl {
    /// Sets `name`, such as `kernel/perf_user_access`.
    pub fn set(name: &str, value: impl ToString) -> Result<Self> {
        let path = format!("/proc/sys/{name}");
        let before = read(&path)?;
        write(&path, value)?;
        Ok(Self { path, before })
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        if let Err(error) = write(&self.path, &self.before) {
            eprintln!("# {error:#}");
        }
    }
}

/// Keeps the calling thread on one CPU while this lives.
pub struct Pinned(CpuSet);

impl Pinned {
    /// Moves the calling thread to `cpu`.
    pub fn to(cpu: u32) -> Result<Self> {
        let before = sched_getaffinity(None).context("reading the CPU affinity")?;
        let mut set = CpuSet::new();
        set.set(cpu as usize);
        sched_setaffinity(None, &set).with_context(|| format!("moving to CPU {cpu}"))?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.0) {
            eprintln!("# restoring the CPU affinity: {error}");
        }
    }
}

/// Skips the test unless there are CPUs 0 to `count` - 1.
pub fn need_cpus(count: u32) -> Result<()> {
    let online = read("/sys/devices/system/cpu/online")?;
    let last = online
        .rsplit(['-', ','])
        .next()
        .and_then(|last| last.parse::<u32>().ok())
        .with_context(|| format!("the list of online CPUs is {online:?}"))?;
    if last + 1 < count {
        return Err(Skip(format!("needs {count} CPUs, there are {online}")).into());
    }
    Ok(())
}

/// What the kernel has said so far.
pub fn log() -> Result<String> {
    let output = Command::new("dmesg").output().context("dmesg")?;
    ensure!(output.status.success(), "dmesg: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Fails unless the driver says that the PMU's interrupt is an NMI.
pub fn need_nmis() -> Result<()> {
    ensure!(
        log()?.contains("counters available, using NMIs"),
        "the driver does not say that it uses NMIs"
    );
    Ok(())
}

/// Takes a CPU off line or brings it back.
pub fn set_online(cpu: u32, online: Online) -> Result<()> {
    let value = match online {
        Online::Yes => 1,
        Online::No => 0,
    };
    write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), value)
}

/// What a CPU is to be.
#[derive(Clone, Copy)]
pub enum Online {
    /// On line.
    Yes,
    /// Off line.
    No,
}

/// The CPU PMU under test.
pub struct Pmu(perfshim::discovery::Pmu);

impl Pmu {
    /// Finds it.
    pub fn find() -> Result<Self> {
        let pmus = Pmus::system()?;
        let mut core: Vec<_> = pmus.core().cloned().collect();
        let names: Vec<_> = core.iter().map(|pmu| pmu.name.clone()).collect();
        ensure!(
            core.len() == 1,
            "there must be one CPU PMU, there are {names:?}: boot with a PMU node and load a driver"
        );
        Ok(Self(core.swap_remove(0)))
    }

    /// Its name, such as `armv8_pmuv3`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number for `perf_event_attr.type`.
    pub fn type_id(&self) -> u32 {
        self.0.type_id
    }

    /// Its folder in sysfs.
    pub fn folder(&self) -> &Path {
        &self.0.path
    }

    /// Whether the CPU says that it counts the event of that name.
    pub fn has_event(&self, name: &str) -> bool {
        self.0.events.contains_key(name)
    }

    /// INST_RETIRED.
    pub fn instructions(&self) -> EventConfig {
        EventConfig::new(self.type_id(), 0x08)
    }

    /// CPU_CYCLES with `config1:long`, which asks for 64 bits.
    pub fn long_cycles(&self) -> EventConfig {
        EventConfig {
            config1: 1,
            ..EventConfig::new(self.type_id(), 0x11)
        }
    }

    /// Skips the test unless the CPU counts instructions, which QEMU does with -icount only.
    pub fn need_instructions(&self) -> Result<()> {
        if self.has_event("inst_retired") {
            return Ok(());
        }
        Err(Skip(format!(
            "{} has no event inst_retired (QEMU: -icount)",
            self.name()
        ))
        .into())
    }
}

/// Where a kernel with kmemleak tells of memory that nothing leads to.
const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// Fails if there is memory that nothing leads to, or the kernel cannot tell.
pub fn check_leaks() -> Result<()> {
    write(KMEMLEAK, "scan")?;
    // Younger memory is not reported, for its address may still be in a register.
    std::thread::sleep(std::time::Duration::from_secs(6));
    write(KMEMLEAK, "scan")?;
    let report = read(KMEMLEAK)?;
    ensure!(report.is_empty(), "memory has leaked:\n{report}");
    Ok(())
}

/// The same for tests that run on kernels without kmemleak, too.
pub fn check_leaks_where_told() -> Result<()> {
    if Path::new(KMEMLEAK).exists() {
        check_leaks()
    } else {
        Ok(())
    }
}

/// Waits until `condition` holds, looking every millisecond.
///
/// For states that nothing announces: files in sysfs and /proc, times on a counter.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    // Longer than any host is busy, and shorter than a guest may take.
    const LIMIT: Duration = Duration::from_secs(60);
    let start = Instant::now();
    while !condition()? {
        ensure!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
