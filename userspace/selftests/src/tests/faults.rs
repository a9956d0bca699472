// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the driver sets up fails half-way, at each place where it can for want of memory.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use perfshim::{Attr, Event, Rate, SampleFields, Target};
use rustix::io::Errno;

use super::module::{self, Binding, check_counts, check_gone};
use crate::counters::CYCLES;
use crate::guest::{self, Pmu};
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "module-fault-probe",
        "each allocation of probe and each registration fails in turn: it fails with ENOMEM, leaves \
         nothing behind, and works the next time, with statistics=1 (C: cannot be bound)",
        || {
            module::unload_soon()?;
            module::load_with(c"statistics=1")?;
            probe("request_percpu_irq_affinity")
        },
    )
    .kernels("debug")
    .drivers("rust")
    .timeout(240),
    Test::new(
        "module-fault-probe-spi",
        "the same with an SPI for each CPU, without statistics (C: cannot be bound)",
        || probe("request_threaded_irq"),
    )
    .dts("spi")
    .smp(2)
    .kernels("debug")
    .drivers("rust")
    .timeout(240),
    Test::new(
        "module-fault-probe-acpi",
        "the same of a PMU that ACPI tables tell of, without statistics (C: cannot be bound)",
        || probe("request_percpu_irq_affinity"),
    )
    .acpi()
    .kernels("debug")
    .drivers("rust")
    .timeout(240),
    Test::new(
        "module-fault-open",
        "each allocation of opening an event fails in turn: it fails with ENOMEM, and leaves \
         nothing behind",
        open,
    )
    .kernels("debug")
    .timeout(240),
];

/// Lets one of this thread's next allocations fail.
struct Fault(File);

impl Fault {
    fn new() -> Result<Self> {
        for (file, value) in [
            // Those that may wait for memory fail, too.
            ("failslab/ignore-gfp-wait", "N"),
            ("fail_page_alloc/ignore-gfp-wait", "N"),
            ("fail_page_alloc/ignore-gfp-highmem", "N"),
            ("fail_page_alloc/min-order", "0"),
            // The kernel's log would be full of stacks.
            ("failslab/verbose", "0"),
            ("fail_page_alloc/verbose", "0"),
        ] {
            guest::write(format!("/sys/kernel/debug/{file}"), value)?;
        }
        const FILE: &str = "/proc/thread-self/fail-nth";
        let file = File::options().read(true).write(true).open(FILE);
        Ok(Self(file.context(FILE)?))
    }

    /// Does something whose `nth` allocation fails. Returns whether there were that many, and what
    /// came of it.
    fn at<T>(&self, nth: u32, body: impl FnOnce() -> T) -> Result<(bool, T)> {
        self.0.write_all_at(nth.to_string().as_bytes(), 0)?;
        let result = body();
        // How many allocations there are to go.
        let mut left = [0; 16];
        let len = self.0.read_at(&mut left, 0)?;
        self.0.write_all_at(b"0", 0)?;
        Ok((left[..len].trim_ascii() == b"0", result))
    }
}

/// Does something again and again, with one allocation later failing each time, until it has no more.
/// `body` returns whether it failed, for want of memory. Fails unless that happened so many times.
fn each_fault(at_least: u32, mut body: impl FnMut(u32) -> Result<Outcome>) -> Result<()> {
    // More than anything here needs.
    const MANY: u32 = 5000;
    let (mut failed, mut done) = (0, 0);
    for nth in 1..MANY {
        match body(nth).with_context(|| format!("allocation {nth} failed"))? {
            Outcome::Failed => failed += 1,
            // Something that can be done without, such as the books of kmemleak itself.
            Outcome::Done => done += 1,
            Outcome::NoFault => {
                println!("# of {} allocations {failed} were needed", failed + done);
                ensure!(failed >= at_least, "no more than {failed} failed");
                return Ok(());
            }
        }
    }
    bail!("it makes more than {MANY} allocations")
}

/// What came of something of which one allocation was to fail.
enum Outcome {
    Failed,
    Done,
    NoFault,
}

