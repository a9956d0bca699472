// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others have written for PMUs: `perf` and the kernel's own tests, from the tree of the kernel
//! that runs. Counts and shares have to be right, not only the exit status.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use workloads::INSTRUCTIONS_PER_ITERATION;

use crate::counters::Within;
use crate::guest;
use crate::process::Victim;
use crate::registry::Test;

pub const TESTS: &[Test] = &[
    Test::new(
        "client-perf-stat",
        "perf stat counts what a program is known to retire, and a CPU's cycles",
        stat,
    )
    .kernels("release,stock")
    .icount(),
    Test::new(
        "client-perf-stat-multiplex",
        "perf stat scales twelve events on six counters to within 5 %",
        stat_multiplex,
    )
    .kernels("release")
    .icount(),
    Test::new(
        "client-perf-record",
        "perf record -g, script and report show each sample, its call chain, and the known shares",
        record,
    )
    .kernels("release,stock")
    .icount(),
    Test::new(
        "client-perf-top",
        "perf top --stdio shows the known shares while the program runs",
        top,
    )
    .kernels("release")
    .icount(),
    Test::new(
        "client-perf-bench",
        "perf bench under perf stat: switches and instructions are those of so many operations",
        bench,
    )
    .kernels("release")
    .icount(),
    Test::new(
        "client-perf-test",
        "perf test gives the same under both drivers: all pass, but those that need what the guest lacks",
        perf_test,
    )
    .kernels("release")
    .icount(),
    Test::new(
        "client-perf-test-tracepoints",
        "the cases of perf test that need tracepoints pass where there are some, under both drivers",
        perf_test_tracepoints,
    )
    .kernels("stock")
    .icount(),
    Test::new(
        "client-perf-shell",
        "perf's shell tests of events, counting and sampling say the same under both drivers",
        perf_shell,
    )
    .kernels("release")
    .icount()
    .timeout(180),
    Test::new(
        "client-perf-shell-sideband",
        "perf's shell test of a task on another CPU than the one that is recorded",
        perf_shell_sideband,
    )
    .kernels("release")
    .smp(2),
    Test::new(
        "client-kselftest",
        "the kernel's perf_events selftests pass: mmap, remove_on_exec, watermark_signal",
        kselftest,
    )
    .kernels("release")
    .icount(),
];

/// Runs a program, which must succeed. Returns what it wrote to stdout and to stderr.
fn run(program: &str, arguments: &[&str]) -> Result<(String, String)> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| program.to_owned())?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    ensure!(
        output.status.success(),
        "{program} {arguments:?} ended with {}: {out}{err}",
        output.status
    );
    Ok((out, err))
}

/// A line of `perf stat -x,`: the event's count, and for how many percent of the time it was on a
/// counter.
struct Counted {
    value: u64,
    percent: f64,
}

/// What `perf stat` counts of these events, with these arguments after them.
fn perf_stat(events: &str, arguments: &[&str]) -> Result<Vec<Counted>> {
    let all = [&["stat", "-x,", "-e", events], arguments].concat();
    let (_, text) = run("perf", &all)?;
    let lines = text.lines().filter(|line| line.contains(','));
    let counted = lines.map(|line| {
        let fields: Vec<_> = line.split(',').collect();
        let [value, _unit, _event, _running, percent, ..] = fields[..] else {
            bail!("a line of perf stat reads {line:?}");
        };
        Ok(Counted {
            value: value.parse().with_context(|| line.to_owned())?,
            percent: percent.parse().with_context(|| line.to_owned())?,
        })
    });
    let counted = counted.collect::<Result<Vec<_>>>()?;
    let events = events.split(',').count();
    ensure!(counted.len() == events, "{events} events printed: {text}");
    Ok(counted)
}

