// SPDX-License-Identifier: MIT OR Apache-2.0
//! What samples say of memory accesses and transactions.

use bitflags::bitflags;

use crate::sys;

/// Cost of a sampled access (`union perf_sample_weight`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// As one number, often cycles (`PERF_SAMPLE_WEIGHT`).
    Full(u64),
    /// As three numbers whose meaning the PMU defines (`PERF_SAMPLE_WEIGHT_STRUCT`).
    Parts {
        /// `var1_dw`.
        var1: u32,
        /// `var2_w`.
        var2: u16,
        /// `var3_w`.
        var3: u16,
    },
}

impl Weight {
    /// Takes a word apart in the way of `PERF_SAMPLE_WEIGHT_STRUCT`: `var1` are the low bits on
    /// either byte order.
    pub(crate) fn parts(word: u64) -> Self {
        Self::Parts {
            var1: word as u32,
            var2: (word >> 32) as u16,
            var3: (word >> 48) as u16,
        }
    }
}

/// Declares flags that are a bit-field of a larger word, shifted down.
macro_rules! field_flags {
    ($(#[$outer:meta])* $name:ident { $( #[doc = $doc:literal] $flag:ident = $value:ident; )* }) => {
        bitflags! {
            $(#[$outer])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: u32 {
                $( #[doc = $doc] const $flag = sys::$value; )*
            }
        }
    };
}

field_flags! {
    /// What the instruction did.
    MemOp {
        /// Unknown.
        NA = PERF_MEM_OP_NA;
        /// Load.
        LOAD = PERF_MEM_OP_LOAD;
        /// Store.
        STORE = PERF_MEM_OP_STORE;
        /// Prefetch.
        PFETCH = PERF_MEM_OP_PFETCH;
        /// Instruction fetch.
        EXEC = PERF_MEM_OP_EXEC;
    }
}

field_flags! {
    /// Level of the memory hierarchy, in the older encoding.
    MemLevel {
        /// Unknown.
        NA = PERF_MEM_LVL_NA;
        /// Hit.
        HIT = PERF_MEM_LVL_HIT;
        /// Miss.
        MISS = PERF_MEM_LVL_MISS;
        /// First level.
        L1 = PERF_MEM_LVL_L1;
        /// Line fill buffer.
        LFB = PERF_MEM_LVL_LFB;
        /// Second level.
        L2 = PERF_MEM_LVL_L2;
        /// Third level.
        L3 = PERF_MEM_LVL_L3;
        /// Local memory.
        LOC_RAM = PERF_MEM_LVL_LOC_RAM;
        /// Remote memory, one hop away.
        REM_RAM1 = PERF_MEM_LVL_REM_RAM1;
        /// Remote memory, two hops away.
        REM_RAM2 = PERF_MEM_LVL_REM_RAM2;
        /// Remote cache, one hop away.
        REM_CCE1 = PERF_MEM_LVL_REM_CCE1;
        /// Remote cache, two hops away.
        REM_CCE2 = PERF_MEM_LVL_REM_CCE2;
        /// I/O memory.
        IO = PERF_MEM_LVL_IO;
        /// Uncached memory.
        UNC = PERF_MEM_LVL_UNC;
    }
}

field_flags! {
    /// What snooping other caches found.
    MemSnoop {
        /// Unknown.
        NA = PERF_MEM_SNOOP_NA;
        /// No snoop.
        NONE = PERF_MEM_SNOOP_NONE;
        /// Hit.
        HIT = PERF_MEM_SNOOP_HIT;
        /// Miss.
        MISS = PERF_MEM_SNOOP_MISS;
        /// Hit, modified.
        HITM = PERF_MEM_SNOOP_HITM;
    }
}

field_flags! {
    /// More of what snooping other caches found.
    MemSnoopX {
        /// Forwarded.
        FWD = PERF_MEM_SNOOPX_FWD;
        /// Transferred from a peer.
        PEER = PERF_MEM_SNOOPX_PEER;
    }
}

field_flags! {
    /// Whether the access was locked.
    MemLock {
        /// Unknown.
        NA = PERF_MEM_LOCK_NA;
        /// Locked.
        LOCKED = PERF_MEM_LOCK_LOCKED;
    }
}

field_flags! {
    /// How the address was translated.
    MemTlb {
        /// Unknown.
        NA = PERF_MEM_TLB_NA;
        /// Hit.
        HIT = PERF_MEM_TLB_HIT;
        /// Miss.
        MISS = PERF_MEM_TLB_MISS;
        /// First level.
        L1 = PERF_MEM_TLB_L1;
        /// Second level.
        L2 = PERF_MEM_TLB_L2;
        /// Hardware page-table walker.
        WK = PERF_MEM_TLB_WK;
        /// The kernel's fault handler.
        OS = PERF_MEM_TLB_OS;
    }
}

field_flags! {
    /// What held the access up.
    MemBlock {
        /// Unknown.
        NA = PERF_MEM_BLK_NA;
        /// Data could not be forwarded.
        DATA = PERF_MEM_BLK_DATA;
        /// Addresses conflicted.
        ADDR = PERF_MEM_BLK_ADDR;
    }
}

/// Where the data of a sampled access came from (`union perf_mem_data_src`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataSource(
    /// As the kernel wrote it.
    pub u64,
);

impl DataSource {
    /// The kernel declares the bit-fields in such an order that they are in one place on either
    /// byte order.
    fn bits(self, shift: u32, width: u32) -> u32 {
        ((self.0 >> shift) & ((1 << width) - 1)) as u32
    }

    /// What the instruction did.
    pub fn op(self) -> MemOp {
        MemOp::from_bits_retain(self.bits(sys::PERF_MEM_OP_SHIFT, 5))
    }

    /// Level of the memory hierarchy, in the older encoding.
    pub fn level(self) -> MemLevel {
        MemLevel::from_bits_retain(self.bits(sys::PERF_MEM_LVL_SHIFT, 14))
    }

    /// What snooping other caches found.
    pub fn snoop(self) -> MemSnoop {
        MemSnoop::from_bits_retain(self.bits(sys::PERF_MEM_SNOOP_SHIFT, 5))
    }

    /// Whether the access was locked.
    pub fn lock(self) -> MemLock {
        MemLock::from_bits_retain(self.bits(sys::PERF_MEM_LOCK_SHIFT, 2))
    }

    /// How the address was translated.
    pub fn tlb(self) -> MemTlb {
        MemTlb::from_bits_retain(self.bits(sys::PERF_MEM_TLB_SHIFT, 7))
    }

    /// Level of the memory hierarchy, in the newer encoding: `PERF_MEM_LVLNUM_*`.
    pub fn level_number(self) -> u32 {
        self.bits(sys::PERF_MEM_LVLNUM_SHIFT, 4)
    }

    /// Whether that level is remote.
    pub fn is_remote(self) -> bool {
        self.bits(sys::PERF_MEM_REMOTE_SHIFT, 1) != 0
    }

    /// More of what snooping other caches found.
    pub fn snoop_x(self) -> MemSnoopX {
        MemSnoopX::from_bits_retain(self.bits(sys::PERF_MEM_SNOOPX_SHIFT, 2))
    }

    /// What held the access up.
    pub fn block(self) -> MemBlock {
        MemBlock::from_bits_retain(self.bits(sys::PERF_MEM_BLK_SHIFT, 3))
    }

    /// How far the data came: `PERF_MEM_HOPS_*`.
    pub fn hops(self) -> u32 {
        self.bits(sys::PERF_MEM_HOPS_SHIFT, 3)
    }

    /// Which region of cache or memory: `PERF_MEM_REGION_*`.
    pub fn region(self) -> u32 {
        self.bits(sys::PERF_MEM_REGION_SHIFT, 5)
    }
}

bitflags! {
    /// Why a hardware transaction aborted (`PERF_TXN_*`). The upper half is the abort code.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Transaction: u64 {
        /// It came from lock elision.
        const ELISION = sys::PERF_TXN_ELISION;
        /// It came from a transaction.
        const TRANSACTION = sys::PERF_TXN_TRANSACTION;
        /// The instruction is related to the abort.
        const SYNC = sys::PERF_TXN_SYNC;
        /// The instruction is not related to the abort.
        const ASYNC = sys::PERF_TXN_ASYNC;
        /// A retry may succeed.
        const RETRY = sys::PERF_TXN_RETRY;
        /// A conflict.
        const CONFLICT = sys::PERF_TXN_CONFLICT;
        /// Too much was written.
        const CAPACITY_WRITE = sys::PERF_TXN_CAPACITY_WRITE;
        /// Too much was read.
        const CAPACITY_READ = sys::PERF_TXN_CAPACITY_READ;
    }
}

impl Transaction {
    /// What the program gave when it aborted.
    pub fn abort_code(self) -> u32 {
        (self.bits() >> sys::PERF_TXN_ABORT_SHIFT) as u32
    }
}
