// SPDX-License-Identifier: MIT OR Apache-2.0
//! From an error number to its likely cause and what to do.
//!
//! perf_event_open(2) has few error numbers and many reasons, so the attributes, the target and
//! the limits in /proc decide what is likely. Nothing here asks the kernel to do anything: it
//! reads a few files, and only after a failure.

use std::fs;

use rustix::io::Errno;

use crate::attr::Attr;
use crate::error::Operation;
use crate::flags::{Exclude, ReadFormat, SampleFields, SideBand};
use crate::sys;
use crate::target::Target;

/// Why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    pub(crate) cause: String,
    pub(crate) remedy: String,
}

fn say(cause: impl Into<String>, remedy: impl Into<String>) -> Diagnosis {
    Diagnosis {
        cause: cause.into(),
        remedy: remedy.into(),
    }
}

/// Limits of this system. A limit that cannot be read is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// `kernel.perf_event_paranoid`.
    pub(crate) paranoid: Option<i64>,
    /// `kernel.perf_event_max_sample_rate`, samples a second.
    pub(crate) max_sample_rate: Option<i64>,
    /// `kernel.perf_event_mlock_kb`.
    pub(crate) mlock_kb: Option<i64>,
    /// `kernel.perf_event_max_stack`.
    pub(crate) max_stack: Option<i64>,
    /// Names and numbers of the PMUs in sysfs.
    pub(crate) pmus: Vec<(String, u32)>,
}

impl Limits {
    /// Reads them.
    pub(crate) fn read() -> Self {
        let sysctl = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
            text.trim().parse().ok()
        };
        Self {
            paranoid: sysctl("perf_event_paranoid"),
            max_sample_rate: sysctl("perf_event_max_sample_rate"),
            mlock_kb: sysctl("perf_event_mlock_kb"),
            max_stack: sysctl("perf_event_max_stack"),
            pmus: pmus(),
        }
    }
}

/// Names and numbers of the PMUs in sysfs, by name.
fn pmus() -> Vec<(String, u32)> {
    let Ok(folder) = fs::read_dir("/sys/bus/event_source/devices") else {
        return Vec::new();
    };
    let mut pmus: Vec<_> = folder
        .flatten()
        .filter_map(|entry| {
            let number = fs::read_to_string(entry.path().join("type")).ok()?;
            let name = entry.file_name().into_string().ok()?;
            Some((name, number.trim().parse().ok()?))
        })
        .collect();
    pmus.sort();
    pmus
}

/// What was asked of the kernel when it refused an open.
pub(crate) struct OpenRequest<'a> {
    pub(crate) attr: &'a Attr,
    pub(crate) target: Target<'a>,
    pub(crate) in_group: bool,
}

