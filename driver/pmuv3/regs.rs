// SPDX-License-Identifier: GPL-2.0

//! The system registers of PMUv3, and the only `unsafe` code of this driver.
//!
//! Registers carry their names from the Arm Architecture Reference Manual for A-profile
//! (DDI 0487 L.b), section D24.5 "Performance Monitors registers"; ID_AA64DFR<n>_EL1 and MIDR_EL1
//! are in D24.2 "General system control registers", CurrentEL in C5.2 "Special-purpose registers".
//! D13 "The Performance Monitors Extension" says how they work together.
//!
//! Glossary:
//!
//! - PE: processing element, which Linux calls a CPU. Each has a PMU of its own, and every register
//!   here is that of the PE that executes the access.
//! - Context synchronization: a write takes effect for later instructions only after an ISB or an
//!   exception entry or return. [`Registers`] leaves the [`isb`]s to its user, because most
//!   sequences of writes need just one.
//!
//! # Why these functions are safe
//!
//! None of the registers is about memory, so no value in them can break Rust's rules. What an access
//! can do is trap, when the PE does not have the register. [`Registers`] is therefore a token that
//! only [`Registers::probe`] makes, after it has found a PMU, and that knows which counters there
//! are; the registers of one of these are reached by the token [`CounterRegisters`]. Both are used
//! on all CPUs that the firmware counts to the PMU; before that is done on one of them,
//! [`Registers::work_here`] must have been asked there.

use core::arch::asm;

use kernel::bitfield;

use crate::{
    caps::{
        Pmceid,
        Pmmir, //
    },
    counters::{
        Counter,
        CounterSet, //
    },
    evtyper::{
        KernelLevel,
        Pmevtyper, //
    },
    layout::{
        CycleCounter,
        EventCounters, //
    }, //
};

/// Reads a system register. Unsafe: the PE must have it.
macro_rules! mrs {
    ($register:expr) => {{
        let value: u64;
        asm!(
            concat!("mrs {}, ", $register),
            out(reg) value,
            options(nomem, nostack, preserves_flags),
        );
        value
    }};
}

/// Writes a `u64` to a system register. Unsafe: the PE must have it.
macro_rules! msr {
    ($register:expr, $value:expr) => {
        asm!(
            concat!("msr ", $register, ", {}"),
            in(reg) $value,
            options(nomem, nostack, preserves_flags),
        )
    };
}

/// Picks the instruction for an event counter: its number is part of the register's name.
///
/// The compiler makes a jump table of it. The alternative, PMSELR_EL0 with PMXEVCNTR_EL0, needs a
/// context synchronization for each access and is not safe against interrupts.
macro_rules! event_counter {
    ($index:expr, $access:ident $(, $value:expr)?; _ => $other:expr) => {
        match $index {
            0 => $access!("0" $(, $value)?),
            1 => $access!("1" $(, $value)?),
            2 => $access!("2" $(, $value)?),
            3 => $access!("3" $(, $value)?),
            4 => $access!("4" $(, $value)?),
            5 => $access!("5" $(, $value)?),
            6 => $access!("6" $(, $value)?),
            7 => $access!("7" $(, $value)?),
            8 => $access!("8" $(, $value)?),
            9 => $access!("9" $(, $value)?),
            10 => $access!("10" $(, $value)?),
            11 => $access!("11" $(, $value)?),
            12 => $access!("12" $(, $value)?),
            13 => $access!("13" $(, $value)?),
            14 => $access!("14" $(, $value)?),
            15 => $access!("15" $(, $value)?),
            16 => $access!("16" $(, $value)?),
            17 => $access!("17" $(, $value)?),
            18 => $access!("18" $(, $value)?),
            19 => $access!("19" $(, $value)?),
            20 => $access!("20" $(, $value)?),
            21 => $access!("21" $(, $value)?),
            22 => $access!("22" $(, $value)?),
            23 => $access!("23" $(, $value)?),
            24 => $access!("24" $(, $value)?),
            25 => $access!("25" $(, $value)?),
            26 => $access!("26" $(, $value)?),
            27 => $access!("27" $(, $value)?),
            28 => $access!("28" $(, $value)?),
            29 => $access!("29" $(, $value)?),
            30 => $access!("30" $(, $value)?),
            _ => $other,
        }
    };
}

