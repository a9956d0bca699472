// SPDX-License-Identifier: GPL-2.0

//! CPU hotplug callbacks.
//!
//! A driver with something on each CPU, such as registers that lose their contents when the CPU
//! is off, implements [`Callbacks`] and [registers](register) it with the device that it drives.
//!
//! The callbacks run on the CPU that comes or goes, in its hotplug thread (state
//! `CPUHP_AP_ONLINE_DYN`, see [`Documentation/core-api/cpu_hotplug.rst`]): `online` when it is up,
//! `offline` when it will go down. They may sleep, but not wait for hotplug or change who is
//! registered.
//!
//! A CPU whose going down fails later gets `online` again. Perf schedules events on a new CPU
//! before `online` is called and takes them away from a leaving one after `offline`. A CPU whose
//! coming up fails in between has had events and gets neither.
//!
//! C header: [`include/linux/cpuhotplug.h`](srctree/include/linux/cpuhotplug.h)
//!
//! [`Documentation/core-api/cpu_hotplug.rst`]: srctree/Documentation/core-api/cpu_hotplug.rst
//!
//! # Examples
//!
//! ```
//! use kernel::{
//!     cpuhp,
//!     device::{
//!         Bound,
//!         Device, //
//!     },
//!     percpu::{
//!         LocalCell,
//!         PerCpu, //
//!     }, //
//! };
//!
//! /// Which CPUs have been set up.
//! struct Ready(PerCpu<LocalCell<bool>>);
//!
//! impl cpuhp::Callbacks for Ready {
//!     const NAME: &'static CStr = c"example:online";
//!
//!     fn online(&self, cpu: &cpuhp::Transition<'_>) -> Result {
//!         // What an interrupt must not see half done.
//!         cpu.with_interrupts_off(|cpu| self.0.get(cpu).store(true))
//!     }
//!
//!     fn offline(&self, cpu: &cpuhp::Transition<'_>) {
//!         self.0.here(cpu).store(false);
//!     }
//! }
//!
//! # #[allow(dead_code)]
//! fn probe(dev: &Device<Bound>) -> Result {
//!     let ready = PerCpu::new(|_cpu| LocalCell::new(false))?;
//!
//!     // When this returns, `online` has run on each CPU.
//!     cpuhp::register(dev, Ready(ready))
//! }
//! ```

use crate::{
    bindings,
    percpu::{
        OnCpu,
        PerCpu, //
    },
    smp, //
};
use core::{
    marker::{
        PhantomData,
        PhantomPinned, //
    },
    pin::Pin, //
};
use kernel::{
    cpu::CpuId,
    device::{
        Bound,
        Device, //
    },
    devres,
    error::to_result,
    ffi::{
        c_int,
        c_uint, //
    },
    prelude::*,
    types::Opaque, //
};

/// Proof that this CPU is changing its hotplug state.
///
/// Hotplug waits until the callback is over, so the state of this CPU cannot change meanwhile, and
/// no lock of the scheduler or of perf is held.
///
/// # Invariants
///
/// While the value exists, the code that owns it is called by the hotplug thread of `cpu`, which is
/// bound to `cpu`, and which is on line.
pub struct Transition<'a> {
    cpu: CpuId,
    // Neither `Send` nor `Sync`: another thread may be on another CPU.
    _here: PhantomData<(&'a (), *mut ())>,
}

impl Transition<'_> {
    /// The CPU. It runs this code.
    #[inline]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Calls `function` with interrupts off; it must neither sleep nor take long.
    ///
    /// It does not fail: that is for calls to other CPUs, which are the way to have interrupts off
    /// in any kernel ([`local_interrupt_disable()`] does so only in preemptible ones).
    ///
    /// [`local_interrupt_disable()`]: kernel::interrupt::local_interrupt_disable
    pub fn with_interrupts_off<R: Send>(
        &self,
        function: impl FnOnce(&OnCpu<'_>) -> R + Send,
    ) -> Result<R> {
        // By the type invariant this is the CPU itself, so the function is called at once.
        smp::call(self.cpu, function)
    }
}

