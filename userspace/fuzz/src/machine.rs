// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest: its CPUs, its PMU, and the driver.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use perfshim::discovery::Pmus;
use perfshim::{Attr, Event, EventConfig, Hardware, Target};
use rustix::io::Errno;

use crate::sys::errno_of;

/// The machine under test.
pub struct Machine {
    /// The number of the CPU PMU, for `perf_event_attr.type`.
    pub pmu: u32,
    /// How many CPUs there are.
    pub cpus: u32,
    /// Whether counts are exact: instructions are counted, which QEMU does with -icount only.
    pub is_exact: bool,
    folder: PathBuf,
    binding: Option<Binding>,
}

/// The device and the driver that it is bound to.
pub struct Binding {
    device: String,
    driver: PathBuf,
}

const MODULE: &str = "rust_pmuv3";
const FILE: &str = "/lib/modules/rust_pmuv3.ko";
const RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
const PERCENT: &str = "/proc/sys/kernel/perf_cpu_time_max_percent";
const USER_ACCESS: &str = "/proc/sys/kernel/perf_user_access";

impl Machine {
    /// Looks at the machine.
    pub fn find() -> Result<Self> {
        let pmus = Pmus::system()?;
        let mut core = pmus.core();
        let (Some(pmu), None) = (core.next(), core.next()) else {
            bail!("there must be one CPU PMU: this is for a guest, see scripts/guest");
        };
        let present = fs::read_to_string("/sys/devices/system/cpu/present")?;
        let last = present.trim().rsplit(['-', ',']).next();
        let last: u32 = last
            .and_then(|last| last.parse().ok())
            .with_context(|| format!("the list of CPUs is {present:?}"))?;
        Ok(Self {
            pmu: pmu.type_id,
            cpus: last + 1,
            is_exact: pmu.events.contains_key("inst_retired"),
            folder: pmu.path.clone(),
            binding: Binding::find()?,
        })
    }

    /// How the PMU's driver is bound, if it can be unbound.
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    /// Takes a CPU off line or brings it back.
    pub fn set_online(&self, cpu: u32, online: bool) -> Result<(), Errno> {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        write(path, &u8::from(online).to_string())
    }

    /// Brings all CPUs on line.
    pub fn all_online(&self) -> Result<()> {
        for cpu in 1..self.cpus {
            self.set_online(cpu, true)
                .with_context(|| format!("bringing CPU {cpu} on line"))?;
        }
        Ok(())
    }

    /// Limits the samples a second, and has the kernel lower that when they take more than
    /// `percent` of the time; never, if that is 0.
    pub fn limit_sampling(&self, rate: u64, percent: u32) -> Result<(), Errno> {
        // While it is 0 the kernel takes no other rate.
        write(PERCENT, "25")?;
        self.set_sample_rate(rate)?;
        write(PERCENT, &percent.to_string())
    }

    /// Limits the samples a second.
    pub fn set_sample_rate(&self, rate: u64) -> Result<(), Errno> {
        write(RATE, &rate.to_string())
    }

    /// Whether user space may read counters; `ENOENT` without a driver that lets it.
    pub fn set_user_access(&self, allowed: u64) -> Result<(), Errno> {
        write(USER_ACCESS, &allowed.to_string())
    }

    /// Sets the interval at which events that share counters take turns.
    pub fn set_interval(&self, milliseconds: u64) -> Result<(), Errno> {
        let path = self.folder.join("perf_event_mux_interval_ms");
        write(path, &milliseconds.to_string())
    }

    /// Fails unless cycles are counted.
    pub fn check_counts(&self) -> Result<()> {
        for config in [Hardware::CpuCycles.into(), EventConfig::new(self.pmu, 0x11)] {
            let event = Event::open(&Attr::new(config).enabled(), Target::ThisThread)?;
            workloads::run_loop(100_000);
            ensure!(event.read()?.value > 0, "no cycles are counted");
        }
        Ok(())
    }

    /// Unloads the driver and loads it again.
    pub fn reload(&self) -> Result<()> {
        unload()?;
        let file = File::open(FILE).with_context(|| format!("opening {FILE}"))?;
        rustix::system::finit_module(&file, c"", 0).with_context(|| format!("loading {FILE}"))
    }
}

/// Unloads the driver, as soon as the kernel has let go of all events.
fn unload() -> Result<()> {
    // Without O_NONBLOCK the kernel has not waited for users since Linux 3.13, either.
    for _ in 0..60_000 {
        match rustix::system::delete_module(c"rust_pmuv3", libc::O_NONBLOCK) {
            Ok(()) => return Ok(()),
            // Events go after a grace period: nothing tells when the last has.
            Err(Errno::AGAIN) => std::thread::sleep(std::time::Duration::from_millis(1)),
            Err(error) => return Err(error).context("rmmod"),
        }
    }
    bail!("rmmod: the driver is in use 60 seconds after all events were closed")
}

impl Binding {
    /// How the module is bound, if it is loaded.
    fn find() -> Result<Option<Self>> {
        for driver in fs::read_dir("/sys/bus/platform/drivers")? {
            let driver = driver?.path();
            let module = fs::canonicalize(driver.join("module"));
            if !module.is_ok_and(|module| module.ends_with(MODULE)) {
                continue;
            }
            for entry in fs::read_dir(&driver)? {
                let device = entry?.file_name().to_string_lossy().into_owned();
                if Path::new("/sys/bus/platform/devices")
                    .join(&device)
                    .exists()
                {
                    return Ok(Some(Self { device, driver }));
                }
            }
        }
        Ok(None)
    }

    /// Takes the driver off the device.
    pub fn unbind(&self) -> Result<(), Errno> {
        write(self.driver.join("unbind"), &self.device)
    }

    /// Puts the driver back.
    pub fn bind(&self) -> Result<(), Errno> {
        write(self.driver.join("bind"), &self.device)
    }
}

/// Writes to a file of /proc or /sys.
fn write(path: impl AsRef<Path>, text: &str) -> Result<(), Errno> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| errno_of(&error))
}
