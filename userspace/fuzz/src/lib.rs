// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on perf events, chosen at random from a seed.
//!
//! Two programs share them. `fuzz` has several processes do whatever the kernel must survive, at the
//! same time. `parity` does what has one right answer and prints it, so that two drivers can be
//! compared line by line.
//!
//! What is done depends on the seed alone, never on how the kernel answered: equal seeds give equal
//! sequences, and a sequence can be printed without being done. An [`Operation`](operation::Operation)
//! names events, children and processes by slots; what is in them, only
//! [`Process`](process::Process) knows.
//!
//! The system calls are made directly, since perfshim finds mistakes before the kernel can.

pub mod choice;
pub mod gate;
pub mod hardware;
pub mod interleaving;
pub mod machine;
pub mod operation;
pub mod process;
pub mod puppet;
pub mod request;
pub mod ring;
pub mod storm;
pub mod sweep;
pub mod sys;
