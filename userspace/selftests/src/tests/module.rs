// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading, unloading, unbinding and rebinding the driver, which the C driver cannot: it is built
//! in and has no way to unbind.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use perfshim::{Attr, Event, Rate, SampleFields, Target};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::sampling::{check_number, sample};
use crate::counters::{self, CYCLES, user};
use crate::guest::{self, Pmu};
use crate::registry::Test;
use crate::tap::Skip;

pub const TESTS: &[Test] = &[
    Test::new(
        "module-unbind-revokes",
        "unbinding revokes open events: counts stand, poll tells, ioctls and opens are refused \
         (C: cannot be unbound)",
        unbind_revokes,
    )
    .core()
    .drivers("rust")
    .smp(2),
    Test::new(
        "module-unbind-multiplexing",
        "unbinding while events take turns leaves no timer behind that would turn them (C: cannot \
         be unbound)",
        unbind_multiplexing,
    )
    .core()
    .drivers("rust")
    .smp(2),
    Test::new(
        "module-rebind",
        "after unbind and bind the PMU is back and counts (C: cannot be unbound)",
        rebind,
    )
    .drivers("rust")
    .smp(2),
    Test::new(
        "module-busy",
        "rmmod is refused while an event is open, and works when it is closed (C: built in)",
        busy,
    )
    .drivers("rust"),
    Test::new(
        "module-statistics",
        "with statistics=1 a folder in debugfs counts what happens, and without it is not there (C: \
         has none)",
        statistics,
    )
    .core()
    .drivers("rust")
    .icount(),
    Test::new(
        "module-unload-after-unbind",
        "after an unbind rmmod works, with revoked events still open (C: built in)",
        unload_after_unbind,
    )
    .core()
    .drivers("rust"),
    Test::new(
        "module-second-node",
        "a second device for the PMU of the same CPUs is refused and leaves the first one alone \
         (C: cannot be bound)",
        second_node,
    )
    .drivers("rust")
    .dts("second-node"),
    Test::new(
        "module-beside-c",
        "loaded while the C driver has the PMU, the module leaves it and everything else alone (Rust: \
         has the PMU)",
        beside_c,
    )
    .core()
    .drivers("c"),
    Test::new(
        "module-bind-storm",
        "unbind and bind go on while threads open, sample, read and close events on all CPUs \
         (C: cannot be unbound)",
        bind_storm,
    )
    .drivers("rust")
    .smp(4)
    .timeout(240),
    Test::new(
        "module-load-storm",
        "the module is loaded and unloaded under load (C: built in)",
        load_storm,
    )
    .drivers("rust")
    .smp(4)
    .timeout(240),
    Test::new(
        "module-hotplug",
        "CPUs that come back after the module was unloaded, or were off line while it was loaded, \
         do no harm (C: built in)",
        hotplug,
    )
    .drivers("rust")
    .smp(2)
    .timeout(120),
];

const FILE: &str = "/lib/modules/rust_pmuv3.ko";
const MODULE: &str = "rust_pmuv3";
const DRIVERS: &str = "/sys/bus/platform/drivers";

/// The device and the folder of the driver that it is bound to.
pub struct Binding {
    pub device: String,
    pub driver: PathBuf,
}

impl Binding {
    /// The PMU's platform device and its driver.
    pub fn find() -> Result<Self> {
        for driver in fs::read_dir(DRIVERS)? {
            let driver = driver?.path();
            let module = fs::canonicalize(driver.join("module"));
            if !module.is_ok_and(|module| module.ends_with(MODULE)) {
                continue;
            }
            for entry in fs::read_dir(&driver)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if Path::new("/sys/bus/platform/devices").join(&name).exists() {
                    return Ok(Self {
                        device: name,
                        driver,
                    });
                }
            }
        }
        bail!("no platform device is bound to a driver of the module {MODULE}")
    }

    pub fn unbind(&self) -> Result<()> {
        guest::write(self.driver.join("unbind"), &self.device)
    }

    pub fn bind(&self) -> Result<()> {
        guest::write(self.driver.join("bind"), &self.device)
    }
}

pub fn load() -> Result<()> {
    load_with(c"")
}

/// Loads the module with these parameters.
pub fn load_with(parameters: &CStr) -> Result<()> {
    let file = File::open(FILE).map_err(|error| Skip(format!("{FILE}: {error}")))?;
    rustix::system::finit_module(&file, parameters, 0).with_context(|| format!("loading {FILE}"))
}