/// Explains why perf_event_open(2) answered `errno`.
pub(crate) fn open(errno: Errno, request: &OpenRequest<'_>, limits: &Limits) -> Diagnosis {
    match errno {
        Errno::ACCESS | Errno::PERM => permission(errno, request, limits),
        Errno::NOENT => no_pmu(request, limits),
        Errno::OPNOTSUPP => unsupported(request),
        Errno::INVAL => invalid(request, limits),
        Errno::TOOBIG => too_big(request),
        Errno::SRCH => say(
            format!("{} does not exist, or has ended", request.target),
            "give the id of a live thread",
        ),
        Errno::NODEV => match request.target.cpu() {
            Some(cpu) => say(
                format!("CPU {cpu} is off line or not one of the PMU's, or the PMU is going away"),
                "take a CPU from the PMU's `cpus` or `cpumask` file and from \
                 /sys/devices/system/cpu/online",
            ),
            None => say(
                "the PMU is going away, or the group's leader has ended",
                "load the PMU's driver again, then open the events anew",
            ),
        },
        Errno::MFILE => say(
            "this process has as many files open as it may, and each event is one",
            "close some, or raise the limit with `ulimit -n`",
        ),
        Errno::NFILE => say(
            "the system has as many files open as it may",
            "raise it with `sysctl fs.file-max=...`",
        ),
        Errno::BUSY => say(
            "somebody else holds the PMU: an exclusive event, or all its breakpoints are taken",
            "stop the other user, or count fewer such events",
        ),
        Errno::NOSPC => say(
            "the hardware has no breakpoint left",
            "use fewer breakpoints at a time",
        ),
        Errno::BADF => say(
            "the group's or cgroup's descriptor is not what it should be",
            "give an open event as group and an open folder of the cgroup file system as cgroup",
        ),
        Errno::NOSYS => say(
            "the kernel lacks what was asked: perf events (CONFIG_PERF_EVENTS) or user stack copies",
            "use a kernel that has it",
        ),
        Errno::OVERFLOW => say(
            format!(
                "the call-chain depth exceeds kernel.perf_event_max_stack{}",
                value(limits.max_stack)
            ),
            "ask for less with Attr::max_stack, or raise the sysctl",
        ),
        Errno::NOMEM => say("the kernel is out of memory", "use fewer events"),
        Errno::INTR => say("a signal came first", "try again"),
        Errno::FAULT => say(
            "the attributes point to memory that is not there",
            "let a probe's name live until the open returns, as Probe does",
        ),
        _ => unknown(),
    }
}

fn unknown() -> Diagnosis {
    say(
        "the kernel gave no reason that is known here",
        "see perf_event_open(2) and the kernel log",
    )
}

/// " (VALUE)" if it is known.
fn value(limit: Option<i64>) -> String {
    limit.map_or(String::new(), |limit| format!(" ({limit})"))
}

/// The kernel's own rule: what the paranoid level must not exceed for what was asked, and why.
fn allowed_level(request: &OpenRequest<'_>) -> (i64, &'static str, &'static str) {
    let exclude = Exclude::load(request.attr.raw());
    if matches!(request.target, Target::Cpu(_) | Target::Cgroup(..)) {
        return (
            0,
            "watching a whole CPU or a cgroup",
            "watch one's own threads instead",
        );
    }
    let kernel_chain = request
        .attr
        .sample_fields()
        .contains(SampleFields::CALLCHAIN)
        && !exclude.contains(Exclude::CALLCHAIN_KERNEL);
    if !exclude.contains(Exclude::KERNEL) {
        return (
            1,
            "counting in the kernel",
            "leave it out with Attr::exclude(Exclude::KERNEL | Exclude::HV) or the modifier `:u`",
        );
    }
    if kernel_chain {
        return (
            1,
            "kernel call chains",
            "leave them out with Attr::exclude(Exclude::CALLCHAIN_KERNEL)",
        );
    }
    if request
        .attr
        .sample_fields()
        .contains(SampleFields::PHYS_ADDR)
    {
        return (1, "physical addresses", "leave out PHYS_ADDR");
    }
    (2, "any event", "no lesser event is allowed")
}

fn permission(errno: Errno, request: &OpenRequest<'_>, limits: &Limits) -> Diagnosis {
    let (allowed, what, instead) = allowed_level(request);
    match limits.paranoid {
        Some(level) if level > allowed => say(
            format!(
                "kernel.perf_event_paranoid is {level}, which forbids {what} to all without \
                 CAP_PERFMON (it would have to be {allowed} or less)"
            ),
            format!("{instead}, or run as root, or `sysctl kernel.perf_event_paranoid={allowed}`"),
        ),
        None => say(
            "/proc/sys/kernel/perf_event_paranoid cannot be read, so either the kernel has no \
             perf events or a sandbox hides it",
            "run outside the sandbox, as root",
        ),
        Some(_) if SideBand::load(request.attr.raw()).contains(SideBand::NAMESPACES) => say(
            "records of namespaces need CAP_PERFMON",
            "leave out SideBand::NAMESPACES, or run as root",
        ),
        Some(_) if errno == Errno::PERM => say(
            "a security policy forbids it: a container's seccomp filter, lockdown, or an LSM",
            "run outside the container, or allow perf_event_open in its policy \
             (with docker: --cap-add PERFMON --security-opt seccomp=...)",
        ),
        Some(_) => say(
            format!(
                "the paranoid level allows it, so {} most likely belongs to another user",
                request.target
            ),
            "run as that user or as root",
        ),
    }
}

