// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small, complete and safe layer over Linux's perf_event_open(2).

mod attr;
mod config;
pub mod discovery;
mod flags;
pub mod profile;
pub mod spec;
pub mod symbols;
mod target;

pub use attr::{Attr, AttrError, Precision, Rate, Wakeup};
pub use config::{
    Access, Breakpoint, Cache, CacheId, CacheOp, CacheResult, EventConfig, Hardware, Probe,
    Software, Tracepoint,
};
pub use flags::{BranchFilter, Exclude, OpenFlags, ReadFormat, SampleFields, SideBand};
pub use perf_event_open_sys::bindings as sys;
pub use target::Target;
