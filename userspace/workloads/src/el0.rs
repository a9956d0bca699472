// SPDX-License-Identifier: MIT OR Apache-2.0
//! What user space does with the CPU itself.

/// The number of the cycle counter.
pub const CYCLE_COUNTER: u32 = 31;

/// Reads a counter of the PMU by its number, 0 to 5 or [`CYCLE_COUNTER`]; `None` if QEMU's CPUs have
/// no such counter. Ends the process with SIGILL where the kernel does not allow it.
#[cfg(target_arch = "aarch64")]
pub fn read_counter(number: u32) -> Option<u64> {
    macro_rules! mrs {
        ($register:literal) => {{
            let value: u64;
            // SAFETY: reading a system register changes nothing; without permission it traps.
            unsafe {
                std::arch::asm!(
                    concat!("mrs {}, ", $register),
                    out(reg) value,
                    options(nomem, nostack, preserves_flags)
                );
            }
            value
        }};
    }
    Some(match number {
        0 => mrs!("pmevcntr0_el0"),
        1 => mrs!("pmevcntr1_el0"),
        2 => mrs!("pmevcntr2_el0"),
        3 => mrs!("pmevcntr3_el0"),
        4 => mrs!("pmevcntr4_el0"),
        5 => mrs!("pmevcntr5_el0"),
        CYCLE_COUNTER => mrs!("pmccntr_el0"),
        _ => return None,
    })
}

/// There is no such counter on other machines.
#[cfg(not(target_arch = "aarch64"))]
pub fn read_counter(_number: u32) -> Option<u64> {
    None
}

/// Tells the plugin of qemu/plugins that an interval begins or ends: an instruction that does nothing.
pub fn marker() {
    // SAFETY: a register is moved to itself.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mov x9, x9", options(nostack, preserves_flags));
    }
}
