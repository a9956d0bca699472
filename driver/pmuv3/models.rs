// SPDX-License-Identifier: GPL-2.0

//! The CPU models that a device tree can name, free of the kernel's types.

use core::ffi::CStr;

use crate::{
    cache::{
        Cache::*,
        CacheEvent,
        Operation::*,
        Outcome::*, //
    },
    evtyper::EventId, //
};

/// A CPU model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    /// The name of its PMU in sysfs, that of the C driver for the same device.
    pub(crate) name: &'static CStr,
    /// What perf's cache events are on this model that no common event of the architecture is.
    pub(crate) cache: &'static [CacheEvent],
}

/// Hands the compatible strings and what they stand for to the macro `$then`.
macro_rules! each_model {
    ($then:ident) => {
        $then! {
            c"arm,armv8-pmuv3" => c"armv8_pmuv3", COMMON;
            c"arm,c1-nano-pmu" => c"armv8_c1_nano", COMMON;
            c"arm,c1-premium-pmu" => c"armv8_c1_premium", COMMON;
            c"arm,c1-pro-pmu" => c"armv8_c1_pro", COMMON;
            c"arm,c1-ultra-pmu" => c"armv8_c1_ultra", COMMON;
            c"arm,cortex-a34-pmu" => c"armv8_cortex_a34", COMMON;
            c"arm,cortex-a35-pmu" => c"armv8_cortex_a35", CORTEX_A53;
            c"arm,cortex-a53-pmu" => c"armv8_cortex_a53", CORTEX_A53;
            c"arm,cortex-a55-pmu" => c"armv8_cortex_a55", COMMON;
            c"arm,cortex-a57-pmu" => c"armv8_cortex_a57", CORTEX_A57;
            c"arm,cortex-a65-pmu" => c"armv8_cortex_a65", COMMON;
            c"arm,cortex-a72-pmu" => c"armv8_cortex_a72", CORTEX_A57;
            c"arm,cortex-a73-pmu" => c"armv8_cortex_a73", CORTEX_A73;
            c"arm,cortex-a75-pmu" => c"armv8_cortex_a75", COMMON;
            c"arm,cortex-a76-pmu" => c"armv8_cortex_a76", COMMON;
            c"arm,cortex-a77-pmu" => c"armv8_cortex_a77", COMMON;
            c"arm,cortex-a78-pmu" => c"armv8_cortex_a78", COMMON;
            c"arm,cortex-a320-pmu" => c"armv9_cortex_a320", COMMON;
            c"arm,cortex-a510-pmu" => c"armv9_cortex_a510", COMMON;
            c"arm,cortex-a520-pmu" => c"armv9_cortex_a520", COMMON;
            c"arm,cortex-a520ae-pmu" => c"armv9_cortex_a520ae", COMMON;
            c"arm,cortex-a710-pmu" => c"armv9_cortex_a710", COMMON;
            c"arm,cortex-a715-pmu" => c"armv9_cortex_a715", COMMON;
            c"arm,cortex-a720-pmu" => c"armv9_cortex_a720", COMMON;
            c"arm,cortex-a720ae-pmu" => c"armv9_cortex_a720ae", COMMON;
            c"arm,cortex-a725-pmu" => c"armv9_cortex_a725", COMMON;
            c"arm,cortex-x1-pmu" => c"armv8_cortex_x1", COMMON;
            c"arm,cortex-x2-pmu" => c"armv9_cortex_x2", COMMON;
            c"arm,cortex-x3-pmu" => c"armv9_cortex_x3", COMMON;
            c"arm,cortex-x4-pmu" => c"armv9_cortex_x4", COMMON;
            c"arm,cortex-x925-pmu" => c"armv9_cortex_x925", COMMON;
            c"arm,neoverse-e1-pmu" => c"armv8_neoverse_e1", COMMON;
            c"arm,neoverse-n1-pmu" => c"armv8_neoverse_n1", COMMON;
            c"arm,neoverse-n2-pmu" => c"armv9_neoverse_n2", COMMON;
            c"arm,neoverse-n3-pmu" => c"armv9_neoverse_n3", COMMON;
            c"arm,neoverse-v1-pmu" => c"armv8_neoverse_v1", COMMON;
            c"arm,neoverse-v2-pmu" => c"armv8_neoverse_v2", COMMON;
            c"arm,neoverse-v3-pmu" => c"armv8_neoverse_v3", COMMON;
            c"arm,neoverse-v3ae-pmu" => c"armv8_neoverse_v3ae", COMMON;
            c"arm,rainier-pmu" => c"armv8_rainier", COMMON;
            c"cavium,thunder-pmu" => c"armv8_cavium_thunder", THUNDERX;
            c"brcm,vulcan-pmu" => c"armv8_brcm_vulcan", VULCAN;
            c"nvidia,carmel-pmu" => c"armv8_nvidia_carmel", COMMON;
            c"nvidia,denver-pmu" => c"armv8_nvidia_denver", COMMON;
            c"samsung,mongoose-pmu" => c"armv8_samsung_mongoose", COMMON;
        }
    };
}
pub(crate) use each_model;

