// SPDX-License-Identifier: GPL-2.0

//! The files of the PMU in sysfs. Names and contents are user interface, the same as those of
//! drivers/perf/arm_pmuv3.c.

use core::fmt::Write;

use kernel::{
    fmt,
    prelude::*,
    str::Formatter, //
};

use crate::{
    attrs,
    perf::sysfs::{
        Attribute,
        ConfigWord,
        EventAttr,
        FormatAttr, //
    },
    pmu::Pmuv3,
    smp::CpuList, //
};

/// `long`: the event has 64 bits.
pub(crate) const LONG: FormatAttr = FormatAttr::new(c"long", ConfigWord::Config1, 0, 0);
/// `rdpmc`: user space may read the counter.
pub(crate) const RDPMC: FormatAttr = FormatAttr::new(c"rdpmc", ConfigWord::Config1, 1, 1);
/// `threshold_count`: the counter grows by one, not by the increment, PMEVTYPER<n>_EL0.TC[0].
pub(crate) const THRESHOLD_COUNT: FormatAttr =
    FormatAttr::new(c"threshold_count", ConfigWord::Config1, 2, 2);
/// `threshold_compare`: how the increment is compared, PMEVTYPER<n>_EL0.TC[2:1].
pub(crate) const THRESHOLD_COMPARE: FormatAttr =
    FormatAttr::new(c"threshold_compare", ConfigWord::Config1, 3, 4);
/// `threshold`: what the increment is compared with, PMEVTYPER<n>_EL0.TH.
pub(crate) const THRESHOLD: FormatAttr = FormatAttr::new(c"threshold", ConfigWord::Config1, 5, 16);

/// The folder `format`.
pub(crate) const FORMAT: &[FormatAttr] = &[
    FormatAttr::new(c"event", ConfigWord::Config, 0, 15),
    LONG,
    RDPMC,
    THRESHOLD,
    THRESHOLD_COMPARE,
    THRESHOLD_COUNT,
];

/// The folder `events`.
pub(crate) const EVENTS: &[EventAttr] = &{
    let mut events = [const { EventAttr::new(c"", 0) }; attrs::EVENTS.len()];
    let mut index = 0;
    while index < events.len() {
        let (name, event) = attrs::EVENTS[index];
        // `u64::from` cannot be used in a constant.
        events[index] = EventAttr::new(name, event.0 as u64);
        index += 1;
    }
    events
};

/// The folder `caps`: what PMMIR_EL1 says.
pub(crate) const CAPS: &[Attribute<Pmuv3>] = &[
    Attribute::new(c"slots", |pmu, to| hex(to, pmu.pmmir().slots())),
    Attribute::new(c"bus_slots", |pmu, to| hex(to, pmu.pmmir().bus_slots())),
    Attribute::new(c"bus_width", |pmu, to| hex(to, pmu.pmmir().bus_width())),
    Attribute::new(c"threshold_max", |pmu, to| {
        hex(to, pmu.pmmir().threshold_max().into())
    }),
];

/// The PMU's own folder.
pub(crate) const PLAIN: &[Attribute<Pmuv3>] = &[Attribute::new(c"cpus", |pmu, to| {
    to.write_fmt(fmt!("{}\n", CpuList(pmu.cpus())))
})];

fn hex(to: &mut Formatter<'_>, value: u64) -> fmt::Result {
    to.write_fmt(fmt!("0x{value:08x}\n"))
}
