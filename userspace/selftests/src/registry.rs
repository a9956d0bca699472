// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test is, and what it asks of the guest that runs it.

use std::fmt;

use crate::tests;

/// A test and the guest that it needs.
pub struct Test {
    /// Unique name, words joined by hyphens.
    pub name: &'static str,
    /// What holds when it passes, in one line.
    pub summary: &'static str,
    /// Does it. An error fails the test, [`crate::tap::Skip`] skips it.
    pub run: fn() -> anyhow::Result<()>,
    kernels: &'static str,
    drivers: &'static str,
    clock: Clock,
    cpu: &'static str,
    smp: u32,
    timeout: u32,
    firmware: Firmware,
    append: &'static str,
}

/// How the guest's time passes.
#[derive(Clone, Copy)]
enum Clock {
    /// An instruction is a nanosecond: counts are exact. CPUs take turns, so nothing races.
    Icount,
    /// Virtual time follows the host's, and CPUs run at once.
    Smp,
}

/// How the kernel learns what the machine has.
#[derive(Clone, Copy)]
enum Firmware {
    /// From QEMU's own device tree.
    Tree,
    /// From that as dts/NAME.dts changes it.
    ChangedTree(&'static str),
    /// From ACPI tables.
    Acpi,
}

impl Test {
    /// A test for the lab kernels and both drivers, on one CPU of model `max` with time that
    /// follows the host's.
    pub const fn new(
        name: &'static str,
        summary: &'static str,
        run: fn() -> anyhow::Result<()>,
    ) -> Self {
        Self {
            name,
            summary,
            run,
            kernels: "release,debug",
            drivers: "rust,c",
            clock: Clock::Smp,
            cpu: "max",
            smp: 1,
            timeout: 60,
            firmware: Firmware::Tree,
            append: "-",
        }
    }

    /// Counts or times are compared. Without this, a host that is busy lets time pass between any
    /// two instructions, and between the clock of one counter and that of another, which the
    /// emulator reads one after the other.
    pub const fn icount(mut self) -> Self {
        self.clock = Clock::Icount;
        self
    }

    /// Needs that many CPUs.
    pub const fn smp(mut self, cpus: u32) -> Self {
        self.smp = cpus;
        self
    }

    /// Needs that CPU model of QEMU.
    pub const fn cpu(mut self, model: &'static str) -> Self {
        self.cpu = model;
        self
    }

    /// Takes up to that many seconds, on the slowest kernel.
    pub const fn timeout(mut self, seconds: u32) -> Self {
        self.timeout = seconds;
        self
    }

    /// Needs the device tree as dts/NAME.dts changes it.
    pub const fn dts(mut self, name: &'static str) -> Self {
        self.firmware = Firmware::ChangedTree(name);
        self
    }

    /// Needs a machine without a device tree.
    pub const fn acpi(mut self) -> Self {
        self.firmware = Firmware::Acpi;
        self
    }

    /// Needs that word on the kernel's command line.
    pub const fn append(mut self, word: &'static str) -> Self {
        self.append = word;
        self
    }

    /// Belongs to the core set, which runs on Debian's stock kernel too.
    pub const fn core(self) -> Self {
        self.kernels("release,debug,stock")
    }

    /// Runs on these kernels only, separated by commas.
    pub const fn kernels(mut self, kernels: &'static str) -> Self {
        self.kernels = kernels;
        self
    }

    /// Runs with these drivers only, separated by commas; the summary says what the other lacks.
    pub const fn drivers(mut self, drivers: &'static str) -> Self {
        self.drivers = drivers;
        self
    }
}

/// The line of `--list`: name, kernels, drivers, clock, CPU model, CPUs, seconds, device tree or `-`
/// or `acpi`, command line or `-`, summary.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = match self.clock {
            Clock::Icount => "icount",
            Clock::Smp => "smp",
        };
        let firmware = match self.firmware {
            Firmware::Tree => "-",
            Firmware::ChangedTree(name) => name,
            Firmware::Acpi => "acpi",
        };
        write!(
            f,
            "{}\t{}\t{}\t{clock}\t{}\t{}\t{}\t{firmware}\t{}\t{}",
            self.name,
            self.kernels,
            self.drivers,
            self.cpu,
            self.smp,
            self.timeout,
            self.append,
            self.summary
        )
    }
}

/// All tests, the core ones first.
pub fn all() -> impl Iterator<Item = &'static Test> {
    [
        tests::sysfs::TESTS,
        tests::counting::TESTS,
        tests::events::TESTS,
        tests::sampling::TESTS,
        tests::groups::TESTS,
        tests::targets::TESTS,
        tests::ring::TESTS,
        tests::hotplug::TESTS,
        tests::module::TESTS,
        tests::faults::TESTS,
        tests::features::TESTS,
        tests::spi::TESTS,
        tests::acpi::TESTS,
        tests::examples::TESTS,
        tests::clients::TESTS,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod unit {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_fit_a_shell() {
        let mut seen = HashSet::new();
        for test in all() {
            assert!(seen.insert(test.name), "{} is there twice", test.name);
            assert!(
                test.name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            );
        }
    }

    #[test]
    fn each_line_has_ten_columns_of_words() {
        for test in all() {
            let line = test.to_string();
            assert_eq!(line.split('\t').count(), 10, "{line:?}");
            // The summary comes last; the others are arguments of scripts/test-guest.
            assert_eq!(
                line.split('\t').flat_map(str::split_whitespace).count(),
                9 + test.summary.split_whitespace().count(),
                "{line:?}"
            );
            assert!(!line.contains('\n'));
        }
    }
}
