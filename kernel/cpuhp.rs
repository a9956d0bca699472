// SPDX-License-Identifier: GPL-2.0

//! CPU hotplug callbacks.
//!
//! A driver with something on each CPU, such as registers that lose their contents when the CPU
//! is off, implements [`Callbacks`] and [registers](register) it with the device that it drives.
//!
//! The callbacks run at these points (see [`Documentation/core-api/cpu_hotplug.rst`]):
//!
//! | the CPU      | callback   | runs on               | interrupts | hotplug state          |
//! | ------------ | ---------- | --------------------- | ---------- | ---------------------- |
//! | will come up | `prepare`  | another CPU           | on         | `CPUHP_BP_PREPARE_DYN` |
//! | is up        | `online`   | it                    | off        | `CPUHP_AP_ONLINE_DYN`  |
//! | will go down | `evacuate` | it; may sleep         | on         | `CPUHP_AP_ONLINE_DYN`  |
//! | will go down | `offline`  | it, just after        | off        | `CPUHP_AP_ONLINE_DYN`  |
//!
//! A CPU whose going down fails later gets `online` again. Perf schedules events on a new CPU
//! before `online` is called and takes them away from a leaving one after `offline`.
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
//! #[vtable]
//! impl cpuhp::Callbacks for Ready {
//!     fn online(&self, cpu: &cpuhp::Transition<'_>) -> Result {
//!         self.0.get(cpu).store(true);
//!         Ok(())
//!     }
//!
//!     fn offline(&self, cpu: &cpuhp::Transition<'_>) {
//!         self.0.get(cpu).store(false);
//!     }
//! }
//!
//! # #[allow(dead_code)]
//! fn probe(dev: &Device<Bound>) -> Result {
//!     let ready = PerCpu::new(|_cpu| LocalCell::new(false))?;
//!
//!     // When this returns, `online` has run on each CPU.
//!     cpuhp::register(dev, c"example:online", Ready(ready))
//! }
//! ```

use crate::{
    bindings,
    percpu::OnCpu,
    smp, //
};
use core::{
    marker::PhantomPinned,
    ops::Deref,
    pin::Pin, //
};
use kernel::{
    cpu::CpuId,
    device::{
        Bound,
        Device, //
    },
    devres,
    error::{
        to_result,
        VTABLE_DEFAULT_ERROR, //
    },
    ffi::{
        c_int,
        c_uint, //
    },
    prelude::*,
    types::Opaque, //
};

/// Proof that this CPU is changing its hotplug state, with interrupts off.
///
/// Hotplug waits until the callback is over, so the state of this CPU cannot change meanwhile, and
/// no lock of the scheduler or of perf is held.
pub struct Transition<'a>(&'a OnCpu<'a>);

