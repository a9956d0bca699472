// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small, complete and safe layer over Linux's perf_event_open(2).

mod attr;
mod config;
mod count;
mod diagnose;
pub mod discovery;
mod error;
mod event;
mod flags;
mod group;
pub mod profile;
pub mod record;
mod ring;
pub mod spec;
pub mod symbols;
mod target;

pub use attr::{Attr, AttrError, Precision, Rate, Wakeup};
pub use config::{
    Access, Breakpoint, Cache, CacheId, CacheOp, CacheResult, EventConfig, Hardware, Probe,
    Software, Tracepoint,
};
pub use count::{Count, Counts};
pub use error::{Error, Operation, Refusal, Result};
pub use event::Event;
pub use flags::{BranchFilter, Exclude, OpenFlags, ReadFormat, SampleFields, SideBand};
pub use group::Group;
pub use perf_event_open_sys::bindings as sys;
pub use record::{Decoded, Decoder, RawRecord, Record, Sample};
pub use ring::{
    Capabilities, OverwriteRing, Page, PageState, Ring, RingError, Snapshot, Span, Unread, Wake,
    wait_any,
};
pub use rustix::io::Errno;
pub use target::Target;