impl<T: Send + Sync + 'static> PerCpu<T> {
    /// The value of the CPU that comes or goes. Interrupts are on: what they run may use it, too.
    #[inline]
    pub fn here<'a>(&'a self, cpu: &'a Transition<'_>) -> &'a T {
        // SAFETY: A CPU that runs code is a possible one.
        unsafe { self.on_possible(cpu.cpu) }
    }
}

/// What to do when a CPU comes or goes.
pub trait Callbacks: Send + Sync + 'static {
    /// Shows up in `/sys/devices/system/cpu/hotplug/states`, by convention as `driver:online`.
    const NAME: &'static CStr;

    /// Called on a CPU that is up. An error takes the CPU down again, or fails the registration.
    fn online(&self, cpu: &Transition<'_>) -> Result;

    /// Called on a CPU that will go down, or when the registration ends. Here a PMU of the whole
    /// system moves its events to another CPU.
    fn offline(&self, cpu: &Transition<'_>);
}

/// Registers `callbacks` until `dev` is unbound; `online` is called on each CPU that is up.
///
/// When `dev` is unbound, `offline` is called on each CPU that is up, after what was registered on
/// `dev` later has been released.
///
/// Fails with [`ENOSPC`] when the kernel has no dynamic hotplug state left, and with the error
/// that `online` returned. Then `offline` has been called on each CPU whose `online` succeeded,
/// before `callbacks` are dropped.
pub fn register<C: Callbacks, E>(dev: &Device<Bound>, callbacks: impl PinInit<C, E>) -> Result
where
    Error: From<E>,
{
    devres::register::<_, Error>(dev, Registration::new(callbacks), GFP_KERNEL)
}

/// A dynamic hotplug state.
///
/// # Invariants
///
/// `0` is a multi-instance state that `__cpuhp_setup_state()` has given to us.
struct State(bindings::cpuhp_state);

/// C's type of a callback that belongs to an instance.
type Callback = unsafe extern "C" fn(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int;

/// The type that `__cpuhp_setup_state()` declares for it.
type PlainCallback = unsafe extern "C" fn(cpu: c_uint) -> c_int;

impl State {
    fn new<C: Callbacks>() -> Result<Self> {
        // SAFETY: For a multi-instance state the kernel calls the pointers with the type
        // `Callback`; the other one only serves to pass them, as `cpuhp_setup_state_multi()` does
        // through `void *`.
        let plain = |callback| unsafe { core::mem::transmute::<Callback, PlainCallback>(callback) };

        // SAFETY: The callbacks are functions of this module and the name is static; both outlive
        // the state, which `Self::drop()` removes.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                C::NAME.as_char_ptr(),
                false,
                Some(plain(online::<C>)),
                Some(plain(offline::<C>)),
                true,
            )
        };
        to_result(state)?;

        // INVARIANT: For a dynamic range the result is the state that was reserved. States are
        // small, so the type of the result does not matter.
        Ok(Self(state as bindings::cpuhp_state))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: By the type invariant `self.0` is ours. It has no instances: whoever added one
        // has removed it.
        unsafe { bindings::__cpuhp_remove_state(self.0, false) };
    }
}

/// Callbacks that are registered.
///
/// # Invariants
///
/// `node` is in the list of `state`, whose callbacks expect it in a `Self`.
#[pin_data(PinnedDrop)]
struct Registration<C: Callbacks> {
    #[pin]
    callbacks: C,
    #[pin]
    node: Opaque<bindings::hlist_node>,
    state: State,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The node is used by the hotplug core under its own lock and by no other code; the
// callbacks are `Send` and `Sync`; a state belongs to no thread.
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
            node <- Opaque::zeroed(),
            state: State::new::<C>()?,
            _pin: PhantomPinned,
            // INVARIANT: It is in the list, or this fails.
            _: {
                let this = this.as_ptr();

                // SAFETY: `this` is valid for the initialisation.
                let (state, node) = unsafe {
                    ((*this).state.0, Opaque::cast_into(&raw const (*this).node))
                };

                // SAFETY: All other fields are initialised, and they stay in place until
                // `PinnedDrop` removes the node; a zeroed node is in no list. The callbacks of the
                // state expect it in a `Registration<C>`.
                to_result(unsafe { bindings::__cpuhp_state_add_instance(state, node, true) })?;
            },
        }? Error)
    }
}

