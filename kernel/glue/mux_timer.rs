// SPDX-License-Identifier: GPL-2.0

//! Stops perf core's multiplexing timers before their memory is freed.
//!
//! Each CPU has a timer for each PMU, which rotates events when there are more than counters.
//! `perf_pmu_unregister()` frees the memory that it is in, without stopping it: of the PMUs that
//! exist so far, none that multiplexes can be unregistered. In tree the series mends this in perf
//! core; this file is for kernels that are as they are.
//!
//! Between taking the last event away, after which nobody starts a timer, and freeing the memory,
//! perf core deletes the PMU's device. That runs the device's devres actions, one of which is ours.

use super::{
    bindings,
    percpu::address_on,
    smp, //
};
use kernel::{
    error::to_result,
    ffi::c_void,
    prelude::*, //
};

/// Makes perf core stop the timers of `pmu` when it unregisters it.
///
/// # Safety
///
/// `pmu` must be registered, and stay valid until it is unregistered.
pub(crate) unsafe fn stop_with(pmu: *mut bindings::pmu) -> Result {
    // SAFETY: A registered PMU has a device, which perf core alone deletes. The action is called
    // once, by that deletion, when `pmu` is still valid: the caller vouches for that.
    to_result(unsafe {
        bindings::__devm_add_action(
            (*pmu).dev,
            Some(stop),
            pmu.cast(),
            c"rust_pmu_stop_mux_timers".as_ptr().cast(),
        )
    })
}

/// # Safety
///
/// `pmu` must be a `struct pmu` whose device is being deleted by perf core.
unsafe extern "C" fn stop(pmu: *mut c_void) {
    let pmu: *mut bindings::pmu = pmu.cast();

    // SAFETY: The caller vouches for `pmu`.
    let contexts = unsafe { (*pmu).cpu_pmu_context };

    for cpu in smp::cpus(smp::possible()) {
        // SAFETY: `perf_pmu_register()` has set a pointer for each possible CPU, or had failed, and
        // what they point to is freed after the device. The timers were initialised with it.
        unsafe { bindings::hrtimer_cancel(&raw mut (**address_on(contexts, cpu)).hrtimer) };
    }
}