bitfield! {
    /// PMCR_EL0, Performance Monitors Control Register.
    pub(crate) struct Pmcr(u64) {
        /// N: number of event counters that this exception level may use.
        15:11 n;
        /// LP: event counters overflow at 64 bits; RES0 before FEAT_PMUv3p5.
        7:7 lp;
        /// LC: the cycle counter overflows at 64 bits.
        6:6 lc;
        /// C: write 1 to set the cycle counter to 0.
        2:2 c;
        /// P: write 1 to set the event counters to 0.
        1:1 p;
        /// E: counters that are enabled count.
        0:0 e;
    }
}

bitfield! {
    /// PMUSERENR_EL0, User Enable Register: what EL0 may do.
    pub(crate) struct Pmuserenr(u64) {
        /// UEN: reads are limited to what PMUACR_EL1 opens; RES0 before FEAT_PMUv3p9.
        4:4 uen;
        /// ER: read the event counters.
        3:3 er;
        /// CR: read the cycle counter.
        2:2 cr;
    }
}

bitfield! {
    /// ID_AA64DFR0_EL1, AArch64 Debug Feature Register 0.
    struct IdAa64dfr0(u64) {
        /// PMUVer: 0 no PMUv3, 0xf a PMU that is not PMUv3.
        11:8 pmuver;
    }
}

bitfield! {
    /// ID_AA64DFR1_EL1, AArch64 Debug Feature Register 1.
    struct IdAa64dfr1(u64) {
        /// PMICNTR: not 0 when there is the instruction counter, FEAT_PMUv3_ICNTR.
        39:36 pmicntr;
    }
}

bitfield! {
    /// MIDR_EL1, Main ID Register.
    struct Midr(u64) {
        /// Implementer: whose design the PE is.
        31:24 implementer;
        /// PartNum: which design of the implementer's.
        15:4 part;
    }
}

bitfield! {
    /// CurrentEL, Current Exception Level.
    struct CurrentEl(u64) {
        /// EL: the level.
        3:2 el;
    }
}

/// The version of the PMU architecture, as ID_AA64DFR0_EL1.PMUVer numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u64);

impl Version {
    const NOT_IMPLEMENTED: Self = Self(0b0000);
    /// FEAT_PMUv3p4: PMMIR_EL1.
    const V3P4: Self = Self(0b0101);
    /// FEAT_PMUv3p5: 64-bit event counters.
    const V3P5: Self = Self(0b0110);
    /// FEAT_PMUv3p9: PMUACR_EL1.
    const V3P9: Self = Self(0b1001);
    const IMPLEMENTATION_DEFINED: Self = Self(0b1111);

    /// Returns the version of the PE that executes this, `None` when it has no PMUv3.
    fn of_this_pe() -> Option<Self> {
        // SAFETY: Every AArch64 PE has the register, and the kernel may read it.
        let dfr0 = unsafe { mrs!("id_aa64dfr0_el1") };
        match Self(IdAa64dfr0::from_raw(dfr0).pmuver().get()) {
            Self::NOT_IMPLEMENTED | Self::IMPLEMENTATION_DEFINED => None,
            version => Some(version),
        }
    }
}

/// How user space that may read counters is kept from those that are not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserLimit {
    /// Not at all.
    Nothing,
    /// By a register, PMUACR_EL1.
    Pmuacr,
}

