// SPDX-License-Identifier: GPL-2.0

//! Files in `/proc/sys`.
//!
//! C header: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h)
//!
//! # Examples
//!
//! ```
//! use kernel::sysctl::{
//!     self,
//!     Flag,
//!     Setting, //
//! };
//!
//! static TRACING: Flag = Flag::new(|setting| pr_info!("tracing is {setting:?} now\n"));
//!
//! // Until it is dropped there is a file /proc/sys/kernel/rust_example_tracing.
//! let file = sysctl::register(c"kernel", c"rust_example_tracing", &TRACING)?;
//!
//! assert_eq!(TRACING.get(), Setting::Off);
//! # drop(file);
//! # Ok::<(), Error>(())
//! ```

use crate::bindings;
use core::{
    ptr::NonNull,
    sync::atomic::{
        AtomicI32,
        Ordering::Relaxed, //
    }, //
};
use kernel::{
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*, //
};

/// The value of a [`Flag`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// 0.
    Off,
    /// 1.
    On,
}

/// What a file that holds 0 or 1 is about.
#[repr(C)]
pub struct Flag {
    // C writes it, as a word of its own. It is not for ordering anything, and a load of
    // `kernel::sync::atomic` would be a call.
    value: AtomicI32,
    changed: fn(Setting),
}

impl Flag {
    /// A flag that is off. `changed` is called each time that somebody has written to its file, in
    /// process context.
    pub const fn new(changed: fn(Setting)) -> Self {
        Self {
            value: AtomicI32::new(0),
            changed,
        }
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> Setting {
        match self.value.load(Relaxed) {
            0 => Setting::Off,
            _ => Setting::On,
        }
    }
}

/// A file that is there until this is dropped.
///
/// # Invariants
///
/// `header` was returned for `table`, which stays where it is.
pub struct Registration {
    header: NonNull<bindings::ctl_table_header>,
    // Only C looks at it.
    _table: KBox<bindings::ctl_table>,
}

// SAFETY: A registration may be undone by any thread; the table is plain data that nobody changes.
unsafe impl Send for Registration {}

// SAFETY: A shared registration has no methods.
unsafe impl Sync for Registration {}

/// Makes the file `/proc/sys/FOLDER/NAME` for `flag`, which everyone may read and root may write.
///
/// Fails with [`EEXIST`] when the kernel does not take it, which it explains in its log: mostly the
/// file is there already; or it was built without `CONFIG_SYSCTL`.
pub fn register(folder: &CStr, name: &'static CStr, flag: &'static Flag) -> Result<Registration> {
    #[cfg(RUST_PMU_OUT_OF_TREE)]
    if crate::out_of_tree::sysctl_entry::exists(folder, name)? {
        return Err(EEXIST);
    }

    let limits: *const c_int = (&raw const bindings::sysctl_vals).cast();

    // SAFETY: All fields may be zero.
    let mut table: bindings::ctl_table = unsafe { core::mem::zeroed() };
    table.procname = name.as_char_ptr();
    table.data = core::ptr::from_ref(flag).cast_mut().cast();
    table.maxlen = size_of::<c_int>() as c_int;
    table.mode = 0o644;
    table.proc_handler = Some(handle);
    // The kernel's numbers 0 and 1.
    table.extra1 = limits.cast_mut().cast();
    table.extra2 = limits.wrapping_add(1).cast_mut().cast();

    let table = KBox::new(table, GFP_KERNEL)?;

    // SAFETY: The table has one entry, whose `data` is what `handle` expects; it stays until the
    // file is gone. C copies the folder's name.
    #[cfg(CONFIG_SYSCTL)]
    let header =
        unsafe { bindings::register_sysctl_sz(folder.as_char_ptr(), &raw const *table, 1) };
    #[cfg(not(CONFIG_SYSCTL))]
    let header = (folder, core::ptr::null_mut()).1;

    // INVARIANT: It was returned for this table.
    Ok(Registration {
        header: NonNull::new(header).ok_or(EEXIST)?,
        _table: table,
    })
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; this waits for `handle` to be over.
        #[cfg(CONFIG_SYSCTL)]
        unsafe {
            bindings::unregister_sysctl_table(self.header.as_ptr())
        };
    }
}

/// # Safety
///
/// To be called by the kernel only, for a table of [`register`].
unsafe extern "C" fn handle(
    table: *const bindings::ctl_table,
    write: c_int,
    buffer: *mut c_void,
    length: *mut usize,
    position: *mut bindings::loff_t,
) -> c_int {
    // SAFETY: The kernel calls this with what the function expects. `data` is the flag's value, its
    // first field, and `extra1` and `extra2` are the limits.
    let result = unsafe { bindings::proc_dointvec_minmax(table, write, buffer, length, position) };

    if result == 0 && write != 0 {
        // SAFETY: `register()` has set it to a `&'static Flag`.
        let flag: &'static Flag = unsafe { &*(*table).data.cast() };
        (flag.changed)(flag.get());
    }
    result
}
