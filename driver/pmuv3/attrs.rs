// SPDX-License-Identifier: GPL-2.0

//! The names of the events in sysfs, free of the kernel's types.

use core::ffi::CStr;

use crate::evtyper::EventId;

/// Every event that sysfs may name, by number. PMCEID<n>_EL0 decides which of them are there.
///
/// SW_INCR (0x00) is not among them, since user space cannot write PMSWINC_EL0, nor is CHAIN
/// (0x1e), which makes sense in a pair only.
pub(crate) const EVENTS: [(&CStr, EventId); 88] = [
    (c"l1i_cache_refill", EventId(0x0001)),
    (c"l1i_tlb_refill", EventId(0x0002)),
    (c"l1d_cache_refill", EventId(0x0003)),
    (c"l1d_cache", EventId(0x0004)),
    (c"l1d_tlb_refill", EventId(0x0005)),
    (c"ld_retired", EventId(0x0006)),
    (c"st_retired", EventId(0x0007)),
    (c"inst_retired", EventId(0x0008)),
    (c"exc_taken", EventId(0x0009)),
    (c"exc_return", EventId(0x000a)),
    (c"cid_write_retired", EventId(0x000b)),
    (c"pc_write_retired", EventId(0x000c)),
    (c"br_immed_retired", EventId(0x000d)),
    (c"br_return_retired", EventId(0x000e)),
    (c"unaligned_ldst_retired", EventId(0x000f)),
    (c"br_mis_pred", EventId(0x0010)),
    (c"cpu_cycles", EventId(0x0011)),
    (c"br_pred", EventId(0x0012)),
    (c"mem_access", EventId(0x0013)),
    (c"l1i_cache", EventId(0x0014)),
    (c"l1d_cache_wb", EventId(0x0015)),
    (c"l2d_cache", EventId(0x0016)),
    (c"l2d_cache_refill", EventId(0x0017)),
    (c"l2d_cache_wb", EventId(0x0018)),
    (c"bus_access", EventId(0x0019)),
    (c"memory_error", EventId(0x001a)),
    (c"inst_spec", EventId(0x001b)),
    (c"ttbr_write_retired", EventId(0x001c)),
    (c"bus_cycles", EventId(0x001d)),
    (c"l1d_cache_allocate", EventId(0x001f)),
    (c"l2d_cache_allocate", EventId(0x0020)),
    (c"br_retired", EventId(0x0021)),
    (c"br_mis_pred_retired", EventId(0x0022)),
    (c"stall_frontend", EventId(0x0023)),
    (c"stall_backend", EventId(0x0024)),
    (c"l1d_tlb", EventId(0x0025)),
    (c"l1i_tlb", EventId(0x0026)),
    (c"l2i_cache", EventId(0x0027)),
    (c"l2i_cache_refill", EventId(0x0028)),
    (c"l3d_cache_allocate", EventId(0x0029)),
    (c"l3d_cache_refill", EventId(0x002a)),
    (c"l3d_cache", EventId(0x002b)),
    (c"l3d_cache_wb", EventId(0x002c)),
    (c"l2d_tlb_refill", EventId(0x002d)),
    (c"l2i_tlb_refill", EventId(0x002e)),
    (c"l2d_tlb", EventId(0x002f)),
    (c"l2i_tlb", EventId(0x0030)),
    (c"remote_access", EventId(0x0031)),
    (c"ll_cache", EventId(0x0032)),
    (c"ll_cache_miss", EventId(0x0033)),
    (c"dtlb_walk", EventId(0x0034)),
    (c"itlb_walk", EventId(0x0035)),
    (c"ll_cache_rd", EventId(0x0036)),
    (c"ll_cache_miss_rd", EventId(0x0037)),
    (c"remote_access_rd", EventId(0x0038)),
    (c"l1d_cache_lmiss_rd", EventId(0x0039)),
    (c"op_retired", EventId(0x003a)),
    (c"op_spec", EventId(0x003b)),
    (c"stall", EventId(0x003c)),
    (c"stall_slot_backend", EventId(0x003d)),
    (c"stall_slot_frontend", EventId(0x003e)),
    (c"stall_slot", EventId(0x003f)),
    (c"sample_pop", EventId(0x4000)),
    (c"sample_feed", EventId(0x4001)),
    (c"sample_filtrate", EventId(0x4002)),
    (c"sample_collision", EventId(0x4003)),
    (c"cnt_cycles", EventId(0x4004)),
    (c"stall_backend_mem", EventId(0x4005)),
    (c"l1i_cache_lmiss", EventId(0x4006)),
    (c"l2d_cache_lmiss_rd", EventId(0x4009)),
    (c"l2i_cache_lmiss", EventId(0x400a)),
    (c"l3d_cache_lmiss_rd", EventId(0x400b)),
    (c"trb_wrap", EventId(0x400c)),
    (c"trb_trig", EventId(0x400e)),
    (c"trcextout0", EventId(0x4010)),
    (c"trcextout1", EventId(0x4011)),
    (c"trcextout2", EventId(0x4012)),
    (c"trcextout3", EventId(0x4013)),
    (c"cti_trigout4", EventId(0x4018)),
    (c"cti_trigout5", EventId(0x4019)),
    (c"cti_trigout6", EventId(0x401a)),
    (c"cti_trigout7", EventId(0x401b)),
    (c"ldst_align_lat", EventId(0x4020)),
    (c"ld_align_lat", EventId(0x4021)),
    (c"st_align_lat", EventId(0x4022)),
    (c"mem_access_checked", EventId(0x4024)),
    (c"mem_access_checked_rd", EventId(0x4025)),
    (c"mem_access_checked_wr", EventId(0x4026)),
];

#[cfg(any(CONFIG_KUNIT, test))]
#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(rust_pmuv3_attrs))]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_named_once() {
        for pair in EVENTS.windows(2) {
            assert!(pair[0].1 .0 < pair[1].1 .0);
        }
    }

    #[test]
    fn what_is_useless_alone_is_not_named() {
        assert!(EVENTS
            .iter()
            .all(|(_, event)| event.0 != 0 && event.0 != 0x1e));
    }
}
