// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders like `/sys/bus/event_source/devices`, made for a test.

// Each test program uses some of these.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use perfshim::discovery::Pmus;
use tempfile::TempDir;

/// A folder of PMUs that is removed at the end of the test.
pub struct Tree {
    folder: TempDir,
}

impl Tree {
    pub fn new() -> Self {
        Self {
            folder: TempDir::new().expect("a temporary folder"),
        }
    }

    /// Adds files, given as `PMU/FILE` and content.
    pub fn with(self, files: &[(&str, &str)]) -> Self {
        for (path, content) in files {
            self.write(path, content.as_bytes());
        }
        self
    }

    pub fn write(&self, path: &str, content: &[u8]) {
        // sysfs lists PMUs as links to folders elsewhere.
        let (pmu, file) = path.split_once('/').expect("PMU/FILE");
        let target = self.folder.path().join("elsewhere").join(pmu);
        let devices = self.devices();
        fs::create_dir_all(&devices).unwrap();
        if !target.exists() {
            fs::create_dir_all(&target).unwrap();
            symlink(&target, devices.join(pmu)).unwrap();
        }
        let file = target.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    pub fn devices(&self) -> PathBuf {
        self.folder.path().join("devices")
    }

    pub fn scan(&self) -> Pmus {
        Pmus::scan(&self.devices()).expect("the folder exists")
    }
}

/// A machine with one kind of CPU and a memory controller in two parts.
pub fn plain_machine() -> Tree {
    Tree::new().with(&[
        ("core_pmu/type", "8\n"),
        ("core_pmu/cpus", "0-3\n"),
        ("core_pmu/format/event", "config:0-15\n"),
        ("core_pmu/format/long", "config1:0\n"),
        ("core_pmu/format/split", "config2:0-7,32-35\n"),
        ("core_pmu/format/threshold", "config1:5-16\n"),
        ("core_pmu/events/cpu_cycles", "event=0x0011\n"),
        ("core_pmu/events/inst_retired", "event=0x0008\n"),
        ("core_pmu/events/slow_loads", "event=0x0013,threshold=3\n"),
        ("core_pmu/events/needy", "event=0x77,threshold=?\n"),
        ("core_pmu/caps/slots", "0x00000000\n"),
        ("mem_0/type", "9\n"),
        ("mem_0/cpumask", "0\n"),
        ("mem_0/format/event", "config:0-7\n"),
        ("mem_0/events/reads", "event=0x1\n"),
        ("mem_0/events/reads.unit", "MiB\n"),
        ("mem_0/events/reads.scale", "6.1e-5\n"),
        ("mem_1/type", "10\n"),
        ("mem_1/cpumask", "2\n"),
        ("mem_1/format/event", "config:0-7\n"),
        ("mem_1/events/reads", "event=0x1\n"),
        ("software/type", "1\n"),
    ])
}

/// A machine with big and little CPUs.
pub fn mixed_machine() -> Tree {
    plain_machine().with(&[
        ("little_pmu/type", "12\n"),
        ("little_pmu/cpus", "4-7\n"),
        ("little_pmu/format/event", "config:0-15\n"),
        ("little_pmu/events/cpu_cycles", "event=0x0011\n"),
    ])
}