fn stat() -> Result<()> {
    // As many digits each, so that starting the program costs the same.
    let count = |iterations| {
        let command = ["--", "selftests", "child", iterations];
        let counted = perf_stat("{instructions:u,cycles:u}", &command)?;
        let [instructions, cycles] = [&counted[0], &counted[1]];
        ensure!(
            instructions.percent == 100.0 && cycles.percent == 100.0,
            "a group of two was on its counters for {} % of the time",
            instructions.percent
        );
        // An instruction takes a cycle here, and a group starts and stops as one.
        ensure!(
            instructions.value == cycles.value,
            "{} instructions in {} cycles",
            instructions.value,
            cycles.value
        );
        Ok(instructions.value)
    };
    let (once, twice) = (count("1000000")?, count("2000000")?);
    let want = 1_000_000 * INSTRUCTIONS_PER_ITERATION;
    ensure!(
        twice
            .checked_sub(once)
            .is_some_and(|more| more.within(0.1, want)),
        "a million iterations counted {once}, two {twice}: the difference is not {want}"
    );
    // A second of a CPU of 1 GHz, whatever it did.
    let cycles = &perf_stat("cycles", &["-a", "--", "sleep", "1"])?[0];
    ensure!(
        cycles.value.within(1.0, 1_000_000_000),
        "a second has {} cycles",
        cycles.value
    );
    Ok(())
}

fn stat_multiplex() -> Result<()> {
    let events = ["instructions:u"; 12].join(",");
    let command = ["--", "selftests", "child", "20000000"];
    let counted = perf_stat(&events, &command)?;
    let want = 20_000_000 * INSTRUCTIONS_PER_ITERATION;
    for Counted { value, percent } in counted {
        ensure!(
            value.within(5.0, want) && percent < 90.0,
            "{value} of {want} instructions, estimated from {percent} % of the time"
        );
    }
    Ok(())
}

/// The functions of workload-c, their callers, and their shares in percent.
const FUNCTIONS: [(&str, &str, f64); 3] = [
    ("seventy_percent", "crunch", 70.0),
    ("twenty_percent", "crunch", 20.0),
    ("ten_percent", "tidy", 10.0),
];

/// Fails unless each of the known functions has a line in a report, with its share in front.
fn check_shares(report: &str) -> Result<()> {
    for (function, _, want) in FUNCTIONS {
        let line = report
            .lines()
            .rfind(|line| line.trim_end().ends_with(&format!("[.] {function}")));
        let share = line
            .and_then(|line| line.trim_start().split_once('%'))
            .and_then(|(share, _)| share.parse::<f64>().ok());
        ensure!(
            share.is_some_and(|share| (share - want).abs() < 3.0),
            "{function} has {share:?} %, not {want}: {report}"
        );
    }
    Ok(())
}

fn record() -> Result<()> {
    // No multiple of a round of the workload.
    const PERIOD: u64 = 100_003;
    const FILE: &str = "/tmp/perf.data";
    let workload = ["--", "workload-c", "--iterations", "20"];
    let count = perf_stat("cycles:u", &workload)?[0].value;
    let period = PERIOD.to_string();
    let options = [
        "record", "-g", "-e", "cycles:u", "-c", &period, "-o", FILE, "-q",
    ];
    run("perf", &[&options[..], &workload].concat())?;

    // A line for each sample, then a line for each frame, then an empty line.
    let fields = "comm,tid,time,period,ip,sym";
    let (script, _) = run("perf", &["script", "-i", FILE, "-F", fields])?;
    let samples: Vec<_> = script
        .split("\n\n")
        .filter(|text| !text.trim().is_empty())
        .collect();
    ensure!(
        (samples.len() as u64).within(0.5, count / PERIOD),
        "{count} cycles at a period of {PERIOD} gave {} samples",
        samples.len()
    );
    let mut known = 0;
    let mut last = 0.0;
    for sample in &samples {
        let mut lines = sample.trim_start_matches('\n').lines();
        let head: Vec<_> = lines
            .next()
            .context("a sample without a line")?
            .split_whitespace()
            .collect();
        let ["workload-c" | "perf-exec" | "perf", _tid, time, shown] = head[..] else {
            bail!("a sample of something else: {sample}");
        };
        let time: f64 = time.trim_end_matches(':').parse()?;
        ensure!(time > last, "a sample at {time} s after one at {last} s");
        last = time;
        ensure!(
            shown.trim_end_matches(':') == period,
            "a sample of {shown} events: {sample}"
        );
        let chain: Vec<_> = lines
            .filter_map(|line| line.split_whitespace().nth(1))
            .collect();
        known += usize::from(FUNCTIONS.iter().any(|(function, caller, _)| {
            chain.starts_with(&[function, caller, "main"]) && chain.ends_with(&["_start"])
        }));
    }
    // The rest is the program's start, and functions that have no frame yet or no longer.
    ensure!(
        known * 20 > samples.len() * 19,
        "of {} samples, {known} have a right call chain",
        samples.len()
    );

    let (report, _) = run(
        "perf",
        &[
            "report",
            "-i",
            FILE,
            "--stdio",
            "--no-children",
            "-g",
            "none",
            "-F",
            "overhead,sample,symbol",
        ],
    )?;
    ensure!(
        report.contains("Total Lost Samples: 0"),
        "samples were lost: {report}"
    );
    let total = format!("Event count (approx.): {}", samples.len() as u64 * PERIOD);
    ensure!(
        report.contains(&total),
        "perf report does not say {total:?}: {report}"
    );
    check_shares(&report)
}

