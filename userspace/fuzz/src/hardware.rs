// SPDX-License-Identifier: MIT OR Apache-2.0
//! What user space can see of an Arm PMU's counters.
//!
//! With `kernel.perf_user_access` set, a task that has an event with `config1:rdpmc` may read all
//! counters, and the kernel clears those that no event uses. So they tell which counters events are
//! on and what the driver wrote there. (With FEAT_PMUv3p9 the task sees those of its own events
//! with that bit; the others read as 0.)

#[cfg(target_arch = "aarch64")]
mod arm64 {
    use std::arch::asm;
    use std::ffi::{c_int, c_void};
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Set when a counter could not be read.
    static REFUSED: AtomicBool = AtomicBool::new(false);

    /// Steps over the instruction that was refused.
    extern "C" fn refuse(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        REFUSED.store(true, Ordering::Relaxed);
        // SAFETY: the kernel passes the context of the interrupted code, to which it returns with
        // what is in there. The instructions below are 4 bytes long.
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc += 4 };
    }

    pub fn catch_refusals() {
        // SAFETY: all zeros is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = refuse as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: `refuse` has the signature that SA_SIGINFO asks for, and calls nothing.
        unsafe { libc::sigaction(libc::SIGILL, &raw const action, ptr::null_mut()) };
    }

    pub fn event_counter(index: u64) -> Option<u64> {
        REFUSED.store(false, Ordering::Relaxed);
        let value: u64;
        // SAFETY: selects and reads a counter, in registers that are of no other use to this
        // thread. Where that is not allowed, `refuse` steps over it.
        unsafe {
            asm!(
                "mov {value}, xzr",
                "msr pmselr_el0, {index}",
                "isb",
                "mrs {value}, pmxevcntr_el0",
                index = in(reg) index,
                value = out(reg) value,
                options(nostack)
            )
        };
        (!REFUSED.load(Ordering::Relaxed)).then_some(value)
    }

    pub fn cycle_counter() -> Option<u64> {
        REFUSED.store(false, Ordering::Relaxed);
        let value: u64;
        // SAFETY: reads a counter. Where that is not allowed, `refuse` steps over it.
        unsafe {
            asm!("mov {value}, xzr", "mrs {value}, pmccntr_el0", value = out(reg) value, options(nostack))
        };
        (!REFUSED.load(Ordering::Relaxed)).then_some(value)
    }
}

#[cfg(not(target_arch = "aarch64"))]
mod other {
    pub fn catch_refusals() {}

    pub fn event_counter(_: u64) -> Option<u64> {
        None
    }

    pub fn cycle_counter() -> Option<u64> {
        None
    }
}

#[cfg(target_arch = "aarch64")]
use arm64 as cpu;
#[cfg(not(target_arch = "aarch64"))]
use other as cpu;

/// The cycle counter's index.
const CYCLE: u64 = 31;

/// The right to look at counters: without it, a look could be the program's end.
pub struct Counters {
    event_counters: u64,
}

impl Counters {
    /// Of a PMU with so many event counters.
    pub fn new(event_counters: u64) -> Self {
        cpu::catch_refusals();
        Self { event_counters }
    }

    /// The counters that are in use now, by index, each with the bits of its value from bit 28 up:
    /// the start that the driver gave it, whatever it has counted since. `None`: user space may
    /// not look.
    pub fn in_use(&self) -> Option<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for index in (0..self.event_counters).chain([CYCLE]) {
            let value = match index {
                CYCLE => cpu::cycle_counter(),
                _ => cpu::event_counter(index),
            }?;
            if value != 0 {
                found.push((index, value >> 28));
            }
        }
        Some(found)
    }
}
