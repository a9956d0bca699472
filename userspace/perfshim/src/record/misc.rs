// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of a record.

use crate::sys;

/// `struct perf_event_header`: the first 8 bytes of each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// Flags whose meaning depends on the kind.
    pub misc: Misc,
    /// Size of the record in bytes, header included.
    pub size: u16,
}

impl Header {
    /// Size of a header in bytes.
    pub const SIZE: usize = 8;

    /// Takes a header apart.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            kind: u32::from_ne_bytes([a, b, c, d]),
            misc: Misc(u16::from_ne_bytes([e, f])),
            size: u16::from_ne_bytes([g, h]),
        }
    }
}

/// The flag word of a record's header (`PERF_RECORD_MISC_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Misc(
    /// As the kernel wrote it.
    pub u16,
);

impl Misc {
    /// Where the CPU was.
    pub fn cpu_mode(self) -> CpuMode {
        match u32::from(self.0) & sys::PERF_RECORD_MISC_CPUMODE_MASK {
            sys::PERF_RECORD_MISC_CPUMODE_UNKNOWN => CpuMode::Unknown,
            sys::PERF_RECORD_MISC_KERNEL => CpuMode::Kernel,
            sys::PERF_RECORD_MISC_USER => CpuMode::User,
            sys::PERF_RECORD_MISC_HYPERVISOR => CpuMode::Hypervisor,
            sys::PERF_RECORD_MISC_GUEST_KERNEL => CpuMode::GuestKernel,
            sys::PERF_RECORD_MISC_GUEST_USER => CpuMode::GuestUser,
            other => CpuMode::Other(other as u8),
        }
    }

    fn has(self, flag: u32) -> bool {
        u32::from(self.0) & flag != 0
    }

    /// In a sample: the instruction pointer is that of the instruction that caused it.
    pub fn is_exact_ip(self) -> bool {
        self.has(sys::PERF_RECORD_MISC_EXACT_IP)
    }

    /// In a mapping's record: it is not executable.
    pub fn is_mmap_data(self) -> bool {
        self.has(sys::PERF_RECORD_MISC_MMAP_DATA)
    }

    /// In an `MMAP2` record: it holds a build id.
    pub fn is_mmap_build_id(self) -> bool {
        self.has(sys::PERF_RECORD_MISC_MMAP_BUILD_ID)
    }

    /// In a `COMM` record: an exec changed the name.
    pub fn is_comm_exec(self) -> bool {
        self.has(sys::PERF_RECORD_MISC_COMM_EXEC)
    }

    /// In a context switch: the task went off the CPU.
    pub fn is_switch_out(self) -> bool {
        self.has(sys::PERF_RECORD_MISC_SWITCH_OUT)
    }

    /// In a context switch: it was preempted.
    pub fn is_switch_out_preempt(self) -> bool {
        self.has(sys::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT)
    }

    /// In mapping records that a tool made from /proc: it gave up before the end.
    pub fn is_maps_timeout(self) -> bool {
        self.has(sys::PERF_RECORD_MISC_PROC_MAP_PARSE_TIMEOUT)
    }
}

/// Where a CPU was when a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuMode {
    /// The kernel did not say.
    Unknown,
    /// In the kernel.
    Kernel,
    /// In user space.
    User,
    /// In the hypervisor.
    Hypervisor,
    /// In a guest's kernel.
    GuestKernel,
    /// In a guest's user space.
    GuestUser,
    /// A value newer than this library.
    Other(u8),
}
