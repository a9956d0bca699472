// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placeholder until the first real commit of this crate.
fn main() {}