/// Unloads the module, as rmmod does: without waiting for its users to go.
fn unload() -> std::result::Result<(), Errno> {
    rustix::system::delete_module(c"rust_pmuv3", libc::O_NONBLOCK)
}

/// What poll says of an event's descriptor at once.
fn poll_now(event: &Event) -> Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)];
    poll(
        &mut fds,
        Some(&rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )?;
    Ok(fds[0].revents())
}

/// An interrupt takes up to 0.4 ms on the debug kernel, and cycles are the host's time: with a shorter
/// period a slow host would do nothing else.
fn sampling() -> Attr {
    Attr::new(CYCLES)
        .sample(Rate::Period(500_000), SampleFields::IP)
        .enabled()
}

/// An event of each kind: on a thread, on a CPU, sampling.
fn some_events() -> Result<Vec<Event>> {
    Ok(vec![
        counters::open(&Attr::new(CYCLES).enabled(), Target::ThisThread)?,
        counters::open(&Attr::new(CYCLES).enabled(), Target::Cpu(0))?,
        counters::open(&sampling(), Target::ThisThread)?,
    ])
}

/// Fails unless each event reports that its PMU is gone.
fn check_revoked(events: &[Event]) -> Result<()> {
    for event in events {
        let before = counters::read(event)?.value;
        ensure!(before > 0, "a revoked event lost its count");
        workloads::run_loop(100_000);
        let after = counters::read(event)?.value;
        ensure!(
            after == before,
            "a revoked event went from {before} to {after}"
        );
        let flags = poll_now(event)?;
        ensure!(
            flags.contains(PollFlags::ERR),
            "poll of a revoked event says {flags:?}"
        );
        for (what, answer) in [
            ("enable", event.enable()),
            ("disable", event.disable()),
            ("reset", event.reset()),
        ] {
            let errno = answer.as_ref().err().and_then(perfshim::Error::errno);
            ensure!(
                errno == Some(Errno::NODEV),
                "{what} of a revoked event gave {answer:?}, not ENODEV"
            );
        }
    }
    Ok(())
}

/// Fails unless nothing can be opened on the PMU that had this number.
pub fn check_gone(type_id: u32) -> Result<()> {
    let own = perfshim::EventConfig::new(type_id, 0x11);
    for attr in [Attr::new(CYCLES), Attr::new(own)] {
        let answer = counters::refusal(&attr, Target::ThisThread)?;
        ensure!(
            answer == Some(Errno::NOENT),
            "without a PMU an open gave {answer:?}, not ENOENT"
        );
    }
    ensure!(Pmu::find().is_err(), "sysfs still shows the PMU");
    Ok(())
}

/// Fails unless cycles are counted.
pub fn check_counts() -> Result<()> {
    let event = counters::open(&Attr::new(CYCLES), Target::ThisThread)?;
    let count = counters::count(&event, || workloads::run_loop(100_000))?;
    ensure!(count > 0, "no cycles were counted");
    Ok(())
}

/// An event that is enabled has counted and goes on, after what `what` says.
fn check_goes_on(event: &Event, what: &str) -> Result<()> {
    let before = counters::read(event)?.value;
    workloads::run_loop(100_000);
    let after = counters::read(event)?.value;
    ensure!(
        before > 0 && after > before,
        "after {what} the count went from {before} to {after}"
    );
    Ok(())
}

/// Writing the interval starts each CPU's timer anew, so that it is due when the PMU is gone. A
/// kernel that did not stop it writes to freed memory then, which the guest's verdict shows.
fn unbind_multiplexing() -> Result<()> {
    const INTERVAL: Duration = Duration::from_millis(200);

    let pmu = Pmu::find()?;
    let cycles = perfshim::EventConfig::new(pmu.type_id(), 0x11);
    let events = (0..12)
        .map(|_| counters::open(&Attr::new(cycles.clone()).enabled(), Target::ThisThread))
        .collect::<Result<Vec<_>>>()?;
    guest::wait_until("events that take turns", || {
        workloads::run_loop(1_000_000);
        for event in &events {
            let reading = counters::read(event)?;
            if reading.running == 0 || reading.running == reading.enabled {
                return Ok(false);
            }
        }
        Ok(true)
    })?;

    let binding = Binding::find()?;
    let interval = pmu.folder().join("perf_event_mux_interval_ms");
    guest::write(interval, INTERVAL.as_millis())?;
    binding.unbind()?;
    // Nothing tells that a timer did not fire: the time at which it would has to pass.
    thread::sleep(2 * INTERVAL);
    binding.bind()?;
    check_counts()
}

