// SPDX-License-Identifier: GPL-2.0

//! Functions that the kernel has but does not export, looked up when the module is loaded.
//!
//! In tree they are exported; this file is for kernels that are as they are. A kprobe is registered
//! for each function, which tells its address, and removed at once.

use core::{
    mem::transmute,
    ptr::{
        null,
        null_mut, //
    },
    sync::atomic::{
        AtomicPtr,
        Ordering::Relaxed, //
    },
};
use kernel::{
    bindings as kernel_bindings,
    error::to_result,
    ffi::{
        c_char,
        c_int,
        c_uint,
        c_ulong,
        c_void, //
    },
    prelude::*, //
};

use super::bindings::{
    perf_event,
    perf_event_context,
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

/// Looks all functions up.
///
/// Fails, and names the function in the kernel log, if one is missing.
pub(super) fn init() -> Result {
    for function in functions() {
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

/// Makes a function of each of C's that is to be looked up, with what it returns when it was not.
macro_rules! look_up {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $otherwise:expr;
    )*) => {
        mod addresses {
            use super::Function;

            $(
                #[allow(non_upper_case_globals)]
                pub(super) static $name: Function =
                    Function::new(kernel::c_str!(stringify!($name)));
            )*
        }

        fn functions() -> impl Iterator<Item = &'static Function> {
            [$(&addresses::$name),*].into_iter()
        }

        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// As for the C function.
            #[inline]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                type Signature = unsafe extern "C" fn($($type),*) $(-> $result)?;

                let address = addresses::$name.address.load(Relaxed);
                if address.is_null() {
                    return $otherwise;
                }

                // SAFETY: By the type invariant this is the address of the function, which has this
                // type.
                let function = unsafe { transmute::<*mut c_void, Signature>(address) };

                // SAFETY: The caller keeps what the function requires.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

look_up! {
    /// Takes a sample.
    fn perf_event_overflow(
        event: *mut perf_event,
        data: *mut perf_sample_data,
        regs: *mut kernel_bindings::pt_regs
    ) -> c_int = 0;

    /// Accounts the time that a sample took.
    fn perf_sample_event_took(nanoseconds: u64) = ();

    /// The context of the task that runs on this CPU.
    fn perf_cpu_task_ctx() -> *mut perf_event_context = null_mut();

    /// Requests an interrupt as an NMI.
    fn request_nmi(
        irq: c_uint,
        handler: kernel_bindings::irq_handler_t,
        flags: c_ulong,
        name: *const c_char,
        dev_id: *mut c_void
    ) -> c_int = EINVAL.to_errno();

    /// Frees an interrupt that was requested as an NMI.
    fn free_nmi(irq: c_uint, dev_id: *mut c_void) -> *const c_void = null();

    /// Requests a per-CPU interrupt as an NMI.
    fn request_percpu_nmi(
        irq: c_uint,
        handler: kernel_bindings::irq_handler_t,
        name: *const c_char,
        affinity: *const kernel_bindings::cpumask,
        dev_id: *mut c_void
    ) -> c_int = EINVAL.to_errno();

    /// Frees a per-CPU interrupt that was requested as an NMI.
    fn free_percpu_nmi(irq: c_uint, dev_id: *mut c_void) = ();

    /// Makes an interrupt an NMI on this CPU.
    fn prepare_percpu_nmi(irq: c_uint) -> c_int = EINVAL.to_errno();

    /// Makes it an ordinary interrupt again.
    fn teardown_percpu_nmi(irq: c_uint) = ();
}