impl Outcome {
    fn of<T>(came: bool, result: &std::io::Result<T>) -> Result<Self> {
        let errno = result.as_ref().err().and_then(Errno::from_io_error);
        match (came, errno, result) {
            (true, _, Ok(_)) => Ok(Self::Done),
            (true, Some(Errno::NOMEM), Err(_)) => Ok(Self::Failed),
            (false, _, Ok(_)) => Ok(Self::NoFault),
            (_, _, Err(error)) => bail!("it gave {error}, not ENOMEM"),
        }
    }
}

/// A function of the kernel that fails when this thread calls it: at the next call, or at the
/// [`Fault`], with the allocations.
struct Broken(PathBuf);

enum When {
    NextCall,
    Fault,
}

impl Broken {
    const FOLDER: &str = "/sys/kernel/debug/fail_function";

    fn new(function: &str, returns: &str, when: When) -> Result<Self> {
        let this = Self(PathBuf::from(Self::FOLDER));
        let probability = match when {
            When::NextCall => "100",
            When::Fault => "0",
        };
        guest::write(this.0.join("inject"), function)?;
        guest::write(this.0.join(function).join("retval"), returns)?;
        guest::write("/proc/thread-self/make-it-fail", "1")?;
        for (file, value) in [
            ("task-filter", "Y"),
            ("probability", probability),
            ("times", "1"),
            ("verbose", "0"),
        ] {
            guest::write(this.0.join(file), value)?;
        }
        Ok(this)
    }

    fn was_called(&self) -> Result<bool> {
        Ok(guest::read(self.0.join("times"))? == "0")
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        // Takes all functions out.
        let _ = guest::write(self.0.join("inject"), " ");
    }
}

/// ENOMEM, as the value that a function returns.
const NO_MEMORY: &str = "0xfffffffffffffff4";
/// What allocates per-CPU memory, which is no slab and seldom takes a page.
const PER_CPU: &str = "pcpu_alloc_noprof";

/// `request`: how the interrupt is requested.
fn probe(request: &str) -> Result<()> {
    let type_id = Pmu::find()?.type_id();
    let binding = Binding::find()?;
    let bind = File::options()
        .write(true)
        .open(binding.driver.join("bind"))?;
    binding.unbind()?;
    for (function, returns) in [
        (PER_CPU, "0"),
        (request, NO_MEMORY),
        ("__cpuhp_setup_state", NO_MEMORY),
        ("__cpuhp_state_add_instance", NO_MEMORY),
        ("cpu_pm_register_notifier", NO_MEMORY),
        ("perf_pmu_register", NO_MEMORY),
    ] {
        let broken = Broken::new(function, returns, When::NextCall)?;
        let result = (&bind).write(binding.device.as_bytes());
        ensure!(broken.was_called()?, "probe does not call {function}()");
        match Outcome::of(true, &result).with_context(|| format!("{function}() failed"))? {
            Outcome::Failed => check_gone(type_id)?,
            _ => bail!("{function}() failed, and probe did not"),
        }
    }
    let fault = Fault::new()?;
    let per_cpu = Broken::new(PER_CPU, "0", When::Fault)?;
    each_fault(20, |nth| {
        let (came, result) = fault.at(nth, || (&bind).write(binding.device.as_bytes()))?;
        let outcome = Outcome::of(came, &result)?;
        match outcome {
            Outcome::Failed => check_gone(type_id)?,
            Outcome::Done => {
                check_counts()?;
                binding.unbind()?;
            }
            Outcome::NoFault => check_counts()?,
        }
        Ok(outcome)
    })?;
    drop(per_cpu);
    binding.unbind()?;
    guest::check_leaks()?;
    binding.bind()?;
    check_counts()
}

fn open() -> Result<()> {
    let attr = || Attr::new(CYCLES).sample(Rate::Period(500_000), SampleFields::IP);
    each_fault(3, |nth| {
        // A thread keeps what it needs for events once it has had one: each time a new one.
        let opening = thread::spawn(move || {
            let fault = Fault::new()?;
            let (came, result) = fault.at(nth, || Event::open(&attr(), Target::ThisThread))?;
            let result = result.map_err(|error| match error.errno() {
                Some(errno) => errno.into(),
                None => std::io::Error::other(error),
            });
            Outcome::of(came, &result)
        });
        opening.join().map_err(|_| anyhow!("the thread died"))?
    })?;
    check_counts()?;
    guest::check_leaks()
}