fn unbind_revokes() -> Result<()> {
    let type_id = Pmu::find()?.type_id();
    let binding = Binding::find()?;
    let events = some_events()?;
    workloads::run_loop(1_000_000);
    binding.unbind()?;
    check_revoked(&events)?;
    check_gone(type_id)?;
    binding.bind()?;
    // What was revoked stays so.
    check_revoked(&events)?;
    check_counts()
}

fn rebind() -> Result<()> {
    let binding = Binding::find()?;
    for _ in 0..10 {
        binding.unbind()?;
        binding.bind()?;
        check_counts()?;
    }
    Ok(())
}

fn second_node() -> Result<()> {
    let first = Binding::find()?;
    let second = Binding {
        device: "pmu-again".to_owned(),
        driver: first.driver,
    };
    let event = counters::open(&Attr::new(CYCLES).enabled(), Target::ThisThread)?;
    let answer = second.bind();
    let errno = answer.as_ref().err().and_then(guest::errno);
    ensure!(
        errno == Some(Errno::BUSY),
        "the second device was not refused as busy: {answer:?}"
    );
    check_goes_on(&event, "the second device was refused")
}

/// Fails unless the driver that has the PMU notices nothing of this module.
pub fn beside_c() -> Result<()> {
    let names = || -> Result<usize> { Ok(fs::read_dir("/proc/sys/kernel")?.count()) };
    let event = counters::open(&Attr::new(CYCLES).enabled(), Target::ThisThread)?;
    let before = names()?;
    load()?;
    check_goes_on(&event, "the module was loaded")?;
    let beside = names()?;
    unload()?;
    check_goes_on(&event, "the module was unloaded")?;
    let after = names()?;
    ensure!(
        beside == before && after == before,
        "/proc/sys/kernel has {before} files, then {beside}, and {after} at last"
    );
    check_counts()
}

fn busy() -> Result<()> {
    let event = counters::open(&Attr::new(CYCLES).enabled(), Target::ThisThread)?;
    let answer = unload();
    ensure!(
        answer == Err(Errno::AGAIN),
        "rmmod with an event open gave {answer:?}, not EAGAIN (in use)"
    );
    check_goes_on(&event, "rmmod was refused")?;
    let type_id = Pmu::find()?.type_id();
    drop(event);
    unload_soon()?;
    check_gone(type_id)?;
    load()?;
    check_counts()
}

/// Unloads the module once the kernel has let go of the events that were just closed.
pub fn unload_soon() -> Result<()> {
    guest::wait_until("rmmod with all events closed", || match unload() {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    })
}

fn unload_after_unbind() -> Result<()> {
    let binding = Binding::find()?;
    let type_id = Pmu::find()?.type_id();
    let events = some_events()?;
    workloads::run_loop(1_000_000);
    binding.unbind()?;
    unload_soon()?;
    // Nothing of the module is left, and the descriptors still answer.
    check_revoked(&events)?;
    check_gone(type_id)?;
    load()?;
    check_revoked(&events)?;
    drop(events);
    check_counts()
}

/// The folder in debugfs of the PMU.
const STATISTICS: &str = "/sys/kernel/debug/armv8_pmuv3";