/// Whether an event of this type is counted by the CPU's own PMU.
fn is_cpu_event(attr: &Attr) -> bool {
    matches!(
        attr.raw().type_,
        sys::PERF_TYPE_HARDWARE | sys::PERF_TYPE_HW_CACHE | sys::PERF_TYPE_RAW
    )
}

fn names(limits: &Limits) -> String {
    if limits.pmus.is_empty() {
        return "sysfs names none".to_owned();
    }
    let names: Vec<_> = limits.pmus.iter().map(|(name, _)| name.as_str()).collect();
    format!("there are: {}", names.join(", "))
}

fn no_pmu(request: &OpenRequest<'_>, limits: &Limits) -> Diagnosis {
    let pmu = request.attr.raw().type_;
    let has_number = limits.pmus.iter().any(|&(_, number)| number == pmu);
    if is_cpu_event(request.attr) {
        say(
            "no PMU counts this event: the CPU's PMU has no driver here (virtual machines often \
             have none), or does not know the event",
            format!(
                "load its driver, pick an event that it lists in sysfs, or count in software with \
                 the event cpu-clock or task-clock ({})",
                names(limits)
            ),
        )
    } else if has_number {
        say(
            "the PMU does not know this event",
            "pick one from the `events` folder of the PMU in /sys/bus/event_source/devices",
        )
    } else {
        say(
            format!("no PMU has the number {pmu}: its driver is not loaded, or was loaded again"),
            format!(
                "load it and read the number from its `type` file anew ({})",
                names(limits)
            ),
        )
    }
}

fn unsupported(request: &OpenRequest<'_>) -> Diagnosis {
    if request.attr.raw().precise_ip() != 0 {
        return say(
            "the PMU cannot sample with that precision",
            "ask for less with Attr::precision",
        );
    }
    if request
        .attr
        .sample_fields()
        .contains(SampleFields::BRANCH_STACK)
    {
        return say(
            "the PMU cannot record branches, or not these",
            "leave out the branch stack, or ask for fewer kinds",
        );
    }
    if request.attr.is_sampling() {
        return say(
            "the PMU cannot sample this event: it has no overflow interrupt, or lacks a field \
             that was asked for",
            "count without sampling, or sample cpu-clock instead",
        );
    }
    say(
        "the PMU cannot count this event as asked",
        "leave out exclusions and extension words that the PMU's `format` folder does not list",
    )
}

fn invalid(request: &OpenRequest<'_>, limits: &Limits) -> Diagnosis {
    let raw = request.attr.raw();
    if raw.freq() != 0 {
        if let Some(most) = limits.max_sample_rate {
            if i64::try_from(raw.sample_freq).map_or(true, |asked| asked > most) {
                return say(
                    format!(
                        "{} samples a second exceed kernel.perf_event_max_sample_rate ({most})",
                        raw.sample_freq
                    ),
                    "sample more seldom, or raise the sysctl",
                );
            }
        }
    }
    if request.in_group {
        return say(
            "the event cannot join this group: the group would not fit on the PMU's counters, or \
             its leader has another target, PMU, clock or inheritance, or is itself a member, or \
             the event is pinned or exclusive, which only a leader may be",
            "open it with the leader's target, use fewer events to a group, or no group",
        );
    }
    let watches_task = matches!(
        request.target,
        Target::ThisThread
            | Target::Thread(_)
            | Target::ThisThreadOnCpu(_)
            | Target::ThreadOnCpu(..)
    );
    let is_software = raw.type_ == sys::PERF_TYPE_SOFTWARE;
    if !is_cpu_event(request.attr) && !is_software && watches_task {
        return say(
            "the PMU may count for whole CPUs only, or the event or one of its extension words is \
             invalid, or it cannot exclude privilege levels",
            "watch a CPU from the PMU's `cpumask` file, and compare with its `format` folder",
        );
    }
    if request.attr.read_fields().contains(ReadFormat::GROUP) && raw.inherit() != 0 {
        return say(
            "kernels before 6.12 cannot read inherited groups in samples, nor can older ones read \
             inherited groups at all",
            "leave out ReadFormat::GROUP or Attr::inherit",
        );
    }
    say(
        "the attributes or the target are not valid for this PMU: an event number, an exclusion, a \
         period, a register mask or a CPU number that it does not have",
        "compare with the PMU's `format` folder and with /sys/devices/system/cpu/possible",
    )
}

