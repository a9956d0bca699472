// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flag words of `struct perf_event_attr`, as types.
//!
//! Names and values are those of `include/uapi/linux/perf_event.h` without their prefix:
//! `SampleFields::IP` is `PERF_SAMPLE_IP`. Values a newer kernel may define can be carried with
//! `from_bits_retain`.

use bitflags::bitflags;
use perf_event_open_sys::bindings as sys;

bitflags! {
    /// What a sample record holds: `PERF_SAMPLE_*` in `attr.sample_type`.
    ///
    /// Several fields need a parameter of their own (which registers, how much stack, which
    /// branches); [`Attr`](crate::Attr) has a method for each of those that sets both.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SampleFields: u64 {
        /// Instruction pointer at the overflow.
        const IP = sys::PERF_SAMPLE_IP as u64;
        /// Process and thread id, in the pid namespace of the opener.
        const TID = sys::PERF_SAMPLE_TID as u64;
        /// Time in nanoseconds, by default of the kernel's scheduler clock.
        const TIME = sys::PERF_SAMPLE_TIME as u64;
        /// Data address that belongs to the event, if the PMU knows one.
        const ADDR = sys::PERF_SAMPLE_ADDR as u64;
        /// Counts, laid out as a `read(2)` of the event would return them.
        const READ = sys::PERF_SAMPLE_READ as u64;
        /// Call chain, innermost frame first, with context markers.
        const CALLCHAIN = sys::PERF_SAMPLE_CALLCHAIN as u64;
        /// Id of the event; that of the parent where the event was inherited.
        const ID = sys::PERF_SAMPLE_ID as u64;
        /// CPU on which the sample was taken.
        const CPU = sys::PERF_SAMPLE_CPU as u64;
        /// Period in force when the sample was taken: how many events it stands for.
        const PERIOD = sys::PERF_SAMPLE_PERIOD as u64;
        /// Id of the event itself, also where it was inherited.
        const STREAM_ID = sys::PERF_SAMPLE_STREAM_ID as u64;
        /// Opaque bytes of the PMU; for tracepoints their record.
        const RAW = sys::PERF_SAMPLE_RAW as u64;
        /// Recent branches. Use [`Attr::branch_stack`](crate::Attr::branch_stack).
        const BRANCH_STACK = sys::PERF_SAMPLE_BRANCH_STACK as u64;
        /// User registers. Use [`Attr::user_registers`](crate::Attr::user_registers).
        const REGS_USER = sys::PERF_SAMPLE_REGS_USER as u64;
        /// A copy of the user stack. Use [`Attr::user_stack`](crate::Attr::user_stack).
        const STACK_USER = sys::PERF_SAMPLE_STACK_USER as u64;
        /// Cost of the sampled access as one number. Excludes [`WEIGHT_STRUCT`](Self::WEIGHT_STRUCT).
        const WEIGHT = sys::PERF_SAMPLE_WEIGHT as u64;
        /// Where the data of the sampled access came from.
        const DATA_SRC = sys::PERF_SAMPLE_DATA_SRC as u64;
        /// Id of the event at the fixed place in each record: first in samples, last elsewhere.
        const IDENTIFIER = sys::PERF_SAMPLE_IDENTIFIER as u64;
        /// Why a hardware transaction aborted.
        const TRANSACTION = sys::PERF_SAMPLE_TRANSACTION as u64;
        /// Registers at the interrupt. Use
        /// [`Attr::interrupt_registers`](crate::Attr::interrupt_registers).
        const REGS_INTR = sys::PERF_SAMPLE_REGS_INTR as u64;
        /// Physical address of `ADDR`. Needs privileges.
        const PHYS_ADDR = sys::PERF_SAMPLE_PHYS_ADDR as u64;
        /// A piece of the AUX area. Use [`Attr::aux_sample`](crate::Attr::aux_sample).
        const AUX = sys::PERF_SAMPLE_AUX as u64;
        /// Id of the task's cgroup.
        const CGROUP = sys::PERF_SAMPLE_CGROUP as u64;
        /// Size in bytes of the page that holds `ADDR`.
        const DATA_PAGE_SIZE = sys::PERF_SAMPLE_DATA_PAGE_SIZE as u64;
        /// Size in bytes of the page that holds `IP`.
        const CODE_PAGE_SIZE = sys::PERF_SAMPLE_CODE_PAGE_SIZE as u64;
        /// Cost of the sampled access as three numbers. Excludes [`WEIGHT`](Self::WEIGHT).
        const WEIGHT_STRUCT = sys::PERF_SAMPLE_WEIGHT_STRUCT as u64;
    }
}

