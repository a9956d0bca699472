// SPDX-License-Identifier: GPL-2.0

//! What PMMIR_EL1 and PMCEID<n>_EL0 say about the machine, free of the kernel's types.

use crate::evtyper::EventId;

/// PMMIR_EL1, Performance Monitors Machine Identification Register; 0 before FEAT_PMUv3p4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pmmir(u64);

impl Pmmir {
    /// Returns the register with these bits.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// SLOTS: the most that STALL_SLOT grows by in a cycle.
    pub(crate) const fn slots(self) -> u64 {
        self.0 & 0xff
    }

    /// BUS_SLOTS: the most that BUS_ACCESS grows by in a BUS_CYCLES cycle.
    pub(crate) const fn bus_slots(self) -> u64 {
        (self.0 >> 8) & 0xff
    }

    /// BUS_WIDTH: bytes that a bus access moves, 0 when unknown. The register holds the logarithm
    /// plus one, 3 (4 bytes) to 12 (2048 bytes); other values are reserved.
    pub(crate) const fn bus_width(self) -> u64 {
        match (self.0 >> 16) & 0xf {
            log @ 3..=12 => 1 << (log - 1),
            _ => 0,
        }
    }

    /// The largest threshold: THWIDTH bits, at most 12; 0 without FEAT_PMUv3_TH.
    pub(crate) const fn threshold_max(self) -> u16 {
        let width = (self.0 >> 20) & 0xf;
        // At most 15 bits, so it fits.
        ((1u64 << width) - 1) as u16
    }
}

/// PMCEID0_EL0 and PMCEID1_EL0: which common events the PE implements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pmceid {
    /// Events 0x0000 to 0x003f.
    common: u64,
    /// Events 0x4000 to 0x403f.
    extended: u64,
}

impl Pmceid {
    /// The number of events in each of the two ranges.
    const RANGE: u16 = 64;

    /// The first event of the range that FEAT_PMUv3p1 added.
    const EXTENDED: u16 = 0x4000;

    /// Combines the two registers: each has half of either range.
    pub(crate) const fn new(pmceid0: u64, pmceid1: u64) -> Self {
        const LOW: u64 = 0xffff_ffff;
        Self {
            common: pmceid0 & LOW | (pmceid1 & LOW) << 32,
            extended: pmceid0 >> 32 | (pmceid1 >> 32) << 32,
        }
    }

    /// Returns whether `event` is a common event below 0x40 that the PE implements.
    pub(crate) const fn has_common(self, event: EventId) -> bool {
        event.0 < Self::RANGE && (self.common >> event.0) & 1 == 1
    }

    /// Returns whether `event` is a common event of either range that the PE implements.
    pub(crate) const fn has(self, event: EventId) -> bool {
        let extended = event.0.wrapping_sub(Self::EXTENDED);
        self.has_common(event) || extended < Self::RANGE && (self.extended >> extended) & 1 == 1
    }
}

#[cfg(any(CONFIG_KUNIT, test))]
#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(rust_pmuv3_caps))]
mod tests {
    use super::*;

    #[test]
    fn bus_width_is_a_logarithm_plus_one() {
        assert_eq!(Pmmir(0).bus_width(), 0);
        assert_eq!(Pmmir(2 << 16).bus_width(), 0);
        assert_eq!(Pmmir(3 << 16).bus_width(), 4);
        assert_eq!(Pmmir(12 << 16).bus_width(), 2048);
        assert_eq!(Pmmir(13 << 16).bus_width(), 0);
    }

    #[test]
    fn threshold_max_has_thwidth_bits() {
        assert_eq!(Pmmir(0).threshold_max(), 0);
        assert_eq!(Pmmir(12 << 20).threshold_max(), 0xfff);
    }

    #[test]
    fn each_register_has_half_of_either_range() {
        let pmceid = Pmceid::new(1 << 0x11 | 1 << (32 + 4), 1 << (0x23 - 32) | 1 << (32 + 1));
        assert!(pmceid.has(EventId(0x11)));
        assert!(pmceid.has(EventId(0x23)));
        assert!(pmceid.has(EventId(0x4004)));
        assert!(pmceid.has(EventId(0x4021)));
        assert!(!pmceid.has_common(EventId(0x4004)));
        assert!(!pmceid.has(EventId(0x12)));
        assert!(!pmceid.has(EventId(0x4005)));
        assert!(!pmceid.has(EventId(0x4040)));
        assert!(!pmceid.has(EventId(0x40)));
    }
}