fn too_big(request: &OpenRequest<'_>) -> Diagnosis {
    if request.in_group {
        say(
            "the group's counts would exceed what one read returns (16 KiB), or the attributes \
             use a field that this kernel does not have",
            "make the group smaller, or leave the newest attributes out",
        )
    } else {
        say(
            "the attributes use a field that this kernel does not have",
            "leave out what is newer than the kernel: config3, config4, sigtrap, AUX actions, ...",
        )
    }
}

/// Explains why a mapping of `bytes` failed.
pub(crate) fn map(errno: Errno, attr: &Attr, bytes: usize, limits: &Limits) -> Diagnosis {
    match errno {
        Errno::PERM => say(
            format!(
                "{} KiB exceed what a user may lock: kernel.perf_event_mlock_kb{} for each CPU, \
                 and then RLIMIT_MEMLOCK",
                bytes / 1024,
                value(limits.mlock_kb)
            ),
            "use a smaller ring, raise either limit (`ulimit -l`), or run as root",
        ),
        Errno::INVAL if attr.raw().inherit() != 0 => say(
            "an inherited event of a thread on any CPU cannot have a ring, since all its children \
             would write to it",
            "open one event for each CPU (Target::ThreadOnCpu) and map each, or do not inherit",
        ),
        Errno::INVAL => say(
            "the ring's size is not a power of two of pages, or the event has a ring of another size",
            "map each event once",
        ),
        Errno::BUSY => say(
            "the event writes to another event's ring",
            "map that one, or undo it with Event::set_output(None)",
        ),
        Errno::NOMEM => say(
            "the kernel has no memory for a ring of this size",
            "use a smaller ring",
        ),
        Errno::NODEV => revoked(),
        _ => unknown(),
    }
}

fn revoked() -> Diagnosis {
    say(
        "the PMU is gone (its driver was unbound or unloaded), and took its events with it",
        "load the driver again, then open the events anew",
    )
}

