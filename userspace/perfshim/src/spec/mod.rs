// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events as people write them: `cycles:u`, `pmu/event,config1=0x1/`, `{a,b}`.
//!
//! The syntax is perf's (`man perf-list`), without what steers the tool perf or needs its tables:
//!
//! ```text
//! list      = entry { "," entry }
//! entry     = event | "{" event { "," event } "}" [ ":" modifiers ]
//! event     = head "/" [ term { "," term } ] "/" [ [ ":" ] modifiers ]
//!           | head [ ":" modifiers ]
//! head      = a PMU, an event, or "r" and a hexadecimal number
//! term      = name [ "=" value ]
//! value     = word | "'" anything "'"
//! modifiers = letters out of u k h G H I p P S D e
//! ```
//!
//! White space may stand between any two of these.
//!
//! # What a name stands for
//! * In `HEAD/.../` the head is a PMU, or several with a number behind that name (`uncore_imc` is
//!   `uncore_imc_0` and `uncore_imc_1`), or else an event as below that takes terms too.
//! * Otherwise it is one of the kernel's own events (`cycles`, `page-faults`,
//!   `L1-dcache-load-misses`), a raw number for the CPU's PMU (`r11`), or an event that a PMU
//!   lists in sysfs.
//! * On machines with several kinds of CPU the kernel's hardware events stand for one event on
//!   each kind, with the PMU's number in the upper half of `config`, as in perf. Raw numbers do
//!   here as well; perf leaves those to a PMU that the kernel picks.
//! * A term is a field of the PMU (`long=1`; 1 when no value is given), an event of the PMU, or
//!   one of `config`, `config1` to `config4`, `name`, `period`, `freq`, `inherit`, `no-inherit`.
//!   A field that is given beside an event replaces what the event sets there. Two terms that
//!   contradict each other are refused; perf would combine their bits into a third event.
//!
//! # Why the parser is written by hand
//! The grammar above has six rules and nothing recursive, and each is one short function that
//! says what it expected. With a parser library the rules take about as many lines, and the
//! positions and the expectations, which make up the rest, have to be threaded through its error
//! type.
//!
//! ```
//! use perfshim::discovery::Pmus;
//! use perfshim::spec;
//!
//! let pmus = Pmus::default(); // `Pmus::system()` to know this machine's
//! let groups = spec::resolve("{task-clock,cycles}:u,page-faults", &pmus)?;
//! assert_eq!(groups.len(), 2);
//! let attr = groups[0].events[1].counting();
//!
//! let error = spec::resolve("cycels", &pmus).unwrap_err();
//! assert_eq!(error.suggestions()[0], "cycles");
//! # Ok::<(), spec::SpecError>(())
//! ```

mod ast;
mod error;
mod names;
mod near;
mod parse;
mod resolve;
mod terms;

pub use ast::Entry;
pub use ast::EventList;
pub use ast::EventSpec;
pub use ast::GroupSpec;
pub use ast::Modifiers;
pub use ast::Term;
pub use error::Span;
pub use error::SpecError;
pub use resolve::ResolvedEvent;
pub use resolve::ResolvedGroup;

use crate::discovery::Pmus;

/// Reads a list of events without asking whether there are such.
///
/// # Errors
/// When the text does not follow the grammar; says where, and what was expected.
pub fn parse(text: &str) -> Result<EventList, SpecError> {
    parse::event_list(text)
}

/// Finds the PMU, the type and the config words of each event in the list.
///
/// A list entry becomes one [`ResolvedGroup`], or several when several PMUs serve it.
///
/// # Errors
/// When the text does not follow the grammar, or when a PMU, an event or a field is unknown here.
pub fn resolve(text: &str, pmus: &Pmus) -> Result<Vec<ResolvedGroup>, SpecError> {
    let list = parse(text)?;
    let groups = list.entries.iter().map(|entry| {
        let groups = resolve::entry(entry, pmus);
        groups.map_err(|error| error.in_text(text))
    });
    let groups: Vec<_> = groups.collect::<Result<_, _>>()?;
    Ok(groups.into_iter().flatten().collect())
}

/// The names that stand for an event on any machine, in the spelling that perf lists.
pub fn kernel_event_names() -> impl Iterator<Item = String> {
    names::all()
}
