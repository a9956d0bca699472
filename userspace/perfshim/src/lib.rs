// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small, complete and safe layer over Linux's perf_event_open(2).
//!
//! | to | there is |
//! | --- | --- |
//! | say what to count, and when to sample | [`Attr`], from [`Hardware`], [`Software`], ... or from text by [`spec`] |
//! | say whom to watch | [`Target`] |
//! | open, enable, read, and everything else that ioctl(2) offers | [`Event`], [`Group`] |
//! | count what a thread does without a system call for each count | [`Ring::count`] |
//! | read samples as they come | [`Ring`], [`wait_any`]; [`OverwriteRing`] keeps the newest |
//! | make sense of their bytes | [`Decoder`], [`Record`], [`Sample`] |
//! | find the PMUs of this machine | [`discovery`] |
//! | turn addresses into functions, and samples into profiles | [`symbols`], [`profile`] |
//!
//! Nothing here knows of a particular processor: it works with whatever PMUs are there, and with
//! the kernel's software events where there are none. Only how user space reads a counter is arm64's
//! own; on others a system call does that.
//!
//! # Sampling, from beginning to end
//!
//! ```
//! use perfshim::{
//!     Attr, Decoder, Event, Exclude, Rate, Record, Ring, SampleFields, Software, Target,
//! };
//!
//! # fn main() -> Result<(), perfshim::Error> {
//! // A sample each 100 microseconds of CPU time, with where the thread was and how it came there.
//! let attr = Attr::new(Software::TaskClock)
//!     .sample(Rate::Period(100_000), SampleFields::IP | SampleFields::TID | SampleFields::CALLCHAIN)
//!     .exclude(Exclude::KERNEL | Exclude::HV | Exclude::CALLCHAIN_KERNEL);
//! let event = match Event::open(&attr, Target::ThisThread) {
//!     Ok(event) => event,
//!     // Cause and remedy; in a container, for example, the kernel may allow no events at all.
//!     Err(refused) => {
//!         println!("{refused}");
//!         return Ok(());
//!     }
//! };
//! let mut ring = Ring::map(&event, 64 * 1024)?;
//! event.enable()?;
//!
//! // Twenty milliseconds of computing. The event counts nanoseconds.
//! while event.read()?.value < 20_000_000 {
//!     (0..10_000u64).fold(0, |sum, term| std::hint::black_box(sum + term));
//! }
//! event.disable()?;
//!
//! let decoder = Decoder::new(&attr);
//! let mut samples = 0;
//! let mut unread = ring.read()?;
//! while let Some(record) = unread.next_record()? {
//!     match decoder.decode(record)?.record {
//!         Record::Sample(sample) => {
//!             samples += 1;
//!             let chain = sample.callchain.unwrap_or_default();
//!             println!("{:#x?}, {} frames", sample.ip, chain.frames().count());
//!         }
//!         Record::Lost(found) => println!("{} samples found no room", found.lost),
//!         other => println!("{other:?}"),
//!     }
//! }
//! assert!(samples > 0);
//! # Ok(()) }
//! ```
//!
//! `examples/sample.rs` does the same for a process, and waits for samples instead of computing.
//!
//! # What it rests on
//!
//! | crate | for | why |
//! | --- | --- | --- |
//! | perf-event-open-sys | the kernel's structures and constants | its 7.1 has every field and record of Linux 7.3's header, so none is declared here. Its ioctl wrappers are not used: the one for `PERIOD` passes a number where the kernel wants a pointer |
//! | rustix | mmap, poll, read, [`Errno`] | descriptors that are owned or borrowed, errors by name |
//! | libc | ioctl | requests whose argument is now a number, now a pointer |
//! | bitflags | flag words | sets that print their names |
//! | thiserror | error types | no hand-written `Display` |
//! | object, addr2line, cpp_demangle, rustc-demangle | [`symbols`] | see there |
//! | strsim | [`spec`] | what somebody may have meant who wrote `cycels` |

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
pub use error::{Error, Operation, Refusal, Result, errno_name};
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