/// Any model: ACPI does not say which one it is.
pub(crate) const ACPI: Model = Model {
    name: c"armv8_pmuv3",
    cache: COMMON,
};

/// Models that count perf's cache events as common events of the architecture, or not at all.
pub(crate) const COMMON: &[CacheEvent] = &[];

const L1D_CACHE_RD: EventId = EventId(0x40);
const L1D_CACHE_WR: EventId = EventId(0x41);
const L1D_CACHE_REFILL_RD: EventId = EventId(0x42);
const L1D_CACHE_REFILL_WR: EventId = EventId(0x43);
const L1D_TLB_REFILL_RD: EventId = EventId(0x4c);
const L1D_TLB_REFILL_WR: EventId = EventId(0x4d);
const L1D_TLB_RD: EventId = EventId(0x4e);
const L1D_TLB_WR: EventId = EventId(0x4f);
const BUS_ACCESS_RD: EventId = EventId(0x60);
const BUS_ACCESS_WR: EventId = EventId(0x61);

/// Arm Cortex-A35 and Cortex-A53.
pub(crate) const CORTEX_A53: &[CacheEvent] = &[
    // PREFETCH_LINEFILL
    CacheEvent(L1d, Prefetch, Miss, EventId(0xc2)),
    CacheEvent(Node, Read, Access, BUS_ACCESS_RD),
    CacheEvent(Node, Write, Access, BUS_ACCESS_WR),
];

/// Arm Cortex-A57 and Cortex-A72.
pub(crate) const CORTEX_A57: &[CacheEvent] = &[
    CacheEvent(L1d, Read, Access, L1D_CACHE_RD),
    CacheEvent(L1d, Read, Miss, L1D_CACHE_REFILL_RD),
    CacheEvent(L1d, Write, Access, L1D_CACHE_WR),
    CacheEvent(L1d, Write, Miss, L1D_CACHE_REFILL_WR),
    CacheEvent(Dtlb, Read, Miss, L1D_TLB_REFILL_RD),
    CacheEvent(Dtlb, Write, Miss, L1D_TLB_REFILL_WR),
    CacheEvent(Node, Read, Access, BUS_ACCESS_RD),
    CacheEvent(Node, Write, Access, BUS_ACCESS_WR),
];

/// Arm Cortex-A73.
pub(crate) const CORTEX_A73: &[CacheEvent] = &[
    CacheEvent(L1d, Read, Access, L1D_CACHE_RD),
    CacheEvent(L1d, Write, Access, L1D_CACHE_WR),
];

/// Cavium ThunderX.
pub(crate) const THUNDERX: &[CacheEvent] = &[
    CacheEvent(L1d, Read, Access, L1D_CACHE_RD),
    CacheEvent(L1d, Read, Miss, L1D_CACHE_REFILL_RD),
    CacheEvent(L1d, Write, Access, L1D_CACHE_WR),
    // L1D_CACHE_MISS_ST, L1D_CACHE_PREF_ACCESS, L1D_CACHE_PREF_MISS
    CacheEvent(L1d, Write, Miss, EventId(0xe9)),
    CacheEvent(L1d, Prefetch, Access, EventId(0xea)),
    CacheEvent(L1d, Prefetch, Miss, EventId(0xeb)),
    // L1I_CACHE_PREF_ACCESS, L1I_CACHE_PREF_MISS
    CacheEvent(L1i, Prefetch, Access, EventId(0xec)),
    CacheEvent(L1i, Prefetch, Miss, EventId(0xed)),
    CacheEvent(Dtlb, Read, Access, L1D_TLB_RD),
    CacheEvent(Dtlb, Read, Miss, L1D_TLB_REFILL_RD),
    CacheEvent(Dtlb, Write, Access, L1D_TLB_WR),
    CacheEvent(Dtlb, Write, Miss, L1D_TLB_REFILL_WR),
];

/// Broadcom Vulcan, which became Cavium ThunderX2.
pub(crate) const VULCAN: &[CacheEvent] = &[
    CacheEvent(L1d, Read, Access, L1D_CACHE_RD),
    CacheEvent(L1d, Read, Miss, L1D_CACHE_REFILL_RD),
    CacheEvent(L1d, Write, Access, L1D_CACHE_WR),
    CacheEvent(L1d, Write, Miss, L1D_CACHE_REFILL_WR),
    CacheEvent(Dtlb, Read, Access, L1D_TLB_RD),
    CacheEvent(Dtlb, Write, Access, L1D_TLB_WR),
    CacheEvent(Dtlb, Read, Miss, L1D_TLB_REFILL_RD),
    CacheEvent(Dtlb, Write, Miss, L1D_TLB_REFILL_WR),
    CacheEvent(Node, Read, Access, BUS_ACCESS_RD),
    CacheEvent(Node, Write, Access, BUS_ACCESS_WR),
];