impl SampleFields {
    /// The fields that identify the event, the task, the time and the CPU. With
    /// `sample_id_all` every record that is not a sample ends in those of them that were asked
    /// for, so they make sense without sampling too.
    pub const IDENTITY: Self = Self::TID
        .union(Self::TIME)
        .union(Self::ID)
        .union(Self::STREAM_ID)
        .union(Self::CPU)
        .union(Self::IDENTIFIER);
}

bitflags! {
    /// What a `read(2)` of an event returns: `PERF_FORMAT_*` in `attr.read_format`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadFormat: u64 {
        /// Nanoseconds for which the event was enabled.
        const TOTAL_TIME_ENABLED = sys::PERF_FORMAT_TOTAL_TIME_ENABLED as u64;
        /// Nanoseconds for which the event was on a counter; less than enabled when multiplexed.
        const TOTAL_TIME_RUNNING = sys::PERF_FORMAT_TOTAL_TIME_RUNNING as u64;
        /// Id of each event.
        const ID = sys::PERF_FORMAT_ID as u64;
        /// All members of the group at once.
        const GROUP = sys::PERF_FORMAT_GROUP as u64;
        /// Number of samples lost, of each event.
        const LOST = sys::PERF_FORMAT_LOST as u64;
    }
}

impl ReadFormat {
    /// Both times, which scaling a multiplexed count needs.
    pub const TIMES: Self = Self::TOTAL_TIME_ENABLED.union(Self::TOTAL_TIME_RUNNING);
}