/// What the driver says happened on CPU 0: the value behind `name`, which for an overflow is the index
/// of a counter with a colon.
fn statistic(name: &str) -> Result<u64> {
    let text = guest::read(format!("{STATISTICS}/cpus"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu0 "));
    let words = line.with_context(|| format!("{text:?} has no CPU 0"))?;
    let (_, rest) = words
        .split_once(name)
        .with_context(|| format!("{words:?} has no {name:?}"))?;
    let value = rest.split_whitespace().next();
    Ok(value.context("a name without a value")?.parse()?)
}

fn statistics() -> Result<()> {
    const PERIOD: u64 = 100_003;
    let absent = || {
        let there = Path::new(STATISTICS).exists();
        ensure!(!there, "{STATISTICS} is there");
        Ok(())
    };
    absent()?;
    unload_soon()?;
    load_with(c"statistics=1")?;

    let attr = user(CYCLES).sample(Rate::Period(PERIOD), SampleFields::IP);
    let (count, records) = sample(&attr, Target::ThisThread, || {
        workloads::run_loop(1_000_000);
    })?;
    check_number(&records, count, PERIOD)?;
    let samples = records.samples.len() as u64;
    // The cycle counter's index.
    let (interrupts, overflows) = (statistic("interrupts ")?, statistic(" 31:")?);
    ensure!(
        interrupts == samples && overflows == samples && statistic("spurious ")? == 0,
        "{samples} samples of cycles were {interrupts} interrupts and {overflows} overflows"
    );
    ensure!(
        statistic("longest_ns ")? > 0 && statistic("placed ")? > 0 && statistic("refused ")? == 0,
        "one event has a counter to itself"
    );
    let placed = statistic("placed ")?;
    let events = (0..8)
        .map(|_| counters::open(&Attr::new(CYCLES).enabled(), Target::ThisThread))
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        statistic("placed ")? > placed && statistic("refused ")? > 0,
        "eight events have got seven counters"
    );
    drop(events);

    Binding::find()?.unbind()?;
    absent()?;
    unload_soon()?;
    load()?;
    absent()
}

/// Opens, samples, reads and closes events in each of several threads, whatever the driver does,
/// while `body` runs.
fn under_load(body: impl FnOnce() -> Result<()>) -> Result<()> {
    const THREADS: u32 = 4;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|cpu| {
                let stop = &stop;
                scope.spawn(move || -> Result<u64> {
                    let mut counted = 0;
                    while !stop.load(Ordering::Relaxed) {
                        counted += use_events(cpu)?;
                    }
                    Ok(counted)
                })
            })
            .collect();
        let result = body();
        stop.store(true, Ordering::Relaxed);
        let mut total = 0;
        for worker in workers {
            total += worker.join().ok().context("a worker ended early")??;
        }
        result?;
        ensure!(total > 0, "nothing was counted all the while");
        Ok(())
    })
}

/// Opens events on a thread and a CPU, uses them, and returns what they counted. A PMU that is not
/// there, or goes, is no failure.
fn use_events(cpu: u32) -> Result<u64> {
    let mut counted = 0;
    for (attr, target) in [
        (sampling().inherit(), Target::ThisThread),
        (Attr::new(CYCLES).enabled(), Target::Cpu(cpu)),
    ] {
        let event = match Event::open(&attr, target) {
            Ok(event) => event,
            Err(error) if may_be_gone(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        // Several periods, on a fast host too.
        workloads::run_loop(50_000);
        match event.disable() {
            Ok(()) => {}
            Err(error) if may_be_gone(&error) => {}
            Err(error) => return Err(error.into()),
        }
        counted += event.read()?.value;
    }
    Ok(counted)
}

/// Whether an error says that the PMU is not there.
fn may_be_gone(error: &perfshim::Error) -> bool {
    matches!(error.errno(), Some(Errno::NOENT | Errno::NODEV))
}

/// Does something up to so many times, with pauses for others, but not for much longer than half a
/// minute: a kernel that checks everything takes seconds for each.
fn storm(rounds: u32, mut body: impl FnMut() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    for round in 0..rounds {
        if round >= 5 && start.elapsed() > Duration::from_secs(30) {
            break;
        }
        body()?;
        workloads::run_for(Duration::from_millis(20));
    }
    Ok(())
}

fn bind_storm() -> Result<()> {
    guest::need_cpus(4)?;
    let _rate = guest::SampleRate::unlimited()?;
    let binding = Binding::find()?;
    under_load(|| {
        storm(40, || {
            binding.unbind()?;
            binding.bind()
        })
    })?;
    check_counts()?;
    guest::check_leaks_where_told()
}

fn load_storm() -> Result<()> {
    guest::need_cpus(4)?;
    let _rate = guest::SampleRate::unlimited()?;
    under_load(|| {
        storm(20, || {
            // In use most of the time: unbinding takes the events away first.
            Binding::find()?.unbind()?;
            unload_soon()?;
            load()
        })
    })?;
    check_counts()?;
    guest::check_leaks_where_told()
}

fn hotplug() -> Result<()> {
    use crate::guest::{Online, set_online};
    guest::need_cpus(2)?;
    // Off line while the driver goes: the CPU must come back without it.
    set_online(1, Online::No)?;
    unload_soon()?;
    set_online(1, Online::Yes)?;
    // Off line while the driver comes: it must set the CPU up when it comes back.
    set_online(1, Online::No)?;
    load()?;
    set_online(1, Online::Yes)?;
    let event = counters::open(&Attr::new(CYCLES).enabled(), Target::Cpu(1))?;
    let _stay = guest::Pinned::to(1)?;
    let before = counters::read(&event)?.value;
    workloads::run_for(Duration::from_millis(50));
    let after = counters::read(&event)?.value;
    ensure!(
        after > before,
        "on the CPU that came later the count went from {before} to {after}"
    );
    Ok(())
}
