// SPDX-License-Identifier: GPL-2.0

//! What an event counter counts: the value of PMEVTYPER<n>_EL0, free of the kernel's types.
//!
//! The register holds the event number, the exception levels that do not count and, with
//! FEAT_PMUv3_TH, a threshold that the event's increment is compared with in each cycle.
//! PMCCFILTR_EL0 and PMICFILTR_EL0 of the fixed counters have the filter bits in the same places.

use crate::refusal::Refusal;

/// The number of an event as PMEVTYPER<n>_EL0.evtCount holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId(pub(crate) u16);

/// A value for PMEVTYPER<n>_EL0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pmevtyper(u64);

impl Pmevtyper {
    /// P: do not count at EL1.
    const P: u64 = 1 << 31;
    /// U: do not count at EL0.
    const U: u64 = 1 << 30;
    /// NSH: count at EL2.
    const NSH: u64 = 1 << 27;
    /// evtCount: the event number.
    const EVT_COUNT: u64 = 0xffff;
    /// TH: the threshold.
    const TH_SHIFT: u32 = 32;
    const TH: u64 = 0xfff << Self::TH_SHIFT;
    /// TC: how the increment is compared with the threshold, and whether the counter then grows by
    /// the increment or by one.
    const TC_SHIFT: u32 = 61;
    const TC: u64 = 0b111 << Self::TC_SHIFT;
    /// All bits that this driver ever sets.
    const USED: u64 = Self::P | Self::U | Self::NSH | Self::EVT_COUNT | Self::TH | Self::TC;

    /// Counts `event` at EL0 and EL1, without a threshold.
    pub(crate) const fn new(event: EventId) -> Self {
        Self(event.0 as u64)
    }

    /// The upper half of a pair: one for each overflow of the even counter below. Whether an
    /// exception level counts is up to that counter, so this one counts at all of them.
    pub(crate) const CHAIN: Self = Self(0x1e | Self::NSH);

    /// Returns the register value with these bits; those that this driver never sets are dropped.
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits & Self::USED)
    }

    /// Returns the register value.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the event number.
    #[inline]
    pub(crate) const fn event(self) -> EventId {
        // The mask leaves just the 16 bits.
        EventId((self.0 & Self::EVT_COUNT) as u16)
    }

    /// Returns whether the event's increment is compared with a threshold.
    #[inline]
    pub(crate) const fn has_threshold(self) -> bool {
        self.0 & Self::TH != 0
    }

    /// Returns just the exception-level filter, for PMCCFILTR_EL0 and PMICFILTR_EL0.
    #[inline]
    pub(crate) const fn filter_bits(self) -> u64 {
        self.0 & (Self::P | Self::U | Self::NSH)
    }

    /// Returns the value with the exception levels filtered.
    pub(crate) const fn with_filter(self, filter: Filter) -> Self {
        Self(self.0 | filter.0)
    }

    /// Returns the value with a threshold.
    pub(crate) const fn with_threshold(self, threshold: Threshold) -> Self {
        Self(
            self.0
                | ((threshold.value as u64) << Self::TH_SHIFT) & Self::TH
                | ((threshold.control as u64) << Self::TC_SHIFT) & Self::TC,
        )
    }
}

/// The exception level that the kernel runs at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelLevel {
    /// EL1: a guest, or a host without the virtualization host extensions (VHE).
    El1,
    /// EL2: the kernel is the hypervisor; EL1 is there for guests only.
    El2,
}

/// The exclude bits of a `perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exclude {
    /// Leave out user space.
    pub(crate) user: bool,
    /// Leave out the kernel.
    pub(crate) kernel: bool,
    /// Leave out the hypervisor.
    pub(crate) hv: bool,
    /// Leave out the time when the CPU idles.
    pub(crate) idle: bool,
    /// Leave out the host.
    pub(crate) host: bool,
    /// Leave out guests.
    pub(crate) guest: bool,
}

/// The exception levels that do not count, as the bits P, U and NSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter(u64);

impl Filter {
    /// Returns the filter for what an event excludes.
    ///
    /// At EL2 the kernel is the hypervisor, so there is none to be excluded by `exclude_hv`, and
    /// host user space runs at EL0 with the same filter bit as guest user space.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotSupported`] for `exclude_idle`: the PMU does not know idle time.
    pub(crate) fn new(exclude: Exclude, kernel: KernelLevel) -> Result<Self, Refusal> {
        if exclude.idle {
            return Err(Refusal::NotSupported);
        }
        let (el0, el1, el2) = match kernel {
            KernelLevel::El1 => (exclude.user, exclude.kernel, exclude.hv || exclude.host),
            KernelLevel::El2 => (
                exclude.user || exclude.host,
                exclude.kernel || exclude.guest,
                exclude.kernel || exclude.host,
            ),
        };
        let bit = |set, bit| if set { bit } else { 0 };
        Ok(Self(
            bit(el0, Pmevtyper::U) | bit(el1, Pmevtyper::P) | bit(!el2, Pmevtyper::NSH),
        ))
    }
}

