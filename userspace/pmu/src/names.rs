// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors in the names of events, for a terminal.

use perfshim::spec::SpecError;

/// The error with the place that is wrong marked below what was written.
pub fn explain(error: SpecError) -> anyhow::Error {
    let pointer = error.pointer();
    anyhow::anyhow!("{error}; `pmu list` shows what there is\n{pointer}")
}