/// The exception level that executes this, which is the kernel's.
pub(crate) fn kernel_level() -> KernelLevel {
    // SAFETY: Every PE has the register, and the kernel may read it.
    let current_el = unsafe { mrs!("currentel") };
    match CurrentEl::from_raw(current_el).el().get() {
        2 => KernelLevel::El2,
        _ => KernelLevel::El1,
    }
}

/// Reads MIDR_EL1, Main ID Register: the design and revision of the PE that executes this.
pub(crate) fn midr_el1() -> u64 {
    // SAFETY: Every AArch64 PE has the register, and the kernel may read it.
    unsafe { mrs!("midr_el1") }
}

/// Makes the register writes before it take effect before the instructions after it.
///
/// Instruction Synchronization Barrier. It is a barrier for the compiler too.
#[inline]
pub(crate) fn isb() {
    // SAFETY: The instruction has no effect but on the order of others.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}

/// The registers of a PMUv3, and which of them there are.
///
/// # Invariants
///
/// The PE that executed [`Registers::probe`] has a PMUv3 of this version with these counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    version: Version,
    counters: CounterSet,
}

impl Registers {
    /// Looks for a PMUv3 in the PE that executes this.
    ///
    /// Returns `None` when there is none: its ID register says so, or a hypervisor hides it.
    pub(crate) fn probe() -> Option<Self> {
        let version = Version::of_this_pe()?;
        // SAFETY: Every PE with PMUv3 has the register.
        let pmcr = Pmcr::from_raw(unsafe { mrs!("pmcr_el0") });
        // SAFETY: Every AArch64 PE has the register, which reads as 0 where it is not allocated.
        let dfr1 = IdAa64dfr1::from_raw(unsafe { mrs!("id_aa64dfr1_el1") });

        let event_counters = CounterSet::first_event_counters(pmcr.n().cast::<u8>().get());
        let mut counters = event_counters.with(Counter::CYCLE);
        if dfr1.pmicntr().get() != 0 {
            counters = counters.with(Counter::INSTRUCTION);
        }
        // INVARIANT: The registers of the PE say so.
        Some(Self { version, counters })
    }

    /// Returns whether the PE that executes this has the registers that the token stands for.
    pub(crate) fn work_here(self) -> bool {
        Self::probe()
            .is_some_and(|here| here.version >= self.version && here.counters.covers(self.counters))
    }

    /// Returns the counters that there are.
    pub(crate) fn counters(self) -> CounterSet {
        self.counters
    }

    /// Returns how wide the event counters are when [`Registers::stopped`] is in PMCR_EL0.
    pub(crate) fn event_counters(self) -> EventCounters {
        if self.version >= Version::V3P5 {
            EventCounters::Bits64
        } else {
            EventCounters::Bits32
        }
    }

    /// Returns whether PMCCNTR_EL0 counts the same as the event CPU_CYCLES on this PE.
    pub(crate) fn cycle_counter(self) -> CycleCounter {
        /// NVIDIA Olympus: in WFI and WFE the cycle counter may go on while the event does not.
        const OLYMPUS: (u64, u64) = (0x4e, 0x010);

        let midr = Midr::from_raw(midr_el1());
        match (midr.implementer().get(), midr.part().get()) {
            OLYMPUS => CycleCounter::Avoid,
            _ => CycleCounter::Use,
        }
    }

    /// Reads PMCEID0_EL0 and PMCEID1_EL0, Performance Monitors Common Event Identification.
    pub(crate) fn pmceid(self) -> Pmceid {
        // SAFETY: By the type invariant there is a PMUv3, and each has these registers.
        let pmceid0 = unsafe { mrs!("pmceid0_el0") };
        // SAFETY: As above.
        let pmceid1 = unsafe { mrs!("pmceid1_el0") };
        Pmceid::new(pmceid0, pmceid1)
    }

