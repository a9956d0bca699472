// SPDX-License-Identifier: MIT OR Apache-2.0
//! The logic of the tool `pmu`: what to watch, counting, recording, and what the tool and the
//! tests know of the machine beyond perf events.

pub mod interrupts;
pub mod launch;
pub mod list;
pub mod names;
pub mod record;
pub mod report;
pub mod stat;
pub mod system;
pub mod text;
pub mod until;
pub mod watch;
