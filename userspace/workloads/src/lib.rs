// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs whose instruction counts, call chains and profiles are known in advance.
//!
//! The oracles of the tests come from here: a counter that sees [`run_loop`] must grow by
//! exactly [`INSTRUCTIONS_PER_ITERATION`] per iteration, and a sample taken inside it must have
//! its address in [`loop_range`] and the frames of [`return_addresses`] behind it.
//!
//! The loop is assembly (asm/loop_ARCH.S) for arm64 and x86-64, with the same counts on both;
//! the call chains are C (c/calls.c), compiled with frame pointers.

pub mod el0;

use std::io;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

/// Instructions that one iteration of [`run_loop`] retires.
pub const INSTRUCTIONS_PER_ITERATION: u64 = 10;

/// Instructions that [`run_loop`] retires before and after its iterations.
pub const INSTRUCTIONS_PER_CALL: u64 = 6;

unsafe extern "C" {
    fn workload_loop(iterations: u64);
    fn workload_loop_end();
    fn workload_calls(depth: u64, iterations: u64) -> u64;
    fn workload_return_addresses(out: *mut u64, capacity: usize) -> usize;
    fn workload_fork(iterations: u64) -> libc::c_int;
}

/// Runs the counted loop: `iterations` x [`INSTRUCTIONS_PER_ITERATION`] +
/// [`INSTRUCTIONS_PER_CALL`] instructions when `iterations` is at least 1, all in user mode, none
/// of them a load or store inside the loop.
#[inline(never)]
pub fn run_loop(iterations: u64) {
    // SAFETY: the loop uses only registers that a callee may clobber, and one frame record.
    unsafe { workload_loop(iterations) }
}

/// The addresses of the counted loop's code, the function's end not included.
pub fn loop_range() -> Range<u64> {
    workload_loop as usize as u64..workload_loop_end as usize as u64
}

/// Runs the counted loop under `depth` frames of the C function `workload_calls` (at least one).
///
/// Returns the number of those frames. `depth` up to 10,000 fits any usual stack.
#[inline(never)]
pub fn run_calls(depth: u64, iterations: u64) -> u64 {
    // SAFETY: plain recursion; a stack that is too small ends in its guard page.
    // The black box keeps the call from becoming a jump, which would take this function out of
    // the chain.
    std::hint::black_box(unsafe { workload_calls(depth, iterations) })
}

/// The return addresses on the calling thread's stack, innermost first, up to `capacity` of
/// them: the oracle for a call chain, from the architecture's frame records.
#[inline(never)]
pub fn return_addresses(capacity: usize) -> Vec<u64> {
    let mut addresses = vec![0; capacity];
    // SAFETY: `addresses` has room for `capacity` entries. The frame records are whole, since
    // everything of this program that calls anything keeps its frame pointer.
    let n = unsafe { workload_return_addresses(addresses.as_mut_ptr(), capacity) };
    addresses.truncate(n);
    addresses
}

/// Runs the counted loop in a forked child and waits for it.
///
/// # Errors
/// That of fork or wait, or `ECHILD` when the child did not end well.
pub fn run_fork(iterations: u64) -> io::Result<()> {
    // SAFETY: the child runs only the loop and _exit, which are safe after fork.
    match unsafe { workload_fork(iterations) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Runs the counted loop once in each of `threads` new threads at the same time.
pub fn run_threads(threads: usize, iterations: u64) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| run_loop(iterations));
        }
    });
}

/// Alternates the counted loop with sleeps of `pause`, `rounds` times, as a program that waits
/// for something does. Each sleep makes the kernel take its events off the counters and put them
/// back.
pub fn run_with_sleeps(rounds: u64, iterations: u64, pause: Duration) {
    for _ in 0..rounds {
        run_loop(iterations);
        thread::sleep(pause);
    }
}

/// Runs the counted loop, in slices, until `time` has passed. Returns the iterations done.
pub fn run_for(time: Duration) -> u64 {
    const SLICE: u64 = 10_000;
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed() < time {
        run_loop(SLICE);
        done += SLICE;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_has_code_between_its_labels() {
        let range = loop_range();
        assert!(range.start < range.end);
        // Twelve to sixteen instructions of at most seven bytes.
        assert!(range.end - range.start < 128, "{range:x?}");
    }

    #[test]
    fn the_loop_ends_for_none_and_some_iterations() {
        run_loop(0);
        run_loop(1);
        run_loop(1_000);
    }

    #[test]
    fn calls_are_as_deep_as_asked() {
        assert_eq!(run_calls(1, 1), 1);
        assert_eq!(run_calls(7, 1), 7);
        assert_eq!(run_calls(1_000, 1), 1_000);
    }

    #[test]
    fn fork_and_threads_end() {
        run_fork(10).unwrap();
        run_threads(3, 10);
        run_with_sleeps(2, 10, Duration::from_micros(10));
        assert!(run_for(Duration::from_millis(1)) > 0);
    }
}
