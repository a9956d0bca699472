// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to count: the type and config words of `struct perf_event_attr`.

use std::ffi::CString;

use perf_event_open_sys::bindings as sys;

/// What an event counts: the number of the PMU and its config words.
///
/// Build one from [`Hardware`], [`Software`], [`Cache`], [`Tracepoint`], [`Breakpoint`] or
/// [`Probe`], or by hand for a PMU that sysfs names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventConfig {
    /// Number of the PMU: `PERF_TYPE_*`, or what the PMU's `type` file in sysfs holds.
    pub pmu: u32,
    /// Event number and what else the PMU's `format` folder places in `config`.
    pub config: u64,
    /// First extension word.
    pub config1: u64,
    /// Second extension word.
    pub config2: u64,
    /// Third extension word.
    pub config3: u64,
    /// Fourth extension word.
    pub config4: u64,
    /// `bp_type`: which accesses trap. Breakpoints only.
    pub breakpoint_type: u32,
    /// A string to which `config1` is to point. Probes only.
    pub name: Option<CString>,
}

impl EventConfig {
    /// The event `config` of the PMU number `pmu`.
    pub fn new(pmu: u32, config: u64) -> Self {
        Self {
            pmu,
            config,
            ..Self::default()
        }
    }

    /// A raw event number of the CPU's own PMU (`PERF_TYPE_RAW`), as in the syntax `r11`.
    pub fn raw(config: u64) -> Self {
        Self::new(sys::PERF_TYPE_RAW, config)
    }
}

/// Shifts the number of a PMU into the upper half of `config`, which picks one of several
/// CPU PMUs (big and little cores) for a generalised event.
fn extended(pmu: u32, config: u64) -> u64 {
    (u64::from(pmu) << sys::PERF_PMU_TYPE_SHIFT) | config
}

/// Generalised hardware events (`PERF_TYPE_HARDWARE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Hardware {
    /// CPU cycles, at the present frequency.
    CpuCycles = sys::PERF_COUNT_HW_CPU_CYCLES,
    /// Retired instructions.
    Instructions = sys::PERF_COUNT_HW_INSTRUCTIONS,
    /// Cache accesses, usually of the last level.
    CacheReferences = sys::PERF_COUNT_HW_CACHE_REFERENCES,
    /// Cache misses, usually of the last level.
    CacheMisses = sys::PERF_COUNT_HW_CACHE_MISSES,
    /// Retired branch instructions.
    BranchInstructions = sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
    /// Mispredicted branches.
    BranchMisses = sys::PERF_COUNT_HW_BRANCH_MISSES,
    /// Bus cycles.
    BusCycles = sys::PERF_COUNT_HW_BUS_CYCLES,
    /// Cycles in which the front end delivered nothing.
    StalledCyclesFrontend = sys::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    /// Cycles in which the back end accepted nothing.
    StalledCyclesBackend = sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    /// Cycles of a clock that does not follow the CPU's frequency.
    RefCpuCycles = sys::PERF_COUNT_HW_REF_CPU_CYCLES,
}

impl Hardware {
    /// This event on the CPU PMU number `pmu` of several.
    pub fn on_pmu(self, pmu: u32) -> EventConfig {
        EventConfig::new(sys::PERF_TYPE_HARDWARE, extended(pmu, self as u64))
    }
}

impl From<Hardware> for EventConfig {
    fn from(event: Hardware) -> Self {
        Self::new(sys::PERF_TYPE_HARDWARE, event as u64)
    }
}

/// Events that the kernel counts in software (`PERF_TYPE_SOFTWARE`), on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Software {
    /// Nanoseconds of wall-clock time, by a timer of the CPU.
    CpuClock = sys::PERF_COUNT_SW_CPU_CLOCK,
    /// Nanoseconds for which the task ran.
    TaskClock = sys::PERF_COUNT_SW_TASK_CLOCK,
    /// Page faults.
    PageFaults = sys::PERF_COUNT_SW_PAGE_FAULTS,
    /// Context switches.
    ContextSwitches = sys::PERF_COUNT_SW_CONTEXT_SWITCHES,
    /// Moves of the task to another CPU.
    CpuMigrations = sys::PERF_COUNT_SW_CPU_MIGRATIONS,
    /// Page faults that needed no I/O.
    PageFaultsMin = sys::PERF_COUNT_SW_PAGE_FAULTS_MIN,
    /// Page faults that needed I/O.
    PageFaultsMaj = sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
    /// Unaligned accesses that the kernel fixed up.
    AlignmentFaults = sys::PERF_COUNT_SW_ALIGNMENT_FAULTS,
    /// Instructions that the kernel emulated.
    EmulationFaults = sys::PERF_COUNT_SW_EMULATION_FAULTS,
    /// Counts nothing; carries side-band records.
    Dummy = sys::PERF_COUNT_SW_DUMMY,
    /// Output of BPF programs.
    BpfOutput = sys::PERF_COUNT_SW_BPF_OUTPUT,
    /// Context switches to a task of another cgroup.
    CgroupSwitches = sys::PERF_COUNT_SW_CGROUP_SWITCHES,
}

impl From<Software> for EventConfig {
    fn from(event: Software) -> Self {
        Self::new(sys::PERF_TYPE_SOFTWARE, event as u64)
    }
}

