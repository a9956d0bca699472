// SPDX-License-Identifier: GPL-2.0

//! Why an event is refused, free of the kernel's types.

/// Why this PMU does not take an event.
///
/// perf core tries the next PMU only after [`Refusal::NotFound`] (`-ENOENT`), so the difference
/// between the variants is part of the user interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The event may be valid, but not on this PMU: `ENOENT`.
    NotFound,
    /// No PMU of this kind could take the event: `EINVAL`.
    Invalid,
    /// The event is valid, but asks for something that this PMU cannot do: `EOPNOTSUPP`.
    NotSupported,
    /// Every counter that could take the event is in use: `EAGAIN`.
    NoCounter,
}