#[pinned_drop]
impl<C: Callbacks> PinnedDrop for Registration<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the node is in the list. Removing it waits until no
        // callback runs, so none uses `self` any more. It cannot fail for a multi-instance state.
        let _ =
            unsafe { bindings::__cpuhp_state_remove_instance(self.state.0, self.node.get(), true) };
    }
}

/// The registration and the CPU that a callback is about.
///
/// # Safety
///
/// `cpu` and `node` must be what the hotplug core calls `online::<C>` or `offline::<C>` with, and
/// `'a` must end before that returns.
#[inline(always)]
unsafe fn parts<'a, C: Callbacks>(
    cpu: c_uint,
    node: *mut bindings::hlist_node,
) -> (&'a Registration<C>, Transition<'a>) {
    // SAFETY: `node` is in a `Registration<C>`, which lives until the node has been removed from
    // the list, or adding it has failed, and so until the callback returns.
    let this = unsafe {
        &*kernel::container_of!(Opaque::cast_from(node).cast_mut(), Registration<C>, node)
    };

    // INVARIANT: The callbacks of this state are called by the hotplug thread of the CPU (each has
    // one since before there are drivers), and the CPU is on line before the first and after the
    // last of them.
    let transition = Transition {
        // SAFETY: The hotplug core passes valid CPU IDs.
        cpu: unsafe { CpuId::from_u32_unchecked(cpu) },
        _here: PhantomData,
    };

    (this, transition)
}

/// # Safety
///
/// To be called by the hotplug core only, with the node of a `Registration<C>`.
unsafe extern "C" fn online<C: Callbacks>(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: The hotplug core passes them, and this is `online::<C>`.
    let (this, cpu) = unsafe { parts::<C>(cpu, node) };

    match this.callbacks.online(&cpu) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// To be called by the hotplug core only, with the node of a `Registration<C>`.
unsafe extern "C" fn offline<C: Callbacks>(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: The hotplug core passes them, and this is `offline::<C>`.
    let (this, cpu) = unsafe { parts::<C>(cpu, node) };

    this.callbacks.offline(&cpu);
    0
}

#[kunit_tests(rust_cpuhp)]
mod tests {
    use super::*;
    use core::convert::Infallible;
    use kernel::sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    };

    /// Counts the CPUs that have been told that they are up, and not that they will go down. It
    /// refuses the last one of `most`.
    struct Up {
        cpus: Arc<Atomic<i32>>,
        most: i32,
    }

    impl Callbacks for Up {
        const NAME: &'static CStr = c"rust/test:online";

        fn online(&self, cpu: &Transition<'_>) -> Result {
            let here = cpu.cpu();

            assert_eq!(here, CpuId::current());
            cpu.with_interrupts_off(|on| assert_eq!(on.cpu(), here))?;

            if self.cpus.load(Relaxed) + 1 == self.most {
                return Err(EIO);
            }
            self.cpus.fetch_add(1, Relaxed);
            Ok(())
        }

        fn offline(&self, _cpu: &Transition<'_>) {
            self.cpus.fetch_sub(1, Relaxed);
        }
    }

    fn register(cpus: &Arc<Atomic<i32>>, most: i32) -> Result<Pin<KBox<Registration<Up>>>> {
        let up = Up {
            cpus: cpus.clone(),
            most,
        };

        KBox::try_pin_init(Registration::new::<Infallible>(up), GFP_KERNEL)
    }

    #[test]
    fn a_registration_is_undone_when_it_ends_or_a_cpu_refuses() -> Result {
        let up = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let all = smp::cpus(smp::online()).count() as i32;

        // There are fewer states than this, so each has to be given back.
        for _ in 0..100 {
            assert_eq!(register(&up, all).err(), Some(EIO));
            assert_eq!(up.load(Relaxed), 0);

            let registration = register(&up, all + 1)?;
            assert_eq!(up.load(Relaxed), all);
            drop(registration);
            assert_eq!(up.load(Relaxed), 0);
        }
        Ok(())
    }
}