/// Generalised cache events (`PERF_TYPE_HW_CACHE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cache {
    /// Which cache.
    pub id: CacheId,
    /// Which operation on it.
    pub op: CacheOp,
    /// Which outcome.
    pub result: CacheResult,
}

/// A cache of [`Cache`] (`PERF_COUNT_HW_CACHE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CacheId {
    /// First-level data cache.
    L1d = sys::PERF_COUNT_HW_CACHE_L1D,
    /// First-level instruction cache.
    L1i = sys::PERF_COUNT_HW_CACHE_L1I,
    /// Last-level cache.
    Ll = sys::PERF_COUNT_HW_CACHE_LL,
    /// Data TLB.
    Dtlb = sys::PERF_COUNT_HW_CACHE_DTLB,
    /// Instruction TLB.
    Itlb = sys::PERF_COUNT_HW_CACHE_ITLB,
    /// Branch predictor.
    Bpu = sys::PERF_COUNT_HW_CACHE_BPU,
    /// Memory of the local NUMA node.
    Node = sys::PERF_COUNT_HW_CACHE_NODE,
}

/// An operation of [`Cache`] (`PERF_COUNT_HW_CACHE_OP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CacheOp {
    /// Reads.
    Read = sys::PERF_COUNT_HW_CACHE_OP_READ,
    /// Writes.
    Write = sys::PERF_COUNT_HW_CACHE_OP_WRITE,
    /// Prefetches.
    Prefetch = sys::PERF_COUNT_HW_CACHE_OP_PREFETCH,
}

/// An outcome of [`Cache`] (`PERF_COUNT_HW_CACHE_RESULT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CacheResult {
    /// All accesses.
    Access = sys::PERF_COUNT_HW_CACHE_RESULT_ACCESS,
    /// Misses.
    Miss = sys::PERF_COUNT_HW_CACHE_RESULT_MISS,
}

impl Cache {
    fn config(self) -> u64 {
        self.id as u64 | ((self.op as u64) << 8) | ((self.result as u64) << 16)
    }

    /// This event on the CPU PMU number `pmu` of several.
    pub fn on_pmu(self, pmu: u32) -> EventConfig {
        EventConfig::new(sys::PERF_TYPE_HW_CACHE, extended(pmu, self.config()))
    }
}

impl From<Cache> for EventConfig {
    fn from(event: Cache) -> Self {
        Self::new(sys::PERF_TYPE_HW_CACHE, event.config())
    }
}

/// A tracepoint (`PERF_TYPE_TRACEPOINT`): the number in its `id` file in tracefs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tracepoint(pub u64);

impl From<Tracepoint> for EventConfig {
    fn from(event: Tracepoint) -> Self {
        Self::new(sys::PERF_TYPE_TRACEPOINT, event.0)
    }
}

/// A hardware breakpoint (`PERF_TYPE_BREAKPOINT`), which counts accesses to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Breakpoint {
    /// Which accesses.
    pub access: Access,
    /// First address.
    pub addr: u64,
    /// Length in bytes, usually 1, 2, 4 or 8; for [`Access::Execute`] the size of a long.
    pub len: u64,
}

/// Accesses that a [`Breakpoint`] counts (`HW_BREAKPOINT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Access {
    /// Reads. Few CPUs can tell them from writes.
    Read = sys::HW_BREAKPOINT_R,
    /// Writes.
    Write = sys::HW_BREAKPOINT_W,
    /// Reads and writes.
    ReadWrite = sys::HW_BREAKPOINT_RW,
    /// Instruction fetches.
    Execute = sys::HW_BREAKPOINT_X,
}

impl From<Breakpoint> for EventConfig {
    fn from(event: Breakpoint) -> Self {
        Self {
            pmu: sys::PERF_TYPE_BREAKPOINT,
            config1: event.addr,
            config2: event.len,
            breakpoint_type: event.access as u32,
            ..Self::default()
        }
    }
}

/// A probe placed at open: on a PMU `kprobe` or `uprobe`, whose number and whose `retprobe` bit
/// are in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// In a kernel function, by name.
    KernelFunction {
        /// Number of the PMU `kprobe`.
        pmu: u32,
        /// Name of the function.
        function: CString,
        /// Bytes from its start.
        offset: u64,
    },
    /// At a kernel address.
    KernelAddress {
        /// Number of the PMU `kprobe`.
        pmu: u32,
        /// The address.
        addr: u64,
    },
    /// In a file that user processes execute.
    UserFile {
        /// Number of the PMU `uprobe`.
        pmu: u32,
        /// The file.
        path: CString,
        /// Bytes from the start of the file.
        offset: u64,
    },
}

impl From<Probe> for EventConfig {
    fn from(probe: Probe) -> Self {
        let (pmu, name, config2) = match probe {
            Probe::KernelFunction {
                pmu,
                function,
                offset,
            } => (pmu, Some(function), offset),
            Probe::KernelAddress { pmu, addr } => (pmu, None, addr),
            Probe::UserFile { pmu, path, offset } => (pmu, Some(path), offset),
        };
        Self {
            pmu,
            config2,
            name,
            ..Self::default()
        }
    }
}