impl<'a> Deref for Transition<'a> {
    type Target = OnCpu<'a>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// What to do when a CPU comes or goes.
#[vtable]
pub trait Callbacks: Send + Sync + 'static {
    /// Called before `cpu` comes up, on another CPU; may sleep. An error keeps `cpu` down.
    ///
    /// It is not called for the CPUs that are on line at registration.
    fn prepare(&self, cpu: CpuId) -> Result {
        let _ = cpu;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Called on a CPU that is up. An error takes the CPU down again, or fails the registration.
    fn online(&self, cpu: &Transition<'_>) -> Result;

    /// Called on a CPU that will go down, before [`Callbacks::offline`]; may sleep. Here a PMU of
    /// the whole system moves its events to another CPU.
    fn evacuate(&self, cpu: CpuId) {
        let _ = cpu;
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Called on a CPU that will go down, or when the registration ends.
    fn offline(&self, cpu: &Transition<'_>);
}

/// Registers `callbacks` until `dev` is unbound; `online` is called on each CPU that is up.
///
/// `name` shows up in `/sys/devices/system/cpu/hotplug/states`, by convention as `driver:online`.
/// When `dev` is unbound, `evacuate` and `offline` are called on each CPU that is up, after what
/// was registered on `dev` later has been released.
///
/// Fails with [`ENOSPC`] when the kernel has no dynamic hotplug state left, and with the error
/// that `online` returned.
pub fn register<C: Callbacks, E>(
    dev: &Device<Bound>,
    name: &'static CStr,
    callbacks: impl PinInit<C, E>,
) -> Result
where
    Error: From<E>,
{
    devres::register::<_, Error>(dev, Registration::new(name, callbacks), GFP_KERNEL)
}

/// A dynamic hotplug state without instances.
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
    fn new(
        range: bindings::cpuhp_state,
        name: &'static CStr,
        startup: Callback,
        teardown: Option<Callback>,
    ) -> Result<Self> {
        // SAFETY: For a multi-instance state the kernel calls the pointers with the type
        // `Callback`; the other one only serves to pass them, as `cpuhp_setup_state_multi()` does
        // through `void *`.
        let plain = |callback| unsafe { core::mem::transmute::<Callback, PlainCallback>(callback) };

        // SAFETY: The callbacks are functions of this module and `name` is static; both outlive
        // the state, which `Self::drop()` removes.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                range,
                name.as_char_ptr(),
                false,
                Some(plain(startup)),
                teardown.map(plain),
                true,
            )
        };
        to_result(state)?;

        // INVARIANT: For a dynamic range the result is the state that was reserved. States are
        // small, so the type of the result does not matter.
        Ok(Self(state as bindings::cpuhp_state))
    }

    /// Adds an instance; with `Invoke::Yes` the startup callback is called for each CPU that is
    /// in this state already.
    ///
    /// # Safety
    ///
    /// `node` must be a valid pointer, and stay so until the instance is removed, to a node that
    /// is in no list and that the state's callbacks expect.
    unsafe fn add(&self, node: *mut bindings::hlist_node, invoke: Invoke) -> Result {
        // SAFETY: By the type invariant `self.0` is ours; the caller vouches for `node`.
        to_result(unsafe {
            bindings::__cpuhp_state_add_instance(self.0, node, matches!(invoke, Invoke::Yes))
        })
    }

    /// Removes an instance; with `Invoke::Yes` the teardown callback is called for each CPU that
    /// is in this state.
    ///
    /// # Safety
    ///
    /// `node` must have been added to this state.
    unsafe fn remove(&self, node: *mut bindings::hlist_node, invoke: Invoke) {
        // SAFETY: By the type invariant `self.0` is ours; the caller vouches for `node`. It cannot
        // fail for a multi-instance state.
        let _ = unsafe {
            bindings::__cpuhp_state_remove_instance(self.0, node, matches!(invoke, Invoke::Yes))
        };
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: By the type invariant `self.0` is ours. It has no instances: whoever added one
        // has removed it.
        unsafe { bindings::__cpuhp_remove_state(self.0, false) };
    }
}

enum Invoke {
    Yes,
    No,
}

/// Callbacks that are registered.
///
/// # Invariants
///
/// `online_node` is in the list of `online`, and `prepare_node` in that of `prepare` if there is
/// that state.
#[pin_data(PinnedDrop)]
pub(crate) struct Registration<C: Callbacks> {
    #[pin]
    callbacks: C,
    #[pin]
    prepare_node: Opaque<bindings::hlist_node>,
    #[pin]
    online_node: Opaque<bindings::hlist_node>,
    prepare: Option<State>,
    online: State,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The nodes are used by the hotplug core under its own lock and by no other code; the
// callbacks are `Send` and `Sync`; a state belongs to no thread.
unsafe impl<C: Callbacks> Send for Registration<C> {}

// SAFETY: As above; a shared registration has no methods.
unsafe impl<C: Callbacks> Sync for Registration<C> {}

impl<C: Callbacks> Registration<C> {
    /// What [`register`] registers, for a registration that something else owns.
    pub(crate) fn new<E>(
        name: &'static CStr,
        callbacks: impl PinInit<C, E>,
    ) -> impl PinInit<Self, Error>
    where
        Error: From<E>,
    {
        try_pin_init!(&this in Self {
            callbacks <- callbacks,
            prepare_node <- Opaque::zeroed(),
            online_node <- Opaque::zeroed(),
            prepare: C::HAS_PREPARE
                .then(|| State::new(
                    bindings::cpuhp_state_CPUHP_BP_PREPARE_DYN,
                    name,
                    prepare::<C>,
                    None,
                ))
                .transpose()?,
            online: State::new(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                name,
                online::<C>,
                Some(offline::<C>),
            )?,
            _pin: PhantomPinned,
            // INVARIANT: Both nodes are added or this fails.
            _: {
                let this = this.as_ptr();

                // SAFETY: All other fields are initialised, and they stay in place until
                // `PinnedDrop` removes the node; a zeroed node is in no list. On failure below it
                // is removed at once.
                if let Some(state) = unsafe { &(*this).prepare } {
                    let node = Opaque::cast_into(
                        // SAFETY: `this` is valid for the initialisation.
                        unsafe { &raw const (*this).prepare_node });

                    // SAFETY: As above; `prepare::<C>` expects this node of a `Registration<C>`.
                    unsafe { state.add(node, Invoke::No) }?;
                }

                // SAFETY: `this` is valid for the initialisation.
                let node = Opaque::cast_into(unsafe { &raw const (*this).online_node });

                // SAFETY: As above, with `online::<C>` and `offline::<C>`.
                if let Err(error) = unsafe { (*this).online.add(node, Invoke::Yes) } {
                    // SAFETY: It was added above, if there is that state.
                    unsafe { Self::remove_prepare(this) };
                    return Err(error);
                }
            },
        }? Error)
    }

