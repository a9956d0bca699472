// SPDX-License-Identifier: GPL-2.0

//! Making a PMU known to perf core.

use super::{
    callbacks,
    sysfs::Groups,
    Capabilities,
    Driver,
    Pmu, //
};
use crate::bindings;
use core::mem::ManuallyDrop;
use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres,
    error::to_result,
    module::this_module,
    prelude::*,
    str::CString,
    sync::Arc, //
};

/// Registers `pmu` under `name` until `dev` is unbound.
///
/// From then on `/sys/bus/event_source/devices/NAME` exists, with `dev` as its parent, and user
/// space can open events, each of which holds the driver's module. When `dev` is unbound, perf core
/// revokes the events that are open and waits until none of the callbacks runs. Releases happen in
/// the reverse order of registrations, so what the callbacks need should be registered before.
///
/// `capabilities` are added to [`Driver::CAPABILITIES`]; here goes what is known at run time only.
///
/// Fails with [`EBUSY`] when `pmu` is registered, with [`EEXIST`] when another PMU has the name,
/// and with [`ENOMEM`].
pub fn register<T: Driver>(
    dev: &Device<Bound>,
    pmu: &Arc<Pmu<T>>,
    name: &CStr,
    capabilities: Capabilities,
) -> Result {
    let registration = Registration::new(Some(dev), pmu, name, capabilities)?;

    devres::register(dev, registration, GFP_KERNEL)
}

/// A PMU that perf core knows.
///
/// # Invariants
///
/// Perf core knows `pmu`, by the name `name` and with the files of `groups`.
pub(super) struct Registration<T: Driver> {
    pmu: Arc<Pmu<T>>,
    // Not dropped if perf core should keep on using them.
    name: ManuallyDrop<CString>,
    groups: ManuallyDrop<Groups<T>>,
}

impl<T: Driver> Registration<T> {
    pub(super) fn new(
        parent: Option<&Device<Bound>>,
        pmu: &Arc<Pmu<T>>,
        name: &CStr,
        capabilities: Capabilities,
    ) -> Result<Self> {
        let name = CString::try_from(name)?;
        let mut groups = Groups::new()?;
        let capabilities = T::CAPABILITIES.and(capabilities);

        // `Device` is a transparent wrapper of the C struct, whose pointer it keeps for itself.
        let parent: *const bindings::device =
            parent.map_or(core::ptr::null(), |dev| core::ptr::from_ref(dev).cast());

        pmu.claim()?;

        let raw = pmu.as_raw();

        // SAFETY: Perf core does not know `raw`, and `claim()` makes sure that nobody else changes
        // it. All fields may be zero, and must be what an earlier registration left.
        unsafe { raw.write_bytes(0, 1) };

        // SAFETY: As above; `raw` is that of a `Pmu<T>`.
        unsafe { callbacks::fill::<T>(raw) };

        // SAFETY: As above.
        unsafe {
            (*raw).module = this_module::<T::OwnerModule>().as_ptr();
            (*raw).parent = parent.cast_mut();
            (*raw).attr_groups = groups.as_raw();
            (*raw).task_ctx_nr = T::TASK_CONTEXT.as_raw();
            (*raw).capabilities = capabilities.as_raw();
        }

        // Migrating events compares PMUs by address, so it may begin a little early.
        pmu.set_registered();

        // SAFETY: `raw`, `name` and `groups` stay where they are until `drop()` unregisters the
        // PMU, since `self` owns them or, for `raw`, a reference count. The callbacks are right for
        // it. The parent is bound: perf core holds a reference to it, and the PMU goes before the
        // parent is unbound. On failure perf core has undone everything.
        let result = to_result(unsafe { bindings::perf_pmu_register(raw, name.as_char_ptr(), -1) });
        if let Err(error) = result {
            pmu.set_free();
            return Err(error);
        }

        // INVARIANT: It was registered.
        let registration = Self {
            pmu: pmu.clone(),
            name: ManuallyDrop::new(name),
            groups: ManuallyDrop::new(groups),
        };

        #[cfg(RUST_PMU_OUT_OF_TREE)]
        // SAFETY: It was registered, and `registration` unregisters it before it goes.
        unsafe {
            crate::out_of_tree::mux_timer::stop_with(raw)?
        };

        Ok(registration)
    }
}

impl<T: Driver> Drop for Registration<T> {
    fn drop(&mut self) {
        self.pmu.set_unregistering();

        // SAFETY: By the type invariant perf core knows the PMU.
        let result = to_result(unsafe { bindings::perf_pmu_unregister(self.pmu.as_raw()) });
        if let Err(error) = result {
            // Perf core refuses for PMUs with an `event_unmapped` callback only. Should it do so
            // for others one day, then let it keep everything.
            pr_err!("cannot unregister a PMU: {error:?}\n");
            core::mem::forget(self.pmu.clone());
            // The callbacks are in the module.
            // SAFETY: The module exists: this is its code.
            unsafe { bindings::__module_get(this_module::<T::OwnerModule>().as_ptr()) };
            return;
        }

        // SAFETY: Perf core has removed the files and the name with them, after the last reader
        // was gone; neither field is used after this.
        unsafe {
            ManuallyDrop::drop(&mut self.groups);
            ManuallyDrop::drop(&mut self.name);
        }
        self.pmu.set_free();
    }
}