/// Declares a flags type over single bits of `struct perf_event_attr`, with the code that stores
/// each flag through the bit's own setter, so that no bit position is written down here.
macro_rules! attr_bits {
    (
        $(#[$outer:meta])*
        $name:ident { $( #[doc = $doc:literal] $flag:ident = $bit:literal => $get:ident, $set:ident; )* }
    ) => {
        bitflags! {
            $(#[$outer])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: u32 {
                $( #[doc = $doc] const $flag = 1 << $bit; )*
            }
        }

        impl $name {
            /// Sets in `attr` the bits of the flags that are set here; leaves the others.
            pub(crate) fn store(self, attr: &mut sys::perf_event_attr) {
                $( if self.contains(Self::$flag) { attr.$set(1); } )*
            }

            /// The flags that are set in `attr`.
            pub(crate) fn load(attr: &sys::perf_event_attr) -> Self {
                let mut flags = Self::empty();
                $( flags.set(Self::$flag, attr.$get() != 0); )*
                flags
            }
        }
    };
}

attr_bits! {
    /// What an event does not count, or a call chain does not hold: the `exclude_*` bits.
    Exclude {
        /// User space.
        USER = 0 => exclude_user, set_exclude_user;
        /// The kernel.
        KERNEL = 1 => exclude_kernel, set_exclude_kernel;
        /// The hypervisor.
        HV = 2 => exclude_hv, set_exclude_hv;
        /// The idle task. Only some software events heed it.
        IDLE = 3 => exclude_idle, set_exclude_idle;
        /// The host, while guests run.
        HOST = 4 => exclude_host, set_exclude_host;
        /// Guests.
        GUEST = 5 => exclude_guest, set_exclude_guest;
        /// Kernel frames of call chains.
        CALLCHAIN_KERNEL = 6 => exclude_callchain_kernel, set_exclude_callchain_kernel;
        /// User frames of call chains.
        CALLCHAIN_USER = 7 => exclude_callchain_user, set_exclude_callchain_user;
    }
}

attr_bits! {
    /// Records other than samples that an event writes to the ring.
    SideBand {
        /// Executable mappings: `PERF_RECORD_MMAP`.
        MMAP = 0 => mmap, set_mmap;
        /// Mappings that are not executable.
        MMAP_DATA = 1 => mmap_data, set_mmap_data;
        /// Mappings with inode, protection and flags: `PERF_RECORD_MMAP2` in place of `MMAP`.
        MMAP2 = 2 => mmap2, set_mmap2;
        /// With `MMAP2`: the build id of the file in place of its inode.
        BUILD_ID = 3 => build_id, set_build_id;
        /// Changes of a task's name: `PERF_RECORD_COMM`.
        COMM = 4 => comm, set_comm;
        /// With `COMM`: mark those that an exec caused.
        COMM_EXEC = 5 => comm_exec, set_comm_exec;
        /// Start and end of tasks: `PERF_RECORD_FORK` and `PERF_RECORD_EXIT`.
        TASK = 6 => task, set_task;
        /// Context switches: `PERF_RECORD_SWITCH` or `PERF_RECORD_SWITCH_CPU_WIDE`.
        CONTEXT_SWITCH = 7 => context_switch, set_context_switch;
        /// Namespaces of tasks: `PERF_RECORD_NAMESPACES`. Needs privileges.
        NAMESPACES = 8 => namespaces, set_namespaces;
        /// Kernel symbols that come and go: `PERF_RECORD_KSYMBOL`.
        KSYMBOL = 9 => ksymbol, set_ksymbol;
        /// BPF programs that come and go: `PERF_RECORD_BPF_EVENT`.
        BPF_EVENT = 10 => bpf_event, set_bpf_event;
        /// New cgroups: `PERF_RECORD_CGROUP`.
        CGROUP = 11 => cgroup, set_cgroup;
        /// Changes of kernel text: `PERF_RECORD_TEXT_POKE`. Needs privileges.
        TEXT_POKE = 12 => text_poke, set_text_poke;
        /// User call chains that were put off: `PERF_RECORD_CALLCHAIN_DEFERRED`.
        CALLCHAIN_DEFERRED = 13 => defer_output, set_defer_output;
    }
}

bitflags! {
    /// Which branches a branch stack holds: `PERF_SAMPLE_BRANCH_*` in `attr.branch_sample_type`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BranchFilter: u64 {
        /// Branches to user space.
        const USER = sys::PERF_SAMPLE_BRANCH_USER as u64;
        /// Branches to the kernel.
        const KERNEL = sys::PERF_SAMPLE_BRANCH_KERNEL as u64;
        /// Branches to the hypervisor.
        const HV = sys::PERF_SAMPLE_BRANCH_HV as u64;
        /// Any branch.
        const ANY = sys::PERF_SAMPLE_BRANCH_ANY as u64;
        /// Any call.
        const ANY_CALL = sys::PERF_SAMPLE_BRANCH_ANY_CALL as u64;
        /// Any return.
        const ANY_RETURN = sys::PERF_SAMPLE_BRANCH_ANY_RETURN as u64;
        /// Indirect calls.
        const IND_CALL = sys::PERF_SAMPLE_BRANCH_IND_CALL as u64;
        /// Transaction aborts.
        const ABORT_TX = sys::PERF_SAMPLE_BRANCH_ABORT_TX as u64;
        /// Branches inside a hardware transaction.
        const IN_TX = sys::PERF_SAMPLE_BRANCH_IN_TX as u64;
        /// Branches outside a hardware transaction.
        const NO_TX = sys::PERF_SAMPLE_BRANCH_NO_TX as u64;
        /// Conditional branches.
        const COND = sys::PERF_SAMPLE_BRANCH_COND as u64;
        /// The hardware's call stack.
        const CALL_STACK = sys::PERF_SAMPLE_BRANCH_CALL_STACK as u64;
        /// Indirect jumps.
        const IND_JUMP = sys::PERF_SAMPLE_BRANCH_IND_JUMP as u64;
        /// Direct calls.
        const CALL = sys::PERF_SAMPLE_BRANCH_CALL as u64;
        /// Leave out the prediction flags.
        const NO_FLAGS = sys::PERF_SAMPLE_BRANCH_NO_FLAGS as u64;
        /// Leave out the cycle counts.
        const NO_CYCLES = sys::PERF_SAMPLE_BRANCH_NO_CYCLES as u64;
        /// Save the kind of each branch.
        const TYPE_SAVE = sys::PERF_SAMPLE_BRANCH_TYPE_SAVE as u64;
        /// Save the index of the newest entry in the hardware's buffer.
        const HW_INDEX = sys::PERF_SAMPLE_BRANCH_HW_INDEX as u64;
        /// Save the privilege level of each branch.
        const PRIV_SAVE = sys::PERF_SAMPLE_BRANCH_PRIV_SAVE as u64;
        /// Save how often the group's events happened since the branch before.
        const COUNTERS = sys::PERF_SAMPLE_BRANCH_COUNTERS as u64;
    }
}

impl BranchFilter {
    /// The privilege levels. At least one flag beside these must be set.
    pub const PRIVILEGE: Self = Self::USER.union(Self::KERNEL).union(Self::HV);
}

bitflags! {
    /// Flags of the system call itself: `PERF_FLAG_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct OpenFlags: u64 {
        /// Take the group descriptor for its ring only, not for its group.
        const FD_NO_GROUP = sys::PERF_FLAG_FD_NO_GROUP as u64;
        /// Write into the ring of the group descriptor's event.
        const FD_OUTPUT = sys::PERF_FLAG_FD_OUTPUT as u64;
        /// The pid is a descriptor of a cgroup folder. [`Target::Cgroup`](crate::Target::Cgroup)
        /// sets it.
        const PID_CGROUP = sys::PERF_FLAG_PID_CGROUP as u64;
        /// Close the descriptor on exec. Set unless one asks otherwise.
        const FD_CLOEXEC = sys::PERF_FLAG_FD_CLOEXEC as u64;
    }
}

impl Default for OpenFlags {
    fn default() -> Self {
        Self::FD_CLOEXEC
    }
}
