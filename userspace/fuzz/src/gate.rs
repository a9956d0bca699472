// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nobody forks while the driver is being unbound: Linux 7.3 does not survive an event that is
//! inherited just then, see docs/debugging.md.

use std::ptr;

use rustix::io::Errno;

use crate::sys::last;

/// The name of the semaphore, for processes that were executed as well.
const KEY: libc::key_t = 0x0070_6d75;
/// More processes than there ever are.
const ALL: i16 = 1000;

/// Held while one forks, or while one unbinds. The kernel takes it back from a process that dies.
pub struct Gate {
    /// `None` where nobody unbinds anything.
    semaphore: Option<i32>,
    count: i16,
}

impl Gate {
    /// Makes gates work, from now on.
    pub fn set_up() -> Result<(), Errno> {
        // SAFETY: plain calls, which take no pointer.
        let result = unsafe {
            let id = libc::semget(KEY, 1, libc::IPC_CREAT | 0o600);
            libc::semctl(id, 0, libc::SETVAL, i32::from(ALL))
        };
        if result < 0 { Err(last()) } else { Ok(()) }
    }

    /// Waits until nobody unbinds the driver.
    pub fn to_fork() -> Result<Self, Errno> {
        Self::take(1)
    }

    /// Waits until nobody forks.
    pub fn to_unbind() -> Result<Self, Errno> {
        Self::take(ALL)
    }

    fn take(count: i16) -> Result<Self, Errno> {
        // SAFETY: a plain call.
        let id = unsafe { libc::semget(KEY, 1, 0) };
        let semaphore = (id >= 0).then_some(id);
        if let Some(id) = semaphore {
            while let Err(errno) = change(id, -count) {
                if errno != Errno::INTR {
                    return Err(errno);
                }
            }
        }
        Ok(Self { semaphore, count })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(id) = self.semaphore {
            let _ = change(id, self.count);
        }
    }
}

fn change(id: i32, by: i16) -> Result<(), Errno> {
    let mut operation = libc::sembuf {
        sem_num: 0,
        sem_op: by,
        sem_flg: libc::SEM_UNDO as i16,
    };
    // SAFETY: one operation, which lives until the call returns.
    match unsafe { libc::semop(id, ptr::from_mut(&mut operation), 1) } {
        0 => Ok(()),
        _ => Err(last()),
    }
}