fn top() -> Result<()> {
    let victim = Victim::start("workload-c", &["--seconds", "1000"])?;
    let pid = victim.pid().to_string();
    // Keys come from stdin, and its end would be one without end.
    let mut perf = Command::new("perf")
        .args(["top", "--stdio", "-d", "1", "-F", "1700", "-e", "cycles:u"])
        .args(["-p", &pid])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("perf")?;
    thread::sleep(Duration::from_millis(2500));
    let mut keys = perf.stdin.take().context("perf has no stdin")?;
    keys.write_all(b"q")?;
    let output = perf.wait_with_output()?;
    drop(keys);
    ensure!(
        output.status.success(),
        "perf top ended with {}",
        output.status
    );
    check_shares(&String::from_utf8_lossy(&output.stdout))
}

/// What `perf bench` costs for N, 2N and 3N operations: context switches and user instructions.
fn bench_three(benchmark: &[&str], operations: u64) -> Result<[(u64, u64); 3]> {
    let mut results = [(0, 0); 3];
    for (result, times) in results.iter_mut().zip(1..) {
        let loops = (times * operations).to_string();
        let command = [&["--", "perf", "bench"], benchmark, &["-l", &loops]].concat();
        let counted = perf_stat("context-switches,instructions:u", &command)?;
        *result = (counted[0].value, counted[1].value);
    }
    let [(_, once), (_, twice), (_, thrice)] = results;
    let per_operation = (thrice.abs_diff(twice), twice.abs_diff(once));
    ensure!(
        per_operation.0.within(0.5, per_operation.1) && per_operation.1 >= operations,
        "{benchmark:?}: {operations} operations more retired {} instructions, and {} the next time",
        per_operation.1,
        per_operation.0
    );
    Ok(results)
}

fn bench() -> Result<()> {
    const OPERATIONS: u64 = 2_000;
    // Two processes write to each other and then wait for the other. On one CPU, a turn of one ends
    // after one operation, or after two when the other has written already.
    let results = bench_three(&["sched", "pipe"], OPERATIONS)?;
    for ((switches, _), times) in results.into_iter().zip(1..) {
        let operations = times * OPERATIONS;
        ensure!(
            (operations..operations * 2 + 200).contains(&switches),
            "{operations} operations took {switches} context switches"
        );
    }
    bench_three(&["syscall", "basic"], 100_000)?;
    Ok(())
}

/// Cases of `perf test` that do not pass on the release kernel under either driver, what comes of them,
/// and why.
const NOT_HERE: [(&str, &str, &str); 20] = [
    ("vmlinux symtab matches kallsyms", SKIP, "no vmlinux"),
    ("Detect openat syscall event", SKIP, TRACEPOINTS),
    ("Detect openat syscall event on all cpus", SKIP, TRACEPOINTS),
    ("Test event parsing", FAILED, TRACEPOINTS),
    (
        "Parsing of aliased events from sysfs",
        SKIP,
        "no aliases in sysfs",
    ),
    ("Uncore event sorting", SKIP, "no PMU of the system"),
    ("Parse sched tracepoints fields", FAILED, TRACEPOINTS),
    (
        "syscalls:sys_enter_openat event fields",
        FAILED,
        TRACEPOINTS,
    ),
    ("Breakpoint overflow signal handler", SKIP, "not on arm64"),
    ("Breakpoint overflow sampling", SKIP, "not on arm64"),
    ("Object code reading", FAILED, "no objdump"),
    ("Read backward ring buffer", SKIP, TRACEPOINTS),
    ("Probe SDT events", SKIP, "perf without SDT"),
    (
        "test of individual --pfm-events",
        SKIP,
        "perf without libpfm",
    ),
    ("test groups of --pfm-events", SKIP, "perf without libpfm"),
    ("PE file support", SKIP, "perf without libbfd"),
    ("dlfilter C API", SKIP, "no compiler"),
    ("Sigtrap", SKIP, "breakpoints, not on arm64"),
    ("Event groups", SKIP, "no PMU of the system"),
    ("Read samples using the mmap interface", FAILED, TRACEPOINTS),
];
const SKIP: &str = "Skip";
const FAILED: &str = "FAILED!";
/// They would change the kernel that is measured. On the stock one, which has them, these cases run.
const TRACEPOINTS: &str = "no tracepoints";

