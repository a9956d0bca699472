// SPDX-License-Identifier: MIT OR Apache-2.0
//! Call chains.

use crate::record::cursor::Words;
use crate::sys;

/// A call chain, innermost frame first.
///
/// The kernel puts markers between the addresses that say where those that follow belong
/// (kernel, user, ...). They are large numbers that no code has as its address, but nothing
/// stops a program from printing them as such; here they are another type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallChain<'a>(pub(crate) Words<'a>);

/// What a marker in a call chain says of the addresses behind it (`PERF_CONTEXT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// No marker came yet.
    Unmarked,
    /// The hypervisor.
    Hypervisor,
    /// The kernel.
    Kernel,
    /// User space.
    User,
    /// User space, whose frames come later in a
    /// [`CallchainDeferred`](crate::record::CallchainDeferred) record.
    UserDeferred,
    /// A guest.
    Guest,
    /// A guest's kernel.
    GuestKernel,
    /// A guest's user space.
    GuestUser,
    /// A marker that is newer than this library.
    Other(u64),
}

impl Context {
    /// The meaning of `word`, if it is a marker: one of the last 4095 numbers.
    fn of(word: u64) -> Option<Self> {
        Some(match word {
            sys::PERF_CONTEXT_HV => Self::Hypervisor,
            sys::PERF_CONTEXT_KERNEL => Self::Kernel,
            sys::PERF_CONTEXT_USER => Self::User,
            sys::PERF_CONTEXT_USER_DEFERRED => Self::UserDeferred,
            sys::PERF_CONTEXT_GUEST => Self::Guest,
            sys::PERF_CONTEXT_GUEST_KERNEL => Self::GuestKernel,
            sys::PERF_CONTEXT_GUEST_USER => Self::GuestUser,
            word if word >= sys::PERF_CONTEXT_MAX => Self::Other(word),
            _ => return None,
        })
    }
}

/// One word of a call chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainEntry {
    /// A marker: what follows belongs there.
    Context(Context),
    /// The address of an instruction: the interrupted one first, then return addresses.
    Address(u64),
    /// What the record with the deferred user frames will carry too.
    Cookie(u64),
}

/// An address of a call chain, with the marker in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Where it belongs.
    pub context: Context,
    /// The address of an instruction: the interrupted one in the first frame of the chain,
    /// return addresses, which may be one past the calling instruction's function, in the others.
    pub address: u64,
}

impl<'a> CallChain<'a> {
    /// Markers, addresses and cookies, as the kernel wrote them.
    pub fn entries(self) -> impl Iterator<Item = ChainEntry> + 'a {
        let mut cookie_next = false;
        self.0.iter().map(move |word| {
            if std::mem::take(&mut cookie_next) {
                return ChainEntry::Cookie(word);
            }
            match Context::of(word) {
                Some(context) => {
                    cookie_next = context == Context::UserDeferred;
                    ChainEntry::Context(context)
                }
                None => ChainEntry::Address(word),
            }
        })
    }

    /// The addresses alone.
    pub fn frames(self) -> impl Iterator<Item = Frame> + 'a {
        let mut context = Context::Unmarked;
        self.entries().filter_map(move |entry| match entry {
            ChainEntry::Context(new) => {
                context = new;
                None
            }
            ChainEntry::Address(address) => Some(Frame { context, address }),
            ChainEntry::Cookie(_) => None,
        })
    }

    /// What joins this chain to a [`CallchainDeferred`](crate::record::CallchainDeferred) record,
    /// if its user frames were put off.
    pub fn cookie(self) -> Option<u64> {
        self.entries().find_map(|entry| match entry {
            ChainEntry::Cookie(cookie) => Some(cookie),
            _ => None,
        })
    }

    /// The words of the chain, markers included.
    pub fn words(self) -> Words<'a> {
        self.0
    }
}