    /// # Safety
    ///
    /// `this` must be valid, and its `prepare_node` in the list of `prepare`, if there is that
    /// state.
    unsafe fn remove_prepare(this: *const Self) {
        // SAFETY: `this` is valid.
        if let Some(state) = unsafe { &(*this).prepare } {
            // SAFETY: `this` is valid.
            let node = Opaque::cast_into(unsafe { &raw const (*this).prepare_node });

            // SAFETY: The caller vouches for it.
            unsafe { state.remove(node, Invoke::No) };
        }
    }
}

#[pinned_drop]
impl<C: Callbacks> PinnedDrop for Registration<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the node is in the list. Removing it waits until no
        // callback runs, so none uses `self` any more.
        unsafe { self.online.remove(self.online_node.get(), Invoke::Yes) };

        // SAFETY: By the type invariant.
        unsafe { Self::remove_prepare(&*self) };
    }
}

/// Calls `function` with the proof that this CPU, which is `cpu`, is in transition.
fn in_transition<R: Send>(
    cpu: CpuId,
    function: impl FnOnce(&Transition<'_>) -> R + Send,
) -> Result<R> {
    // The hotplug thread is bound to `cpu`, which is on line here: this calls it directly, with
    // interrupts off.
    smp::call(cpu, |on| function(&Transition(on)))
}

fn to_errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// To be called by the hotplug core only, with the `prepare_node` of a `Registration<C>`.
unsafe extern "C" fn prepare<C: Callbacks>(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: `node` is in a `Registration<C>` that lives as long as it is in the list.
    let this = unsafe {
        &*kernel::container_of!(
            Opaque::cast_from(node).cast_mut(),
            Registration<C>,
            prepare_node
        )
    };

    // SAFETY: The hotplug core passes valid CPU IDs.
    let cpu = unsafe { CpuId::from_u32_unchecked(cpu) };

    to_errno(this.callbacks.prepare(cpu))
}

/// The registration and the CPU that a callback for an online state is about.
///
/// # Safety
///
/// `cpu` and `node` must be what the hotplug core calls `online::<C>` or `offline::<C>` with, and
/// `'a` must end before that returns.
unsafe fn online_parts<'a, C: Callbacks>(
    cpu: c_uint,
    node: *mut bindings::hlist_node,
) -> (&'a Registration<C>, CpuId) {
    // SAFETY: `node` is the `online_node` of a `Registration<C>`, which lives as long as the node
    // is in the list, and so until the callback returns.
    let this = unsafe {
        &*kernel::container_of!(
            Opaque::cast_from(node).cast_mut(),
            Registration<C>,
            online_node
        )
    };

    // SAFETY: The hotplug core passes valid CPU IDs.
    (this, unsafe { CpuId::from_u32_unchecked(cpu) })
}

/// # Safety
///
/// To be called by the hotplug core only, with the `online_node` of a `Registration<C>`.
unsafe extern "C" fn online<C: Callbacks>(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: The hotplug core passes them, and this is `online::<C>`.
    let (this, cpu) = unsafe { online_parts::<C>(cpu, node) };

    to_errno(in_transition(cpu, |cpu| this.callbacks.online(cpu)).and_then(|result| result))
}

/// # Safety
///
/// To be called by the hotplug core only, with the `online_node` of a `Registration<C>`.
unsafe extern "C" fn offline<C: Callbacks>(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: The hotplug core passes them, and this is `offline::<C>`.
    let (this, cpu) = unsafe { online_parts::<C>(cpu, node) };

    if C::HAS_EVACUATE {
        this.callbacks.evacuate(cpu);
    }
    to_errno(in_transition(cpu, |cpu| this.callbacks.offline(cpu)))
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

    #[vtable]
    impl Callbacks for Up {
        fn prepare(&self, _cpu: CpuId) -> Result {
            Ok(())
        }

        fn online(&self, _cpu: &Transition<'_>) -> Result {
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

        KBox::try_pin_init(
            Registration::new::<Infallible>(c"rust/test:online", up),
            GFP_KERNEL,
        )
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