/// A threshold of FEAT_PMUv3_TH: what the event's increment in a cycle is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threshold {
    /// PMEVTYPER<n>_EL0.TH, 1 to [`threshold_max`](crate::caps::Pmmir::threshold_max).
    value: u16,
    /// PMEVTYPER<n>_EL0.TC, 0 to 7.
    control: u8,
}

impl Threshold {
    /// Returns the threshold that an event asks for, `None` when its value is 0.
    ///
    /// `compare` (0 to 3) and `count` (0 or 1) are the two parts of TC that perf keeps apart.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] when `value` is more than `max`, which is 0 without FEAT_PMUv3_TH.
    pub(crate) fn new(
        value: u64,
        compare: u64,
        count: u64,
        max: u16,
    ) -> Result<Option<Self>, Refusal> {
        if value > u64::from(max) {
            return Err(Refusal::Invalid);
        }
        if value == 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            // Not more than `max`, so it fits.
            value: value as u16,
            // Two bits and one bit.
            control: ((compare & 3) << 1 | count & 1) as u8,
        }))
    }
}

#[cfg(any(CONFIG_KUNIT, test))]
#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(rust_pmuv3_evtyper))]
mod tests {
    use super::*;

    fn bits(exclude: Exclude, kernel: KernelLevel) -> u64 {
        Filter::new(exclude, kernel).map_or(u64::MAX, |filter| filter.0)
    }

    #[test]
    fn nothing_excluded_counts_everywhere() {
        assert_eq!(bits(Exclude::default(), KernelLevel::El1), Pmevtyper::NSH);
        assert_eq!(bits(Exclude::default(), KernelLevel::El2), Pmevtyper::NSH);
    }

    #[test]
    fn exclude_kernel_covers_the_kernels_level() {
        let exclude = Exclude {
            kernel: true,
            ..Exclude::default()
        };
        assert_eq!(
            bits(exclude, KernelLevel::El1),
            Pmevtyper::P | Pmevtyper::NSH
        );
        assert_eq!(bits(exclude, KernelLevel::El2), Pmevtyper::P);
    }

    #[test]
    fn exclude_hv_is_void_when_the_kernel_is_the_hypervisor() {
        let exclude = Exclude {
            hv: true,
            ..Exclude::default()
        };
        assert_eq!(bits(exclude, KernelLevel::El1), 0);
        assert_eq!(bits(exclude, KernelLevel::El2), Pmevtyper::NSH);
    }

    #[test]
    fn exclude_host_leaves_el1_to_guests_under_vhe() {
        let exclude = Exclude {
            host: true,
            ..Exclude::default()
        };
        assert_eq!(bits(exclude, KernelLevel::El1), 0);
        assert_eq!(bits(exclude, KernelLevel::El2), Pmevtyper::U);
    }

    #[test]
    fn exclude_guest_leaves_out_el1_under_vhe() {
        let exclude = Exclude {
            guest: true,
            ..Exclude::default()
        };
        assert_eq!(bits(exclude, KernelLevel::El1), Pmevtyper::NSH);
        assert_eq!(
            bits(exclude, KernelLevel::El2),
            Pmevtyper::P | Pmevtyper::NSH
        );
    }

    #[test]
    fn exclude_idle_is_refused() {
        let exclude = Exclude {
            idle: true,
            ..Exclude::default()
        };
        assert_eq!(
            Filter::new(exclude, KernelLevel::El1),
            Err(Refusal::NotSupported)
        );
    }

    #[test]
    fn a_threshold_above_the_widest_is_invalid() {
        assert_eq!(Threshold::new(1, 0, 0, 0), Err(Refusal::Invalid));
        assert_eq!(Threshold::new(0, 3, 1, 0), Ok(None));
        let threshold = Threshold::new(0xfff, 0b10, 1, 0xfff);
        let typer = match threshold {
            Ok(Some(threshold)) => Pmevtyper::new(EventId(0x11)).with_threshold(threshold),
            _ => Pmevtyper(0),
        };
        assert_eq!(typer.bits(), 0b101 << 61 | 0xfff << 32 | 0x11);
        assert!(typer.has_threshold());
    }
}
