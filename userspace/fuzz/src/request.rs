// SPDX-License-Identifier: MIT OR Apache-2.0
//! What perf_event_open(2) is asked for, chosen from the values at which a kernel decides.

use std::fmt;

use fastrand::Rng;
use perfshim::sys::{self, perf_event_attr};

use crate::choice::{chance, one, one_or_any};
use crate::sys::MAX_SIZE;

/// Stands for the number of the PMU, which differs from boot to boot, in `type` and in the upper
/// half of `config`. No PMU gets it.
const OWN: u32 = 0x7fff_4f57;

/// The arguments of one call, but for the group.
#[derive(Clone)]
pub struct Request {
    /// The attributes, with [`OWN`] in them.
    attr: perf_event_attr,
    /// The thread.
    pub whom: Whom,
    /// The CPU, or -1.
    pub cpu: i32,
    /// `PERF_FLAG_*`.
    pub flags: u64,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The caller.
    This,
    /// The child in this slot.
    Child(usize),
    /// Any thread.
    All,
    /// The first process.
    Init,
    /// One that does not exist.
    Nobody,
}

/// What the requests are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// To see what one driver makes of them: everything that a driver looks at varies.
    Sweep,
    /// To be used together with others and to count the same under each driver.
    Together,
    /// To find what no one expects: everything varies.
    Fuzz,
}

/// Declares the one-bit fields of the attributes.
macro_rules! bits {
    ($($name:ident $set:ident),* $(,)?) => {
        /// The one-bit fields: name, getter, setter.
        const BITS: &[(&str, fn(&perf_event_attr) -> u64, fn(&mut perf_event_attr, u64))] =
            &[$((stringify!($name), perf_event_attr::$name, perf_event_attr::$set)),*];
    };
}

bits! {
    disabled set_disabled,
    inherit set_inherit,
    pinned set_pinned,
    exclusive set_exclusive,
    exclude_user set_exclude_user,
    exclude_kernel set_exclude_kernel,
    exclude_hv set_exclude_hv,
    exclude_idle set_exclude_idle,
    mmap set_mmap,
    comm set_comm,
    freq set_freq,
    inherit_stat set_inherit_stat,
    enable_on_exec set_enable_on_exec,
    task set_task,
    watermark set_watermark,
    mmap_data set_mmap_data,
    sample_id_all set_sample_id_all,
    exclude_host set_exclude_host,
    exclude_guest set_exclude_guest,
    exclude_callchain_kernel set_exclude_callchain_kernel,
    exclude_callchain_user set_exclude_callchain_user,
    mmap2 set_mmap2,
    comm_exec set_comm_exec,
    use_clockid set_use_clockid,
    context_switch set_context_switch,
    write_backward set_write_backward,
    namespaces set_namespaces,
    ksymbol set_ksymbol,
    bpf_event set_bpf_event,
    aux_output set_aux_output,
    cgroup set_cgroup,
    text_poke set_text_poke,
    build_id set_build_id,
    inherit_thread set_inherit_thread,
    remove_on_exec set_remove_on_exec,
    sigtrap set_sigtrap,
    defer_callchain set_defer_callchain,
    defer_output set_defer_output,
}

/// Bits of `config1` of an Arm PMU.
mod config1 {
    pub const LONG: u64 = 1 << 0;
    pub const USER_READ: u64 = 1 << 1;
    pub const THRESHOLD_COUNT: u64 = 1 << 2;
    pub const THRESHOLD_COMPARE: u64 = 3 << 3;
    pub const THRESHOLD_1: u64 = 1 << 5;
    pub const THRESHOLD_MAX: u64 = 0xfff << 5;
    pub const UNKNOWN: u64 = 1 << 17;
}

const HARDWARE: u32 = sys::PERF_TYPE_HARDWARE;
const HW_CACHE: u32 = sys::PERF_TYPE_HW_CACHE;
const RAW: u32 = sys::PERF_TYPE_RAW;
const SOFTWARE: u32 = sys::PERF_TYPE_SOFTWARE;
const ON_OWN: u64 = (OWN as u64) << 32;

/// Numbers of the Arm ARM.
const CYCLES: u64 = 0x11;
const INSTRUCTIONS: u64 = 0x08;

