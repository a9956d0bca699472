// SPDX-License-Identifier: GPL-2.0

//! The parts of the driver and of the perf abstraction that have no kernel types in them, compiled
//! for the host. Their unit tests, which KUnit runs in the kernel, run here too, and so do
//! property tests that KUnit has no means for.

// What is used by the driver's other files only is unused here.
#![allow(dead_code, unused_imports, unused_macros)]

#[path = "../../pmuv3/attrs.rs"]
mod attrs;
#[path = "../../pmuv3/cache.rs"]
mod cache;
#[path = "../../pmuv3/caps.rs"]
mod caps;
#[path = "../../pmuv3/counters.rs"]
mod counters;
#[path = "../../pmuv3/events.rs"]
mod events;
#[path = "../../pmuv3/evtyper.rs"]
mod evtyper;
#[path = "../../pmuv3/layout.rs"]
mod layout;
#[path = "../../pmuv3/models.rs"]
mod models;
#[path = "../../../kernel/perf/period.rs"]
mod period;
#[path = "../../pmuv3/refusal.rs"]
mod refusal;

#[cfg(test)]
mod c_driver;
#[cfg(test)]
mod properties;
