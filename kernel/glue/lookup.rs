// SPDX-License-Identifier: GPL-2.0

//! Functions that the kernel has but does not export, looked up when the module is loaded.
//!
//! A PMU that samples needs two of them. In tree they are exported; this file is for kernels that
//! are as they are. A kprobe is registered for each function, which tells its address, and removed
//! at once.

use core::{
    mem::transmute,
    ptr::null_mut,
    sync::atomic::{
        AtomicPtr,
        Ordering::Relaxed, //
    },
};
use kernel::{
    bindings as kernel_bindings,
    error::to_result,
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*, //
};

use super::bindings::{
    perf_event,
    perf_sample_data, //
};

/// A function that is looked up.
///
/// # Invariants
///
/// `address` is null or the address of the kernel function `name`.
struct Function {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Function {
    const fn new(name: &'static CStr) -> Self {
        // INVARIANT: The address is null.
        Self {
            name,
            address: AtomicPtr::new(null_mut()),
        }
    }

    fn look_up(&self) -> Result {
        // SAFETY: All fields may be zero.
        let mut probe: kernel_bindings::kprobe = unsafe { core::mem::zeroed() };
        probe.symbol_name = self.name.as_char_ptr();
        // Only the address is wanted: the function, which may be running, is left as it is.
        probe.flags = kernel_bindings::KPROBE_FLAG_DISABLED;

        // SAFETY: `probe` names a symbol and has no handlers. It stays here until it is
        // unregistered.
        to_result(unsafe { kernel_bindings::register_kprobe(&mut probe) })?;

        let address = probe.addr;

        // SAFETY: It was registered.
        unsafe { kernel_bindings::unregister_kprobe(&mut probe) };

        // INVARIANT: A probe without an offset is put on the first instruction of its function.
        self.address.store(address.cast(), Relaxed);
        Ok(())
    }
}

static OVERFLOW: Function = Function::new(c"perf_event_overflow");
static EVENT_TOOK: Function = Function::new(c"perf_sample_event_took");

/// Looks up all functions. To be called when the module is loaded, before anything else.
///
/// Fails, and names the function in the kernel log, if one is missing.
pub fn init() -> Result {
    for function in [&OVERFLOW, &EVENT_TOOK] {
        function.look_up().inspect_err(|error| {
            pr_err!(
                "this kernel has no {} that kprobes can find ({error:?}): it takes 7.3 with \
                 CONFIG_KPROBES, CONFIG_KALLSYMS and CONFIG_PERF_EVENTS\n",
                function.name.to_str().unwrap_or("function")
            )
        })?;
    }
    Ok(())
}

/// Takes a sample. C's `perf_event_overflow()`.
///
/// # Safety
///
/// As for the C function: `event` must be scheduled on this CPU, `data` initialised, `regs` those
/// of the interrupted code, and interrupts off.
#[inline]
pub unsafe fn perf_event_overflow(
    event: *mut perf_event,
    data: *mut perf_sample_data,
    regs: *mut kernel_bindings::pt_regs,
) -> c_int {
    type Overflow = unsafe extern "C" fn(
        *mut perf_event,
        *mut perf_sample_data,
        *mut kernel_bindings::pt_regs,
    ) -> c_int;

    let address = OVERFLOW.address.load(Relaxed);
    if address.is_null() {
        return 0;
    }

    // SAFETY: By the type invariant this is the address of the function, which has this type.
    let function = unsafe { transmute::<*mut c_void, Overflow>(address) };

    // SAFETY: The caller keeps what the function requires.
    unsafe { function(event, data, regs) }
}

/// Accounts the time that a sample took. C's `perf_sample_event_took()`.
///
/// # Safety
///
/// As for the C function: it must be called in interrupt context.
#[inline]
pub unsafe fn perf_sample_event_took(nanoseconds: u64) {
    type EventTook = unsafe extern "C" fn(u64);

    let address = EVENT_TOOK.address.load(Relaxed);
    if address.is_null() {
        return;
    }

    // SAFETY: By the type invariant this is the address of the function, which has this type.
    let function = unsafe { transmute::<*mut c_void, EventTook>(address) };

    // SAFETY: The caller keeps what the function requires.
    unsafe { function(nanoseconds) }
}
