// SPDX-License-Identifier: GPL-2.0

//! Looks whether a sysctl is there, before one is registered by the same name.
//!
//! The kernel refuses the second one, but undoes what it has not done, and with that the whole folder
//! gets lost, such as `/proc/sys/kernel`. In tree the series mends this; this file is for kernels that
//! are as they are.

use super::bindings;
use kernel::{
    fmt,
    prelude::*,
    str::CString, //
};

/// Returns whether `/proc/sys/FOLDER/NAME` is there, as far as the current task can see.
pub(crate) fn exists(folder: &CStr, name: &CStr) -> Result<bool> {
    let file = CString::try_from_fmt(fmt!("/proc/sys/{}/{}", folder.to_str()?, name.to_str()?))?;
    let mut path = bindings::path::default();

    // SAFETY: `file` is a C string, `path` a place for the result. It may sleep, and so may we.
    if unsafe { bindings::kern_path(file.as_char_ptr(), 0, &mut path) } != 0 {
        return Ok(false);
    }

    // SAFETY: It was found, and is not used any more.
    unsafe { bindings::path_put(&path) };
    Ok(true)
}