/// Explains why an operation on an open event failed.
pub(crate) fn control(operation: Operation, errno: Errno, attr: &Attr) -> Diagnosis {
    match (operation, errno) {
        (_, Errno::NODEV) => revoked(),
        (_, Errno::NOTTY) => say(
            "this kernel does not have the operation",
            "use a newer kernel",
        ),
        (Operation::Period, Errno::INVAL) if !attr.is_sampling() => say(
            "the event takes no samples, so it has no period",
            "open it with Attr::sample",
        ),
        (Operation::Period, Errno::INVAL) => say(
            "the PMU cannot do that period, or the frequency exceeds \
             kernel.perf_event_max_sample_rate",
            "ask for a period from the PMU's least to 2^63 - 1, or for a lower frequency",
        ),
        (Operation::Refresh, Errno::INVAL) => say(
            "only a sampling event without inheritance can be refreshed",
            "open it with Attr::sample and without Attr::inherit",
        ),
        (Operation::SetOutput, Errno::INVAL) => say(
            "the two events cannot share a ring: they watch different CPUs, or different threads \
             on any CPU, or use different clocks or directions, or the first has its own ring, \
             or the second has none",
            "map the second, do not map the first, and open both with one target",
        ),
        (Operation::PauseOutput, Errno::INVAL) => {
            say("the event has no ring", "map its ring first")
        }
        (Operation::SetFilter, Errno::INVAL) => say(
            "the filter does not parse, or the event takes none",
            "tracepoints take expressions on their fields, tracing PMUs address ranges",
        ),
        (Operation::SetBpf, _) => say(
            "the program cannot be attached to this event",
            "give a loaded program of a kind that fits: kprobe, tracepoint or perf_event",
        ),
        (Operation::QueryBpf, Errno::INVAL) => say(
            "only tracepoints and probes have a list of programs",
            "ask one of those",
        ),
        (Operation::QueryBpf, Errno::PERM) => {
            say("listing programs needs CAP_PERFMON", "run as root")
        }
        (Operation::ModifyAttributes, Errno::OPNOTSUPP) => say(
            "only breakpoints can be modified while open",
            "close the event and open another",
        ),
        (Operation::ModifyAttributes, Errno::INVAL) => say(
            "a breakpoint can change its address, length, access and whether it is disabled",
            "leave the other attributes as they were",
        ),
        (Operation::Read, Errno::CHILD) => say(
            "the group changed while a child inherited it, so the counts cannot be added up",
            "open the whole group before the target creates children",
        ),
        (Operation::Read, Errno::NOSPC) => {
            say("the counts do not fit in the buffer", "use a smaller group")
        }
        (_, Errno::ACCESS | Errno::PERM) => say(
            "a security policy forbids it",
            "run as root, outside the container",
        ),
        (_, Errno::INTR) => say("a signal came first", "try again"),
        _ => unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EventConfig, Hardware, Software};
    use crate::{BranchFilter, Precision, Rate};

    fn limits() -> Limits {
        Limits {
            paranoid: Some(2),
            max_sample_rate: Some(100_000),
            mlock_kb: Some(516),
            max_stack: Some(127),
            pmus: vec![("software".to_owned(), 1), ("uncore".to_owned(), 20)],
        }
    }

    fn explain(errno: Errno, attr: &Attr, target: Target<'_>) -> String {
        let request = OpenRequest {
            attr,
            target,
            in_group: false,
        };
        let found = open(errno, &request, &limits());
        format!("{}; {}", found.cause, found.remedy)
    }

    #[test]
    fn the_paranoid_level_is_named_with_what_it_forbids() {
        let cycles = Attr::new(Hardware::CpuCycles);
        let user = cycles.clone().exclude(Exclude::KERNEL | Exclude::HV);
        let chain = SampleFields::CALLCHAIN;
        for (attr, target, expected) in [
            (
                &cycles,
                Target::Cpu(0),
                "is 2, which forbids watching a whole CPU",
            ),
            (
                &cycles,
                Target::ThisThread,
                "is 2, which forbids counting in the kernel",
            ),
            (
                &user.clone().sample(Rate::Period(1), chain),
                Target::ThisThread,
                "is 2, which forbids kernel call chains",
            ),
            (
                &user,
                Target::Thread(1),
                "thread 1 most likely belongs to another user",
            ),
        ] {
            let text = explain(Errno::ACCESS, attr, target);
            assert!(text.contains(expected), "{text}");
        }
        // Debian's own level, which forbids everything.
        let strict = Limits {
            paranoid: Some(3),
            ..limits()
        };
        let request = OpenRequest {
            attr: &user,
            target: Target::ThisThread,
            in_group: false,
        };
        let found = open(Errno::ACCESS, &request, &strict);
        assert!(
            found.cause.contains("is 3, which forbids any event"),
            "{}",
            found.cause
        );
        assert!(
            found.remedy.contains("perf_event_paranoid=2"),
            "{}",
            found.remedy
        );
        let text = explain(Errno::PERM, &user, Target::ThisThread);
        assert!(text.contains("seccomp"), "{text}");
    }

    #[test]
    fn each_errno_has_its_cause() {
        let cycles = Attr::new(Hardware::CpuCycles);
        let here = Target::ThisThread;
        let sampling = cycles
            .clone()
            .sample(Rate::Frequency(200_000), SampleFields::IP);
        let numbered = |pmu| Attr::new(EventConfig::new(pmu, 1));
        for (errno, attr, target, expected) in [
            (
                Errno::NOENT,
                cycles.clone(),
                here,
                "cpu-clock or task-clock (there are: software, uncore)",
            ),
            (
                Errno::NOENT,
                numbered(20),
                here,
                "the PMU does not know this event",
            ),
            (Errno::NOENT, numbered(21), here, "no PMU has the number 21"),
            (
                Errno::OPNOTSUPP,
                sampling.clone(),
                here,
                "no overflow interrupt",
            ),
            (
                Errno::OPNOTSUPP,
                sampling.clone().precision(Precision::RequireZeroSkid),
                here,
                "that precision",
            ),
            (
                Errno::OPNOTSUPP,
                sampling.clone().branch_stack(BranchFilter::ANY),
                here,
                "record branches",
            ),
            (
                Errno::OPNOTSUPP,
                cycles.clone(),
                here,
                "cannot count this event as asked",
            ),
            (
                Errno::INVAL,
                sampling,
                here,
                "exceed kernel.perf_event_max_sample_rate (100000)",
            ),
            (Errno::INVAL, numbered(20), here, "whole CPUs only"),
            (
                Errno::INVAL,
                Attr::new(Software::Dummy),
                here,
                "not valid for this PMU",
            ),
            (Errno::TOOBIG, cycles.clone(), here, "does not have"),
            (
                Errno::SRCH,
                cycles.clone(),
                Target::Thread(5),
                "thread 5 does not exist",
            ),
            (
                Errno::NODEV,
                cycles.clone(),
                Target::Cpu(3),
                "CPU 3 is off line",
            ),
            (Errno::NODEV, cycles.clone(), here, "the PMU is going away"),
            (Errno::MFILE, cycles.clone(), here, "ulimit -n"),
            (Errno::NFILE, cycles.clone(), here, "fs.file-max"),
            (
                Errno::OVERFLOW,
                cycles.clone(),
                here,
                "perf_event_max_stack (127)",
            ),
            (Errno::NOSYS, cycles.clone(), here, "CONFIG_PERF_EVENTS"),
            (
                Errno::XDEV,
                cycles.clone(),
                here,
                "no reason that is known here",
            ),
        ] {
            let text = explain(errno, &attr, target);
            assert!(text.contains(expected), "{errno}: {text}");
        }
    }

    #[test]
    fn a_group_that_does_not_fit_is_said_to() {
        let cycles = Attr::new(Hardware::CpuCycles);
        let request = OpenRequest {
            attr: &cycles,
            target: Target::ThisThread,
            in_group: true,
        };
        let found = open(Errno::INVAL, &request, &limits());
        assert!(found.cause.contains("would not fit"), "{}", found.cause);
        let found = open(Errno::TOOBIG, &request, &limits());
        assert!(found.cause.contains("16 KiB"), "{}", found.cause);
    }

    #[test]
    fn a_ring_beyond_the_limits_names_them() {
        let attr = Attr::new(Software::Dummy);
        let found = map(Errno::PERM, &attr, 1 << 20, &limits());
        assert!(found.cause.contains("1024 KiB"), "{}", found.cause);
        assert!(
            found.cause.contains("perf_event_mlock_kb (516)"),
            "{}",
            found.cause
        );
        let found = map(Errno::NODEV, &attr, 1 << 20, &limits());
        assert!(found.cause.contains("the PMU is gone"), "{}", found.cause);
    }
}