    /// Reads PMMIR_EL1; 0 before FEAT_PMUv3p4, which brought it.
    pub(crate) fn pmmir(self) -> Pmmir {
        if self.version < Version::V3P4 {
            return Pmmir::default();
        }
        // SAFETY: FEAT_PMUv3p4 is implemented, and with it comes the register S3_0_C9_C14_6.
        Pmmir::from_bits(unsafe { mrs!("s3_0_c9_c14_6") })
    }

    /// Returns the value of PMCR_EL0 with all counters stopped and as wide as they can be.
    pub(crate) fn stopped(self) -> Pmcr {
        let pmcr = Pmcr::from_raw(0).with_const_lc::<1>();
        match self.event_counters() {
            EventCounters::Bits64 => pmcr.with_const_lp::<1>(),
            EventCounters::Bits32 => pmcr,
        }
    }

    /// Writes PMCR_EL0.
    ///
    /// It is a barrier for the compiler: whoever is interrupted after the PMU has been started, or
    /// before it has been stopped, has written to memory what it was to.
    #[inline]
    pub(crate) fn set_pmcr(self, pmcr: Pmcr) {
        let pmcr = pmcr.into_raw();
        // SAFETY: By the type invariant there is a PMUv3, and each has this register.
        unsafe { asm!("msr pmcr_el0, {}", in(reg) pmcr, options(nostack, preserves_flags)) };
    }

    /// Writes PMCNTENSET_EL0, Count Enable Set: the counters in `set` count while PMCR_EL0.E is 1.
    #[inline]
    pub(crate) fn set_pmcntenset(self, set: CounterSet) {
        // SAFETY: By the type invariant there is a PMUv3, and each has this register.
        unsafe { msr!("pmcntenset_el0", set.bits()) };
    }

    /// Writes PMCNTENCLR_EL0, Count Enable Clear: the counters in `set` do not count.
    #[inline]
    pub(crate) fn set_pmcntenclr(self, set: CounterSet) {
        // SAFETY: By the type invariant there is a PMUv3, and each has this register.
        unsafe { msr!("pmcntenclr_el0", set.bits()) };
    }

    /// Writes PMINTENSET_EL1, Interrupt Enable Set: overflows of the counters in `set` interrupt.
    #[inline]
    pub(crate) fn set_pmintenset(self, set: CounterSet) {
        // SAFETY: By the type invariant there is a PMUv3, and each has this register.
        unsafe { msr!("pmintenset_el1", set.bits()) };
    }

    /// Writes PMINTENCLR_EL1, Interrupt Enable Clear: overflows in `set` do not interrupt.
    #[inline]
    pub(crate) fn set_pmintenclr(self, set: CounterSet) {
        // SAFETY: By the type invariant there is a PMUv3, and each has this register.
        unsafe { msr!("pmintenclr_el1", set.bits()) };
    }

    /// Reads PMOVSCLR_EL0, Overflow Flag Status: the counters that have overflowed.
    #[inline]
    pub(crate) fn pmovsclr(self) -> CounterSet {
        // SAFETY: By the type invariant there is a PMUv3, and each has this register.
        CounterSet::from_bits(unsafe { mrs!("pmovsclr_el0") })
    }

    /// Writes PMOVSCLR_EL0: the counters in `set` have not overflowed, and no longer interrupt.
    #[inline]
    pub(crate) fn set_pmovsclr(self, set: CounterSet) {
        // SAFETY: By the type invariant there is a PMUv3, and each has this register.
        unsafe { msr!("pmovsclr_el0", set.bits()) };
    }

    /// Writes PMUSERENR_EL0, User Enable: what user space may do with the registers.
    pub(crate) fn set_pmuserenr(self, pmuserenr: Pmuserenr) {
        // SAFETY: By the type invariant there is a PMUv3, and each has this register.
        unsafe { msr!("pmuserenr_el0", pmuserenr.into_raw()) };
    }

    /// Returns how user space is kept from counters that are not its own.
    pub(crate) fn user_limit(self) -> UserLimit {
        if self.version >= Version::V3P9 {
            UserLimit::Pmuacr
        } else {
            UserLimit::Nothing
        }
    }