/// Takes a line of `perf test`, `NUMBER: NAME : RESULT`, apart; `None` for any other line.
fn case_of(line: &str) -> Option<(&str, &str)> {
    let (number, rest) = line.trim_start().split_once(": ")?;
    let (name, result) = rest.rsplit_once(" :")?;
    let (name, result) = (name.trim(), result.trim());
    let numbered = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    // A case that has parts has no result of its own.
    let over = !result.is_empty() && !result.starts_with("Running");
    (numbered && over).then_some((name, result))
}

/// What perf's tests need beyond what is in every guest: the scripts, bash, and programs that are not
/// busybox's.
fn unpack_tests() -> Result<()> {
    run("tar", &["-xJf", "/usr/lib/perf-tests.tar.xz", "-C", "/"])?;
    Ok(())
}

/// Runs cases of `perf test`, one at a time, and hands what they print and their results to `check`.
fn perf_cases(names: &[&str], check: impl Fn(&str, &[(&str, &str)]) -> Result<()>) -> Result<()> {
    // It fails for those that fail here, so its status says nothing.
    let output = Command::new("perf")
        .args(["test", "-S"])
        .args(names)
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    let cases: Vec<_> = text.lines().filter_map(case_of).collect();
    check(&text, &cases)
}

/// Under both drivers each case must give the same, be it that it does not pass.
fn perf_test() -> Result<()> {
    unpack_tests()?;
    guest::write("/proc/sys/kernel/perf_user_access", 1)?;
    perf_cases(&[], |text, cases| {
        let mut wrong = Vec::new();
        for &(name, result) in cases {
            let want = NOT_HERE.iter().find(|(case, ..)| *case == name);
            let want = want.map_or("Ok", |(_, result, _)| *result);
            if !result.starts_with(want) {
                wrong.push(format!("{name}: {result}, not {want}"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        // 115 of them when this was written.
        ensure!(cases.len() > 100, "only {} cases: {text}", cases.len());
        for want in
            ["instructions", "cycles"].map(|what| format!("User space counter reading of {what}"))
        {
            ensure!(cases.contains(&(&want, "Ok")), "no case {want:?}: {text}");
        }
        Ok(())
    })
}

fn perf_test_tracepoints() -> Result<()> {
    unpack_tests()?;
    let names: Vec<_> = NOT_HERE
        .iter()
        .filter(|(.., why)| *why == TRACEPOINTS)
        .map(|(name, ..)| *name)
        .collect();
    perf_cases(&names, |text, cases| {
        for &name in &names {
            ensure!(cases.contains(&(name, "Ok")), "{name} did not pass: {text}");
        }
        Ok(())
    })
}

/// A shell test of perf's: its name, its exit status, and the lines in which it says that a part of it
/// failed or was left out, with the reason. One that is skipped as a whole has the status 2.
type Script = (&'static str, i32, &'static [(&'static str, &'static str)]);

const SKIPPED: i32 = 2;

/// Those that concern PMUs, events, counting, sampling and ring buffers.
const SHELL: [Script; 27] = [
    ("data_file_offset_diagnostics.sh", 0, &[]),
    ("data_validation.sh", 0, &[]),
    ("evlist.sh", 0, &[]),
    ("header.sh", 0, &[]),
    ("kallsyms.sh", 0, &[]),
    ("list.sh", 2, &[("", "no Python")]),
    ("perf-report-hierarchy.sh", 0, &[]),
    ("pipe_test.sh", 0, &[]),
    ("record+zstd_comp_decomp.sh", 0, &[]),
    (
        "record.sh",
        1,
        &[
            ("Register capture test [Skipped", "x86's registers"),
            ("branch counter feature not supported", "no branch records"),
            ("Uid sampling [Failed to record]", "perf without BPF"),
            ("Topdown leader sampling [Skipped", "events of Intel's"),
            ("Auto counter reload sampling [Skipped", "Intel's"),
        ],
    ),
    ("record_bpf_filter.sh", 2, &[("", "perf without BPF")]),
    ("record_lbr.sh", 2, &[("", "not on arm64")]),
    ("record_offcpu.sh", 2, &[("", "perf without BPF")]),
    ("record_weak_term.sh", 2, &[("", "no Python")]),
    ("stat+csv_output.sh", 0, &[]),
    ("stat+csv_summary.sh", 0, &[]),
    ("stat+event_uniquifying.sh", 0, &[]),
    ("stat+json_output.sh", 2, &[("", "no Python")]),
    ("stat+shadow_stat.sh", 0, &[]),
    (
        "stat+std_output.sh",
        1,
        &[(
            "wrong event metric. expected backend_cycles_idle",
            "perf has two metrics of that event, and prints the other",
        )],
    ),
    (
        "stat.sh",
        0,
        &[
            ("Topdown event group test [Skipped", "events of Intel's"),
            ("Topdown weak groups test [Skipped", "events of Intel's"),
            ("cputype test [Skipped", "PMUs of x86"),
        ],
    ),
    ("stat_all_metricgroups.sh", 0, &[]),
    (
        "stat_all_metrics.sh",
        0,
        &[("[Ignored ", "events that QEMU's PMU has not")],
    ),
    ("stat_all_pmu.sh", 0, &[]),
    ("stat_metrics_cgrp.sh", 0, &[]),
    ("test_event_open_fallback.sh", 0, &[]),
    ("top.sh", 0, &[]),
];

/// Runs one of perf's shell tests. Returns its exit status and what it said.
fn shell(script: &str) -> Result<(i32, String)> {
    let output = Command::new("bash")
        .arg(format!("/usr/lib/perf/tests/shell/{script}"))
        .stdin(Stdio::null())
        .current_dir("/tmp")
        .output()
        .context("bash")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let status = output.status.code();
    let status = status.with_context(|| format!("{script} ended with {}", output.status))?;
    Ok((status, text))
}

/// Whether a line of a shell test says that a part of it did not pass. They have no form in common.
fn is_complaint(line: &str) -> bool {
    ["[Fail", "[Skip", "[Ignored", "FAIL:", "wrong event metric"]
        .iter()
        .any(|word| line.contains(word))
}

/// Under both drivers each script must end alike, and complain of the same.
fn perf_shell() -> Result<()> {
    unpack_tests()?;
    // Two of them count and sample by cgroup.
    run("mount", &["-t", "cgroup2", "none", "/sys/fs/cgroup"])?;
    let mut wrong = Vec::new();
    for (script, want, known) in SHELL {
        let (status, text) = shell(script)?;
        let complaints: Vec<_> = text.lines().filter(|line| is_complaint(line)).collect();
        let is_known = |line: &str| known.iter().any(|(what, _)| line.contains(what));
        let is_missing = |what: &str| !complaints.iter().any(|line| line.contains(what));
        let same = complaints.iter().all(|line| is_known(line))
            && !known.iter().any(|(what, _)| is_missing(what));
        if status != want || (status != SKIPPED && !same) {
            wrong.push(format!(
                "{script} ended with {status}, not {want}, and said {complaints:?}: {text}"
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The only one that takes two CPUs. The others compare counts, so they run where time follows the
/// instructions.
fn perf_shell_sideband() -> Result<()> {
    unpack_tests()?;
    let (status, text) = shell("record_sideband.sh")?;
    let passed = status == 0 && !text.lines().any(is_complaint);
    ensure!(passed, "it ended with {status}: {text}");
    Ok(())
}

fn kselftest() -> Result<()> {
    // Of mmap's six cases three need an AUX area, as no PMU has here. sigtrap_threads never
    // ends here, whatever drives the PMU: its breakpoint on data comes before the access, which arm64 would
    // then step over, but the step is the first of the signal's handler, and the access traps anew.
    for (name, passing) in [("mmap", 3), ("remove_on_exec", 4), ("watermark_signal", 1)] {
        let (text, _) = run(&format!("kselftest-{name}"), &[])?;
        let passed = text
            .lines()
            .filter(|line| line.starts_with("ok ") && !line.contains("# SKIP"))
            .count();
        ensure!(
            passed == passing,
            "{name}: {passed} cases passed, not {passing}: {text}"
        );
    }
    Ok(())
}
