// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors that say what was asked, what the kernel answered, why, and what to do.

use std::fmt;

use rustix::io::Errno;

use crate::attr::AttrError;
use crate::diagnose::Diagnosis;
use crate::record::DecodeError;
use crate::ring::RingError;

/// What can go wrong between a program and an event.
///
/// Each message says all there is to say, so none has a [source](std::error::Error::source): what
/// prints a chain of errors would repeat it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The attributes contradict each other; the kernel was not asked.
    #[error("these attributes make no sense: {0}")]
    Attr(AttrError),
    /// A thread or CPU number that no system has.
    #[error("{0} cannot exist: thread ids are from 1 to 2^31 - 1, CPU numbers from 0 to 2^31 - 1")]
    Target(String),
    /// The kernel refused.
    #[error(transparent)]
    Refused(#[from] Box<Refusal>),
    /// The event is in its error state: it is pinned and could not be put on a counter.
    #[error(
        "the pinned event is in its error state, because it could not be put on a counter at \
         some time: use fewer pinned events or a smaller group, then disable and enable it"
    )]
    NotOnCounter,
    /// A read of the wrong kind for the event's [`ReadFormat`](crate::ReadFormat).
    #[error("{0}")]
    ReadFormat(&'static str),
    /// The ring was used in a way that it does not allow.
    #[error("{0}")]
    RingUse(&'static str),
    /// The ring holds something that is no sequence of records.
    #[error("the ring is damaged: {0}")]
    Ring(RingError),
    /// A record is not laid out as the attributes say.
    #[error("a record is malformed: {0}")]
    Decode(DecodeError),
}

impl Error {
    /// What the kernel answered, where it was asked.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused(refusal) => Some(refusal.errno),
            _ => None,
        }
    }
}

impl From<AttrError> for Error {
    fn from(error: AttrError) -> Self {
        Self::Attr(error)
    }
}

impl From<RingError> for Error {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What was asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // Named after the system calls.
pub enum Operation {
    Open,
    Read,
    Map,
    Poll,
    Enable,
    Disable,
    Refresh,
    Reset,
    Period,
    SetOutput,
    SetFilter,
    Id,
    SetBpf,
    PauseOutput,
    QueryBpf,
    ModifyAttributes,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "perf_event_open of",
            Self::Read => "read of",
            Self::Map => "mapping the ring of",
            Self::Poll => "poll of",
            Self::Enable => "PERF_EVENT_IOC_ENABLE on",
            Self::Disable => "PERF_EVENT_IOC_DISABLE on",
            Self::Refresh => "PERF_EVENT_IOC_REFRESH on",
            Self::Reset => "PERF_EVENT_IOC_RESET on",
            Self::Period => "PERF_EVENT_IOC_PERIOD on",
            Self::SetOutput => "PERF_EVENT_IOC_SET_OUTPUT on",
            Self::SetFilter => "PERF_EVENT_IOC_SET_FILTER on",
            Self::Id => "PERF_EVENT_IOC_ID on",
            Self::SetBpf => "PERF_EVENT_IOC_SET_BPF on",
            Self::PauseOutput => "PERF_EVENT_IOC_PAUSE_OUTPUT on",
            Self::QueryBpf => "PERF_EVENT_IOC_QUERY_BPF on",
            Self::ModifyAttributes => "PERF_EVENT_IOC_MODIFY_ATTRIBUTES on",
        })
    }
}

/// An answer of the kernel other than success, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was asked.
    pub operation: Operation,
    /// Of what: the event and its target.
    pub subject: String,
    /// The error number.
    pub errno: Errno,
    /// The likely cause. The kernel gives a number only, so this is a guess, made from the
    /// attributes and from what /proc and /sys say.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}

impl Refusal {
    pub(crate) fn new(
        operation: Operation,
        subject: String,
        errno: Errno,
        diagnosis: Diagnosis,
    ) -> Self {
        Self {
            operation,
            subject,
            errno,
            cause: diagnosis.cause,
            remedy: diagnosis.remedy,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} failed: ", self.operation, self.subject)?;
        match errno_name(self.errno) {
            Some(name) => write!(f, "{name}")?,
            None => write!(f, "{}", self.errno)?,
        }
        write!(f, ": {}; {}", self.cause, self.remedy)
    }
}

impl std::error::Error for Refusal {}

/// The name of an error number that perf events are known to answer with.
pub fn errno_name(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::PERM => "EPERM",
        Errno::NOENT => "ENOENT",
        Errno::SRCH => "ESRCH",
        Errno::INTR => "EINTR",
        Errno::TOOBIG => "E2BIG",
        Errno::BADF => "EBADF",
        Errno::CHILD => "ECHILD",
        Errno::AGAIN => "EAGAIN",
        Errno::NOMEM => "ENOMEM",
        Errno::ACCESS => "EACCES",
        Errno::FAULT => "EFAULT",
        Errno::BUSY => "EBUSY",
        Errno::EXIST => "EEXIST",
        Errno::NODEV => "ENODEV",
        Errno::INVAL => "EINVAL",
        Errno::NFILE => "ENFILE",
        Errno::MFILE => "EMFILE",
        Errno::NOTTY => "ENOTTY",
        Errno::NOSPC => "ENOSPC",
        Errno::RANGE => "ERANGE",
        Errno::NOSYS => "ENOSYS",
        Errno::OVERFLOW => "EOVERFLOW",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_errors_says_nothing_twice() {
        let refusal = Refusal {
            operation: Operation::Open,
            subject: "cycles".to_owned(),
            errno: Errno::NOENT,
            cause: "no PMU counts it".to_owned(),
            remedy: "load a driver".to_owned(),
        };
        for error in [
            Error::from(AttrError::Frequency),
            Error::from(Box::new(refusal)),
            Error::from(RingError::TooSmall {
                position: 0,
                size: 7,
            }),
            Error::from(DecodeError::Ambiguous),
        ] {
            let source = std::error::Error::source(&error);
            assert!(source.is_none(), "{error}: {source:?}");
        }
    }
}