    /// Writes PMUACR_EL1, User Access: user space may read the counters in `set`. Without the
    /// register, before FEAT_PMUv3p9, it does nothing.
    pub(crate) fn set_pmuacr(self, set: CounterSet) {
        if self.version >= Version::V3P9 {
            // SAFETY: FEAT_PMUv3p9 is implemented, and with it comes the register S3_0_C9_C14_4.
            unsafe { msr!("s3_0_c9_c14_4", set.bits()) };
        }
    }

    /// Returns the registers of the counter with this index, if there is one.
    #[inline(always)]
    pub(crate) fn counter(self, index: u8) -> Option<CounterRegisters> {
        // INVARIANT: By that of `self` there are these counters.
        self.counters.get(index).map(CounterRegisters)
    }
}

/// The registers of a counter.
///
/// # Invariants
///
/// The PE that executed [`Registers::probe`] has a PMUv3 with this counter.
#[derive(Clone, Copy)]
pub(crate) struct CounterRegisters(Counter);

impl CounterRegisters {
    /// Returns which counter it is.
    #[inline]
    pub(crate) fn counter(self) -> Counter {
        self.0
    }

    /// Reads PMEVCNTR<n>_EL0, PMCCNTR_EL0 or PMICNTR_EL0.
    #[inline(always)]
    pub(crate) fn count(self) -> u64 {
        macro_rules! pmevcntr {
            ($n:literal) => {
                // SAFETY: `n` is the index of a counter that there is, by the type invariant.
                unsafe { mrs!(concat!("pmevcntr", $n, "_el0")) }
            };
        }

        event_counter!(self.0.index(), pmevcntr; _ => {
            if self.0 == Counter::CYCLE {
                // SAFETY: There is a PMUv3, and each has this register.
                unsafe { mrs!("pmccntr_el0") }
            } else {
                // SAFETY: By the type invariant there is the instruction counter.
                unsafe { mrs!("s3_3_c9_c4_0") }
            }
        })
    }

    /// Writes PMEVCNTR<n>_EL0, PMCCNTR_EL0 or PMICNTR_EL0.
    #[inline(always)]
    pub(crate) fn set_count(self, value: u64) {
        macro_rules! set_pmevcntr {
            ($n:literal, $value:expr) => {
                // SAFETY: `n` is the index of a counter that there is, by the type invariant.
                unsafe { msr!(concat!("pmevcntr", $n, "_el0"), $value) }
            };
        }

        event_counter!(self.0.index(), set_pmevcntr, value; _ => {
            if self.0 == Counter::CYCLE {
                // SAFETY: There is a PMUv3, and each has this register.
                unsafe { msr!("pmccntr_el0", value) }
            } else {
                // SAFETY: By the type invariant there is the instruction counter.
                unsafe { msr!("s3_3_c9_c4_0", value) }
            }
        })
    }

    /// Writes PMEVTYPER<n>_EL0, PMCCFILTR_EL0 or PMICFILTR_EL0: what the counter counts.
    pub(crate) fn set_type(self, typer: Pmevtyper) {
        macro_rules! set_pmevtyper {
            ($n:literal, $value:expr) => {
                // SAFETY: `n` is the index of a counter that there is, by the type invariant.
                unsafe { msr!(concat!("pmevtyper", $n, "_el0"), $value) }
            };
        }

        event_counter!(self.0.index(), set_pmevtyper, typer.bits(); _ => {
            if self.0 == Counter::CYCLE {
                // SAFETY: There is a PMUv3, and each has this register.
                unsafe { msr!("pmccfiltr_el0", typer.filter_bits()) }
            } else {
                // SAFETY: By the type invariant there is the instruction counter.
                unsafe { msr!("s3_3_c9_c6_0", typer.filter_bits()) }
            }
        })
    }
}
