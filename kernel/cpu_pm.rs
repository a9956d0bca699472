// SPDX-License-Identifier: GPL-2.0

//! CPUs that lose their registers while they idle, or while the system is suspended.
//!
//! A driver with something in the registers of each CPU implements [`Callbacks`] and
//! [registers](register) it with the device that it drives.
//!
//! C header: [`include/linux/cpu_pm.h`](srctree/include/linux/cpu_pm.h)
//!
//! # Examples
//!
//! ```
//! use kernel::{
//!     cpu_pm::{
//!         self,
//!         Registers, //
//!     },
//!     device::{
//!         Bound,
//!         Device, //
//!     },
//!     percpu::{
//!         LocalCell,
//!         OnCpu,
//!         PerCpu, //
//!     }, //
//! };
//!
//! /// How often each CPU lost its registers.
//! struct Losses(PerCpu<LocalCell<u64>>);
//!
//! impl cpu_pm::Callbacks for Losses {
//!     fn enter(&self, _cpu: &OnCpu<'_>) {}
//!
//!     fn exit(&self, cpu: &OnCpu<'_>, registers: Registers) {
//!         if registers == Registers::Lost {
//!             let losses = self.0.get(cpu);
//!             losses.store(losses.load() + 1);
//!         }
//!     }
//! }
//!
//! # #[allow(dead_code)]
//! fn probe(dev: &Device<Bound>) -> Result {
//!     let losses = PerCpu::new(|_cpu| LocalCell::new(0u64))?;
//!
//!     cpu_pm::register(dev, Losses(losses))
//! }
//! ```

use crate::{
    bindings,
    percpu::OnCpu, //
};
use core::{
    marker::PhantomPinned,
    pin::Pin, //
};
use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres,
    ffi::{
        c_int,
        c_ulong,
        c_void, //
    },
    prelude::*,
    types::Opaque, //
};

/// What became of the registers of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// They hold anything.
    Lost,
    /// The CPU did not get as far as to lose them.
    Kept,
}

/// What to do when a CPU is about to lose its registers and when it is back.
///
/// Both run on that CPU with interrupts off; they must not sleep.
pub trait Callbacks: Send + Sync + 'static {
    /// The CPU is about to lose its registers.
    fn enter(&self, cpu: &OnCpu<'_>);

    /// The CPU is back. That may be the first call for it, when it was away at registration.
    fn exit(&self, cpu: &OnCpu<'_>, registers: Registers);
}

/// Registers `callbacks` until `dev` is unbound. A kernel without `CONFIG_CPU_PM` never calls them.
pub fn register<C: Callbacks, E>(dev: &Device<Bound>, callbacks: impl PinInit<C, E>) -> Result
where
    Error: From<E>,
{
    devres::register::<_, Error>(dev, Registration::new(callbacks), GFP_KERNEL)
}

/// Callbacks that are registered.
///
/// # Invariants
///
/// `block` is in the kernel's list, if the kernel has one.
#[pin_data(PinnedDrop)]
struct Registration<C: Callbacks> {
    #[pin]
    callbacks: C,
    #[pin]
    block: Opaque<bindings::notifier_block>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The block is used by the kernel under its own lock and by no other code; the callbacks
// are `Send` and `Sync`.
unsafe impl<C: Callbacks> Send for Registration<C> {}

// SAFETY: As above; a shared registration has no methods.
unsafe impl<C: Callbacks> Sync for Registration<C> {}

impl<C: Callbacks> Registration<C> {
    fn new<E>(callbacks: impl PinInit<C, E>) -> impl PinInit<Self, Error>
    where
        Error: From<E>,
    {
        try_pin_init!(&this in Self {
            callbacks <- callbacks,
            block <- Opaque::ffi_init(|block: *mut bindings::notifier_block| {
                // SAFETY: `block` is ours; its other fields may be zero.
                unsafe {
                    block.write_bytes(0, 1);
                    (*block).notifier_call = Some(notify::<C>);
                }
            }),
            _pin: PhantomPinned,
            // INVARIANT: It is added, or this fails.
            _: {
                // SAFETY: `this` is valid for the initialisation.
                let block = Opaque::cast_into(unsafe { &raw const (*this.as_ptr()).block });

                // SAFETY: The callbacks are initialised, and all stays in place until `PinnedDrop`
                // removes the block.
                unsafe { add(block) }?;
            },
        }? Error)
    }
}

#[pinned_drop]
impl<C: Callbacks> PinnedDrop for Registration<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the block is in the list.
        unsafe { remove(self.block.get()) };
    }
}

/// Puts `block` into the kernel's list, if the kernel has one.
///
/// # Safety
///
/// `block` must be valid, and its function callable, until [`remove`].
unsafe fn add(block: *mut bindings::notifier_block) -> Result {
    #[cfg(CONFIG_CPU_PM)]
    // SAFETY: The caller vouches for `block`.
    kernel::error::to_result(unsafe { bindings::cpu_pm_register_notifier(block) })?;

    let _ = block;
    Ok(())
}

/// Takes `block` out of the list, and waits for the calls that are under way.
///
/// # Safety
///
/// `block` must have been [added](add).
unsafe fn remove(block: *mut bindings::notifier_block) {
    #[cfg(CONFIG_CPU_PM)]
    // SAFETY: The caller vouches for `block`. It cannot fail for one that is in the list.
    let _ = unsafe { bindings::cpu_pm_unregister_notifier(block) };

    let _ = block;
}

/// # Safety
///
/// To be called by the kernel only, with the `block` of a `Registration<C>`.
unsafe extern "C" fn notify<C: Callbacks>(
    block: *mut bindings::notifier_block,
    event: c_ulong,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: `block` is in a `Registration<C>` that lives as long as it is in the list.
    let this = unsafe {
        &*kernel::container_of!(Opaque::cast_from(block).cast_mut(), Registration<C>, block)
    };

    // SAFETY: The kernel calls this on the CPU that it is about, with interrupts off.
    let on = unsafe { OnCpu::current() };

    // The numbers are small ones.
    match event as bindings::cpu_pm_event {
        bindings::cpu_pm_event_CPU_PM_ENTER => this.callbacks.enter(&on),
        bindings::cpu_pm_event_CPU_PM_ENTER_FAILED => this.callbacks.exit(&on, Registers::Kept),
        bindings::cpu_pm_event_CPU_PM_EXIT => this.callbacks.exit(&on, Registers::Lost),
        _ => return bindings::NOTIFY_DONE as c_int,
    }
    bindings::NOTIFY_OK as c_int
}
