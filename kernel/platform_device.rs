// SPDX-License-Identifier: GPL-2.0

//! Platform devices that a module makes.
//!
//! Most platform devices come from the device tree. For hardware that the firmware describes in a
//! table of its own there is none, so a driver's module makes one, and has all that belongs to
//! devices: binding and unbinding, managed resources, a place in sysfs. The device carries
//! properties, which the driver's `probe` reads as it does those of a device tree node.
//!
//! C header: [`include/linux/platform_device.h`](srctree/include/linux/platform_device.h)
//!
//! # Examples
//!
//! ```
//! use kernel::platform_device;
//!
//! // `rust_example.0`; drivers of that name are probed with it.
//! let device = platform_device::Registration::new(c"rust_example", 0, &[(c"base", 0x1000)])?;
//! drop(device);
//! # Ok::<(), Error>(())
//! ```

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*, //
};

/// A platform device, which is unregistered when this is dropped.
///
/// # Invariants
///
/// `0` is a platform device that was registered here.
pub struct Registration(NonNull<bindings::platform_device>);

// SAFETY: A device may be unregistered in any task.
unsafe impl Send for Registration {}

// SAFETY: A shared registration has no methods.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers the platform device `NAME.ID` with `properties`.
    ///
    /// Drivers match it by `name`, which is that of the driver, and get no ID info. Fails with
    /// [`EEXIST`] when there is such a device.
    pub fn new(name: &CStr, id: u16, properties: &[(&CStr, u64)]) -> Result<Self> {
        let mut entries = KVec::with_capacity(properties.len() + 1, GFP_KERNEL)?;
        for (name, value) in properties {
            let mut entry = bindings::property_entry {
                name: name.as_char_ptr(),
                length: size_of::<u64>(),
                is_inline: true,
                type_: bindings::dev_prop_type_DEV_PROP_U64,
                ..Default::default()
            };
            entry.__bindgen_anon_1.value.u64_data = [*value];
            entries.push(entry, GFP_KERNEL)?;
        }
        // The end of the list.
        entries.push(bindings::property_entry::default(), GFP_KERNEL)?;

        let info = bindings::platform_device_info {
            name: name.as_char_ptr(),
            id: id.into(),
            properties: entries.as_ptr(),
            ..Default::default()
        };

        // SAFETY: `info` is complete: what is zero is not there. The kernel copies what it keeps.
        let device = from_err_ptr(unsafe { bindings::platform_device_register_full(&info) })?;

        // INVARIANT: It was registered.
        NonNull::new(device).map(Self).ok_or(ENOMEM)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it was registered, and nobody else unregisters it.
        unsafe { bindings::platform_device_unregister(self.0.as_ptr()) };
    }
}