/// The two events that QEMU counts, by each of their names.
const COUNTED: [(u32, u64); 8] = [
    (HARDWARE, 0),
    (HARDWARE, 1),
    (RAW, CYCLES),
    (RAW, INSTRUCTIONS),
    (OWN, CYCLES),
    (OWN, INSTRUCTIONS),
    (HARDWARE, ON_OWN),
    (HARDWARE, ON_OWN | 1),
];

const CYCLES_BY_NAME: [(u32, u64); 4] = [
    (HARDWARE, 0),
    (RAW, CYCLES),
    (OWN, CYCLES),
    (HARDWARE, ON_OWN),
];

/// SW_INCR, CHAIN, STALL events; the ends of the ranges; bits above the event's.
const RAW_EVENTS: [u64; 22] = [
    0x00,
    0x01,
    0x04,
    0x08,
    0x0c,
    0x11,
    0x1d,
    0x1e,
    0x21,
    0x23,
    0x24,
    0x3c,
    0x3f,
    0x40,
    0x4000,
    0x4004,
    0x403f,
    0x4040,
    0xffff,
    0x1_0011,
    0x1_001e,
    0x1_0000_0008,
];

const SOFTWARE_EVENTS: [u64; 4] = [
    sys::PERF_COUNT_SW_CPU_CLOCK as u64,
    sys::PERF_COUNT_SW_TASK_CLOCK as u64,
    sys::PERF_COUNT_SW_CONTEXT_SWITCHES as u64,
    sys::PERF_COUNT_SW_DUMMY as u64,
];

