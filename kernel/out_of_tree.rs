// SPDX-License-Identifier: GPL-2.0

//! The abstractions as part of a module, for a kernel that does not have them.
//!
//! In tree they are modules of the `kernel` crate. Here they are modules of the driver's crate, and
//! the driver's root imports them, so `crate::perf` and the like mean the same in both homes.

#![allow(dead_code, unreachable_pub, unused_imports)]

pub mod cpu_pm;
pub mod cpuhp;
pub mod madt;
pub mod percpu;
pub mod percpu_irq;
pub mod perf;
pub mod platform_device;
pub mod smp;
pub mod sysctl;

#[path = "glue/lookup.rs"]
mod lookup;
#[path = "glue/mux_timer.rs"]
pub(crate) mod mux_timer;
#[path = "glue/percpu_free.rs"]
pub(crate) mod percpu_free;
#[path = "glue/sysctl_entry.rs"]
pub(crate) mod sysctl_entry;

/// Makes everything ready. To be called once, when the module is loaded, before anything else.
///
/// Fails, and names the function in the kernel log, if the kernel lacks one that is needed.
pub fn init() -> kernel::error::Result {
    // SAFETY: The module is loaded once.
    unsafe { percpu_free::init() };
    lookup::init()
}

/// The kernel's bindings, those of perf, and the functions that had to be looked up.
pub mod bindings {
    #[allow(
        clippy::all,
        clippy::as_underscore,
        clippy::cast_lossless,
        clippy::ptr_as_ptr,
        clippy::ref_as_ptr,
        clippy::undocumented_unsafe_blocks,
        missing_docs,
        non_camel_case_types,
        non_upper_case_globals,
        non_snake_case,
        improper_ctypes,
        unreachable_pub,
        unsafe_op_in_unsafe_fn
    )]
    mod generated {
        include!(env!("RUST_PMU_BINDINGS"));
    }

    pub use generated::*;
    /// C's macro of this name, without what it keeps for `CONFIG_MEM_ALLOC_PROFILING`: that belongs
    /// to a place in a C file. With that option the kernel does not tell who has this memory. In
    /// tree there is a C helper.
    ///
    /// # Safety
    ///
    /// `size` must not be zero, and `align` must be a power of two.
    pub unsafe fn __alloc_percpu_gfp(
        size: usize,
        align: usize,
        gfp: kernel::bindings::gfp_t,
    ) -> *mut kernel::ffi::c_void {
        // SAFETY: The caller keeps what the function requires.
        unsafe { kernel::bindings::pcpu_alloc_noprof(size, align, false, gfp) }
    }

    // Names of the generated bindings come before those of the kernel's, where these are opaque.
    pub use super::lookup::{
        free_nmi,
        free_percpu_nmi,
        perf_cpu_task_ctx,
        perf_event_overflow,
        perf_sample_event_took,
        prepare_percpu_nmi,
        request_nmi,
        request_percpu_nmi,
        teardown_percpu_nmi, //
    };
}
