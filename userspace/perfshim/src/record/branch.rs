// SPDX-License-Identifier: MIT OR Apache-2.0
//! Branch stacks.

use crate::flags::BranchFilter;
use crate::record::cursor::{Cursor, DecodeError, Words};
use crate::sys;

/// Recent branches, the newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchStack<'a> {
    /// Index of the newest entry in the hardware's buffer, if asked for; all ones if the
    /// hardware has none.
    pub hw_index: Option<u64>,
    entries: Words<'a>,
    counters: Option<Words<'a>>,
}

/// Words in a `struct perf_branch_entry`: from, to, flags.
const ENTRY_WORDS: usize = 3;

impl<'a> BranchStack<'a> {
    /// Takes a branch stack off the front of `cursor`.
    ///
    /// What was asked for is not always there: without a stack from the PMU the kernel writes a
    /// count of 0 and no hardware index, and it writes counters only if the PMU delivered some.
    /// `all` tells whether it is.
    pub(crate) fn take(
        filter: BranchFilter,
        all: bool,
        cursor: &mut Cursor<'a>,
    ) -> Result<Self, DecodeError> {
        let count = cursor.u64("branch count")?;
        let has_index = filter.contains(BranchFilter::HW_INDEX) && (count > 0 || all);
        let hw_index = match has_index {
            true => Some(cursor.u64("branch hw_idx")?),
            false => None,
        };
        let words = count.saturating_mul(ENTRY_WORDS as u64);
        let entries = cursor.words(words, "branches")?;
        let counters = match filter.contains(BranchFilter::COUNTERS) && (count == 0 || all) {
            true => Some(cursor.words(count, "branch counters")?),
            false => None,
        };
        Ok(Self {
            hw_index,
            entries,
            counters,
        })
    }

    /// How many branches there are.
    pub fn len(self) -> usize {
        self.entries.len() / ENTRY_WORDS
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.entries.is_empty()
    }

    /// The branches.
    pub fn iter(self) -> impl Iterator<Item = BranchEntry> + 'a {
        let word = move |index| self.entries.get(index).unwrap_or_default();
        (0..self.len()).map(move |branch| BranchEntry {
            from: word(branch * ENTRY_WORDS),
            to: word(branch * ENTRY_WORDS + 1),
            flags: word(branch * ENTRY_WORDS + 2),
        })
    }

    /// For each branch, how often the group's events happened since the one before, if asked
    /// for and delivered by the PMU: small bit-fields, whose number and width the PMU's `caps` folder in sysfs tells.
    pub fn counters(self) -> Option<Words<'a>> {
        self.counters
    }
}

/// One branch (`struct perf_branch_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BranchEntry {
    /// Address of the branch; not always that of an instruction.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// The bit-fields, as the kernel wrote them.
    pub flags: u64,
}

impl BranchEntry {
    /// A bit-field, counted from where C starts.
    fn bits(self, start: u32, width: u32) -> u64 {
        let shift = if cfg!(target_endian = "big") {
            64 - start - width
        } else {
            start
        };
        (self.flags >> shift) & ((1 << width) - 1)
    }

    /// Whether the prediction was wrong. Where neither this nor [`predicted`](Self::predicted)
    /// holds, the hardware does not tell.
    pub fn mispredicted(self) -> bool {
        self.bits(0, 1) != 0
    }

    /// Whether the prediction was right.
    pub fn predicted(self) -> bool {
        self.bits(1, 1) != 0
    }

    /// Whether it was inside a hardware transaction.
    pub fn in_transaction(self) -> bool {
        self.bits(2, 1) != 0
    }

    /// Whether it aborted a hardware transaction.
    pub fn aborted(self) -> bool {
        self.bits(3, 1) != 0
    }

    /// Cycles since the branch before; 0 where the hardware does not tell.
    pub fn cycles(self) -> u16 {
        self.bits(4, 16) as u16
    }

    /// What kind of branch it was.
    pub fn kind(self) -> BranchType {
        match self.bits(20, 4) as u32 {
            sys::PERF_BR_UNKNOWN => BranchType::Unknown,
            sys::PERF_BR_COND => BranchType::Conditional,
            sys::PERF_BR_UNCOND => BranchType::Unconditional,
            sys::PERF_BR_IND => BranchType::Indirect,
            sys::PERF_BR_CALL => BranchType::Call,
            sys::PERF_BR_IND_CALL => BranchType::IndirectCall,
            sys::PERF_BR_RET => BranchType::Return,
            sys::PERF_BR_SYSCALL => BranchType::Syscall,
            sys::PERF_BR_SYSRET => BranchType::SyscallReturn,
            sys::PERF_BR_COND_CALL => BranchType::ConditionalCall,
            sys::PERF_BR_COND_RET => BranchType::ConditionalReturn,
            sys::PERF_BR_ERET => BranchType::ExceptionReturn,
            sys::PERF_BR_IRQ => BranchType::Interrupt,
            sys::PERF_BR_SERROR => BranchType::SystemError,
            sys::PERF_BR_NO_TX => BranchType::NotInTransaction,
            // The only value left: the kind is in the field that was added later.
            _ => match self.bits(26, 4) as u32 {
                sys::PERF_BR_NEW_FAULT_ALGN => BranchType::AlignmentFault,
                sys::PERF_BR_NEW_FAULT_DATA => BranchType::DataFault,
                sys::PERF_BR_NEW_FAULT_INST => BranchType::InstructionFault,
                other => BranchType::Architecture(other as u8),
            },
        }
    }

    /// Whether it was speculation.
    pub fn speculation(self) -> Speculation {
        match self.bits(24, 2) as u32 {
            sys::PERF_BR_SPEC_NA => Speculation::Unknown,
            sys::PERF_BR_SPEC_WRONG_PATH => Speculation::WrongPath,
            sys::PERF_BR_NON_SPEC_CORRECT_PATH => Speculation::None,
            _ => Speculation::CorrectPath,
        }
    }

    /// The privilege level it went to.
    pub fn privilege(self) -> Privilege {
        match self.bits(30, 3) as u32 {
            sys::PERF_BR_PRIV_UNKNOWN => Privilege::Unknown,
            sys::PERF_BR_PRIV_USER => Privilege::User,
            sys::PERF_BR_PRIV_KERNEL => Privilege::Kernel,
            sys::PERF_BR_PRIV_HV => Privilege::Hypervisor,
            other => Privilege::Other(other as u8),
        }
    }
}

/// Kinds of branches (`PERF_BR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Each says what it is.
pub enum BranchType {
    Unknown,
    Conditional,
    Unconditional,
    Indirect,
    Call,
    IndirectCall,
    Return,
    Syscall,
    SyscallReturn,
    ConditionalCall,
    ConditionalReturn,
    ExceptionReturn,
    Interrupt,
    SystemError,
    NotInTransaction,
    AlignmentFault,
    DataFault,
    InstructionFault,
    /// `PERF_BR_NEW_ARCH_*`: what the architecture makes of it.
    Architecture(u8),
}

/// Whether a branch was speculation (`PERF_BR_SPEC_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Speculation {
    /// The hardware does not tell.
    Unknown,
    /// Speculation that went wrong.
    WrongPath,
    /// No speculation.
    None,
    /// Speculation that was right.
    CorrectPath,
}

/// A privilege level (`PERF_BR_PRIV_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Each says what it is.
pub enum Privilege {
    Unknown,
    User,
    Kernel,
    Hypervisor,
    Other(u8),
}