const PERIODS: [u64; 18] = [
    1,
    2,
    3,
    100,
    1000,
    4096,
    10_000,
    65_536,
    0x7fff_fffe,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x1_0000_0001,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

/// Above what the overflow interrupt itself takes, so that events which count the kernel, too,
/// leave time for other things.
pub const TOGETHER_PERIODS: [u64; 3] = [20_000, 50_000, 100_000];

/// Some around the limit that the sweep sets.
const FREQUENCIES: [u64; 9] = [0, 1, 99, 1000, 4000, 19_999, 20_000, 20_001, u64::MAX];

/// IP, TID, TIME and the like: of one size each.
const PLAIN_SAMPLES: [u64; 4] = [
    0,
    sys::PERF_SAMPLE_IP as u64,
    (sys::PERF_SAMPLE_IP
        | sys::PERF_SAMPLE_TID
        | sys::PERF_SAMPLE_TIME
        | sys::PERF_SAMPLE_CPU
        | sys::PERF_SAMPLE_PERIOD) as u64,
    (sys::PERF_SAMPLE_IDENTIFIER | sys::PERF_SAMPLE_ADDR | sys::PERF_SAMPLE_READ) as u64,
];

const TIMES: u64 =
    (sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

impl Request {
    /// A request for `purpose` on a machine of `cpus` CPUs.
    pub fn random(rng: &mut Rng, purpose: Use, cpus: u32) -> Self {
        match purpose {
            Use::Sweep => Self::for_sweep(rng, cpus),
            Use::Together => Self::to_be_together(rng, cpus),
            Use::Fuzz => Self::for_fuzz(rng, cpus),
        }
    }

    /// Counts an event that exists.
    pub fn counting(rng: &mut Rng) -> Self {
        let (kind, config) = one(rng, &COUNTED);
        let mut attr = perf_event_attr {
            type_: kind,
            size: size_of::<perf_event_attr>() as u32,
            config,
            read_format: TIMES,
            ..Default::default()
        };
        attr.set_disabled(1);
        attr.set_sample_id_all(1);
        Self {
            attr,
            whom: Whom::This,
            cpu: -1,
            flags: sys::PERF_FLAG_FD_CLOEXEC.into(),
        }
    }

    /// Only what has one right answer, or is marked as having none; see
    /// [`is_exact`](Self::is_exact).
    fn to_be_together(rng: &mut Rng, cpus: u32) -> Self {
        let mut request = Self::counting(rng);
        request.choose_exclude(rng);
        let attr = &mut request.attr;
        if chance(rng, 15) {
            (attr.type_, attr.config) = (one(rng, &[RAW, OWN]), one(rng, &[0x23, 0x1e, 0xffff]));
        }
        if chance(rng, 40) {
            attr.__bindgen_anon_1.sample_period = one(rng, &TOGETHER_PERIODS);
            attr.sample_type = one(rng, &PLAIN_SAMPLES);
        }
        attr.set_disabled(chance(rng, 50).into());
        attr.set_pinned(chance(rng, 10).into());
        // A parent and a child with the same events swap them when one runs after the other, and what
        // the one to end first has is gone for groups: so on several CPUs it is a matter of luck.
        attr.set_inherit((chance(rng, 25) && cpus == 1).into());
        attr.set_enable_on_exec(chance(rng, 10).into());
        attr.set_remove_on_exec(chance(rng, 5).into());
        attr.__bindgen_anon_3.config1 = one(rng, &[0, 0, 0, config1::USER_READ]);
        if chance(rng, 20) {
            attr.read_format |= u64::from(sys::PERF_FORMAT_GROUP);
        }
        (request.whom, request.cpu) = match rng.u32(..100) {
            0..70 => (Whom::Child(rng.usize(..2)), -1),
            70..80 => (Whom::Child(rng.usize(..2)), rng.i32(0..cpus as i32)),
            80..90 => (Whom::This, -1),
            _ => (Whom::All, rng.i32(0..cpus as i32)),
        };
        request
    }

    fn for_sweep(rng: &mut Rng, cpus: u32) -> Self {
        let mut request = Self::counting(rng);
        if chance(rng, 55) {
            request.choose_event(rng);
        }
        request.choose_configs(rng);
        request.choose_exclude(rng);
        request.choose_rate(rng);
        request.choose_scope(rng);
        request.choose_target(rng, cpus);
        request
    }

    fn for_fuzz(rng: &mut Rng, cpus: u32) -> Self {
        let mut request = Self::for_sweep(rng, cpus);
        let attr = &mut request.attr;
        match rng.u32(..100) {
            // QEMU counts these without -icount, too.
            0..60 => (attr.type_, attr.config) = one(rng, &CYCLES_BY_NAME),
            60..63 => {
                attr.type_ = one(rng, &[sys::PERF_TYPE_TRACEPOINT, sys::PERF_TYPE_BREAKPOINT])
            }
            _ => {}
        }
        if chance(rng, 30) {
            attr.read_format = rng.u64(..32);
        }
        if chance(rng, 30) {
            // A few bits of many, and what they need.
            let any = rng.u64(..sys::PERF_SAMPLE_MAX as u64) & rng.u64(..);
            attr.sample_type ^= any & !u64::from(sys::PERF_SAMPLE_AUX);
            if chance(rng, 90) {
                attr.sample_type &= !u64::from(sys::PERF_SAMPLE_BRANCH_STACK);
                attr.sample_type &= !u64::from(sys::PERF_SAMPLE_WEIGHT_STRUCT);
            }
            attr.sample_regs_user = 1 | rng.u64(..1 << 33);
            attr.sample_regs_intr = 1 | rng.u64(..1 << 33);
            attr.sample_stack_user = rng.u32(1..64) * 8;
            attr.branch_sample_type = rng.u64(..1 << 20) & rng.u64(..);
            attr.sample_max_stack = rng.u16(..128);
        }
        if chance(rng, 20) {
            for _ in 0..rng.usize(1..3) {
                let (_, get, set) = one(rng, BITS);
                set(attr, 1 - get(attr));
            }
        }
        if chance(rng, 20) {
            attr.__bindgen_anon_2.wakeup_events = one(rng, &[0, 1, 2, 1000, u32::MAX]);
        }
        if chance(rng, 5) {
            attr.clockid = rng.i32(-1..16);
            attr.sig_data = rng.u64(..);
        }
        if chance(rng, 2) {
            attr.size = one(rng, &[0, 1, 63, 64, 72, MAX_SIZE]);
        }
        if chance(rng, 50) {
            attr.set_disabled(0);
        }
        // FD_NO_GROUP, FD_OUTPUT, PID_CGROUP, and one that does not exist.
        if chance(rng, 10) {
            request.flags ^= 1 << rng.u32(..5);
        }
        request
    }

    fn choose_event(&mut self, rng: &mut Rng) {
        let hardware = |rng: &mut Rng| one_or_any(rng, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255]);
        // Cache, operation, result, and what lies beyond.
        let cache = |rng: &mut Rng| {
            rng.u64(..8) | rng.u64(..4) << 8 | rng.u64(..3) << 16 | u64::from(chance(rng, 3)) << 24
        };
        let raw = |rng: &mut Rng| match chance(rng, 85) {
            true => one_or_any(rng, &RAW_EVENTS),
            false => rng.u64(..0x1_0000),
        };
        let attr = &mut self.attr;
        (attr.type_, attr.config) = match rng.u32(..100) {
            0..20 => (HARDWARE, hardware(rng)),
            20..28 => (HARDWARE, ON_OWN | hardware(rng)),
            28..48 => (HW_CACHE, cache(rng)),
            48..54 => (HW_CACHE, ON_OWN | cache(rng)),
            54..70 => (RAW, raw(rng)),
            70..92 => (OWN, raw(rng)),
            92..96 => (SOFTWARE, one(rng, &SOFTWARE_EVENTS)),
            _ => (one(rng, &[6, 7, 0x7fff_0000, u32::MAX]), rng.u64(..64)),
        };
    }

    fn choose_configs(&mut self, rng: &mut Rng) {
        use config1::*;
        let attr = &mut self.attr;
        if chance(rng, 50) {
            attr.__bindgen_anon_3.config1 = one_or_any(
                rng,
                &[
                    LONG,
                    LONG,
                    LONG,
                    USER_READ,
                    USER_READ,
                    LONG | USER_READ,
                    LONG | USER_READ,
                    THRESHOLD_COUNT,
                    THRESHOLD_COMPARE,
                    THRESHOLD_1,
                    THRESHOLD_1 | THRESHOLD_COUNT | LONG,
                    THRESHOLD_MAX,
                    UNKNOWN,
                    1 << 63,
                ],
            );
        }
        if chance(rng, 10) {
            attr.__bindgen_anon_4.config2 = one_or_any(rng, &[1, 1 << 32, 1 << 63]);
        }
        if chance(rng, 4) {
            attr.config3 = one_or_any(rng, &[1, 1 << 63]);
        }
        if chance(rng, 2) {
            attr.config4 = 1;
        }
    }

    fn choose_exclude(&mut self, rng: &mut Rng) {
        let attr = &mut self.attr;
        attr.set_exclude_kernel(chance(rng, 65).into());
        attr.set_exclude_hv(chance(rng, 35).into());
        attr.set_exclude_user(chance(rng, 8).into());
        attr.set_exclude_guest(chance(rng, 10).into());
        attr.set_exclude_host(chance(rng, 4).into());
        attr.set_exclude_idle(chance(rng, 3).into());
    }

    fn choose_rate(&mut self, rng: &mut Rng) {
        let attr = &mut self.attr;
        match rng.u32(..100) {
            0..50 => return,
            50..90 => attr.__bindgen_anon_1.sample_period = one(rng, &PERIODS),
            _ => {
                attr.set_freq(1);
                attr.__bindgen_anon_1.sample_freq = one(rng, &FREQUENCIES);
            }
        }
        attr.sample_type = match rng.u32(..100) {
            0..85 => one(rng, &PLAIN_SAMPLES),
            85..90 => u64::from(sys::PERF_SAMPLE_CALLCHAIN | sys::PERF_SAMPLE_IP),
            90..93 => {
                attr.branch_sample_type = one(rng, &[0, 1, 1 << 3, 1 << 3 | 1]);
                u64::from(sys::PERF_SAMPLE_BRANCH_STACK)
            }
            93..96 => {
                // X0, PC, the vector length, and what no register has.
                attr.sample_regs_intr = 1 << one(rng, &[0, 32, 46, 47]);
                u64::from(sys::PERF_SAMPLE_REGS_INTR)
            }
            96..98 => {
                attr.sample_regs_user = 1 << one(rng, &[0, 32, 46, 47]);
                u64::from(sys::PERF_SAMPLE_REGS_USER)
            }
            _ => 1 << rng.u32(..26),
        };
        attr.set_precise_ip(if chance(rng, 5) { rng.u64(1..4) } else { 0 });
    }

    fn choose_scope(&mut self, rng: &mut Rng) {
        let attr = &mut self.attr;
        attr.set_pinned(chance(rng, 8).into());
        attr.set_exclusive(chance(rng, 4).into());
        attr.set_inherit(chance(rng, 10).into());
        attr.set_enable_on_exec(chance(rng, 5).into());
        attr.set_remove_on_exec(chance(rng, 3).into());
        if chance(rng, 3) {
            attr.set_disabled(0);
        }
    }

    fn choose_target(&mut self, rng: &mut Rng, cpus: u32) {
        let cpus = cpus as i32;
        (self.whom, self.cpu) = match rng.u32(..100) {
            0..50 => (Whom::This, -1),
            50..58 => (Whom::This, rng.i32(0..cpus)),
            58..74 => (Whom::All, rng.i32(0..cpus)),
            74..86 => (Whom::Child(rng.usize(..2)), -1),
            86..90 => (Whom::Child(rng.usize(..2)), rng.i32(0..cpus)),
            90..92 => (Whom::Init, -1),
            92..94 => (Whom::All, -1),
            94..96 => (Whom::Nobody, -1),
            _ => (
                one(rng, &[Whom::This, Whom::All]),
                one(rng, &[-2, cpus, 4096, i32::MAX]),
            ),
        };
    }

    /// Makes it fit for a member of a group: such an event starts with its leader.
    pub fn follow(&mut self, rng: &mut Rng, leader: &Self) {
        self.attr.set_disabled(chance(rng, 10).into());
        if !chance(rng, 3) {
            (self.whom, self.cpu) = (leader.whom, leader.cpu);
        }
        if !chance(rng, 5) {
            self.attr.set_inherit(leader.attr.inherit());
            self.attr.set_pinned(0);
            self.attr.set_exclusive(0);
        }
    }

    /// Makes it count nothing that a driver knows of.
    pub fn soften(&mut self, rng: &mut Rng) {
        (self.attr.type_, self.attr.config) = (SOFTWARE, one(rng, &SOFTWARE_EVENTS));
        self.attr.__bindgen_anon_1.sample_period = 0;
        self.attr.sample_type = 0;
        self.attr.set_freq(0);
        self.attr.set_precise_ip(0);
    }

    /// Makes it take two counters where these have 32 bits.
    pub fn lengthen(&mut self) {
        // SAFETY: both fields of the union are of the same integer type.
        unsafe { self.attr.__bindgen_anon_3.config1 |= config1::LONG };
    }

    /// The attributes as the kernel is to see them, on a machine whose PMU has the number `own`.
    pub fn attr(&self, own: u32) -> perf_event_attr {
        let mut attr = self.attr;
        if attr.type_ == OWN {
            attr.type_ = own;
        }
        if attr.config >> 32 == u64::from(OWN) {
            attr.config = u64::from(own) << 32 | attr.config & 0xffff_ffff;
        }
        attr
    }

    /// Whether it counts what user space does and nothing else, which is the same under any driver.
    pub fn is_exact(&self) -> bool {
        let attr = &self.attr;
        self.is_hardware() && attr.exclude_kernel() != 0 && attr.freq() == 0
    }

    /// Whether it counts what user space does.
    pub fn counts_user(&self) -> bool {
        self.attr.exclude_user() == 0
    }

    /// Whether it may be an event of the PMU.
    pub fn is_hardware(&self) -> bool {
        [HARDWARE, HW_CACHE, RAW, OWN].contains(&self.attr.type_)
    }

    /// Whether it waits to be enabled.
    pub fn is_disabled(&self) -> bool {
        self.attr.disabled() != 0
    }

    /// The period, if it samples by one.
    pub fn period(&self) -> Option<u64> {
        // SAFETY: both fields of the union are of the same integer type.
        let period = unsafe { self.attr.__bindgen_anon_1.sample_period };
        (self.attr.freq() == 0 && period > 0).then_some(period)
    }

    /// Whether it takes samples.
    pub fn samples(&self) -> bool {
        self.period().is_some() || self.attr.freq() != 0
    }

    /// Whether the newest record comes first in the ring.
    pub fn writes_backward(&self) -> bool {
        self.attr.write_backward() != 0
    }

    /// Whether a read returns the whole group.
    pub fn reads_group(&self) -> bool {
        self.attr.read_format & u64::from(sys::PERF_FORMAT_GROUP) != 0
    }
}

/// `name=value` for all that is not as usual.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attr = &self.attr;
        let config = attr.config;
        match attr.type_ {
            HARDWARE => write!(f, "hardware")?,
            SOFTWARE => write!(f, "software")?,
            HW_CACHE => write!(f, "cache")?,
            RAW => write!(f, "raw")?,
            OWN => write!(f, "pmu")?,
            other => write!(f, "type-{other:#x}")?,
        }
        match config >> 32 == u64::from(OWN) {
            true => write!(f, ":pmu:{:#x}", config & 0xffff_ffff)?,
            false => write!(f, ":{config:#x}")?,
        }
        // SAFETY: the fields of each union are of the same integer type.
        let (config1, config2, rate, wakeup) = unsafe {
            (
                attr.__bindgen_anon_3.config1,
                attr.__bindgen_anon_4.config2,
                attr.__bindgen_anon_1.sample_period,
                attr.__bindgen_anon_2.wakeup_events,
            )
        };
        let usual_size = size_of::<perf_event_attr>() as u64;
        for (name, value, usual) in [
            ("config1", config1, 0),
            ("config2", config2, 0),
            ("config3", attr.config3, 0),
            ("config4", attr.config4, 0),
            ("rate", rate, 0),
            ("sample_type", attr.sample_type, 0),
            ("read_format", attr.read_format, TIMES),
            ("precise_ip", attr.precise_ip(), 0),
            ("wakeup", wakeup.into(), 0),
            ("branch_sample_type", attr.branch_sample_type, 0),
            ("sample_regs_user", attr.sample_regs_user, 0),
            ("sample_regs_intr", attr.sample_regs_intr, 0),
            ("sample_stack_user", attr.sample_stack_user.into(), 0),
            ("sample_max_stack", attr.sample_max_stack.into(), 0),
            ("clockid", attr.clockid as u64, 0),
            ("sig_data", attr.sig_data, 0),
            ("size", attr.size.into(), usual_size),
            ("flags", self.flags, sys::PERF_FLAG_FD_CLOEXEC.into()),
        ] {
            if value != usual {
                write!(f, " {name}={value:#x}")?;
            }
        }
        for (name, get, _) in BITS {
            match (get(attr), *name) {
                (0, "disabled") => write!(f, " enabled")?,
                (0, "sample_id_all") => write!(f, " no_sample_id")?,
                (0, _) | (_, "disabled" | "sample_id_all") => {}
                (_, name) => write!(f, " {name}")?,
            }
        }
        match self.whom {
            Whom::This => {}
            whom => write!(f, " of={whom}")?,
        }
        match self.cpu {
            -1 => Ok(()),
            cpu => write!(f, " cpu={cpu}"),
        }
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::This => write!(f, "self"),
            Self::Child(slot) => write!(f, "child{slot}"),
            Self::All => write!(f, "all"),
            Self::Init => write!(f, "init"),
            Self::Nobody => write!(f, "nobody"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn equal_seeds_give_equal_requests() {
        for purpose in [Use::Sweep, Use::Together, Use::Fuzz] {
            let sequence = |seed| {
                let mut rng = Rng::with_seed(seed);
                (0..100)
                    .map(|_| Request::random(&mut rng, purpose, 4).to_string())
                    .collect::<Vec<_>>()
            };
            assert_eq!(sequence(7), sequence(7));
            assert_ne!(sequence(7), sequence(8));
        }
    }

    #[test]
    fn requests_differ() {
        let mut rng = Rng::with_seed(1);
        let texts: HashSet<_> = (0..10_000)
            .map(|_| Request::random(&mut rng, Use::Sweep, 1).to_string())
            .collect();
        assert!(texts.len() > 7000, "only {} of 10000", texts.len());
    }

    #[test]
    fn the_pmu_gets_its_number() {
        let mut request = Request::counting(&mut Rng::with_seed(1));
        (request.attr.type_, request.attr.config) = (OWN, 0x11);
        assert_eq!(request.attr(10).type_, 10);
        assert!(request.to_string().starts_with("pmu:0x11"));
        (request.attr.type_, request.attr.config) = (HARDWARE, ON_OWN | 1);
        assert_eq!(request.attr(10).config, 10 << 32 | 1);
        assert!(request.to_string().starts_with("hardware:pmu:0x1"));
    }

    #[test]
    fn cpus_are_those_that_there_are_and_a_few_others() {
        let mut rng = Rng::with_seed(1);
        for _ in 0..2000 {
            let cpu = Request::random(&mut rng, Use::Sweep, 4).cpu;
            assert!((-2..=4).contains(&cpu) || cpu >= 4096, "{cpu}");
            let cpu = Request::random(&mut rng, Use::Together, 4).cpu;
            assert!((-1..4).contains(&cpu), "{cpu}");
        }
    }

    #[test]
    fn exact_is_user_space_by_a_count() {
        let mut request = Request::counting(&mut Rng::with_seed(1));
        assert!(!request.is_exact());
        request.attr.set_exclude_kernel(1);
        assert!(request.is_exact());
        request.attr.set_freq(1);
        assert!(!request.is_exact());
    }
}
