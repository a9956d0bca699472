// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's symbols: `/proc/kallsyms`.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use super::ranges::Range;
use super::ranges::Ranges;

/// What perf calls the kernel itself, as opposed to its modules.
pub const KERNEL: &str = "[kernel.kallsyms]";

/// The functions of a running kernel and of the modules that were loaded when this was read.
pub struct KernelSymbols {
    functions: Ranges<KernelFunction>,
}

struct KernelFunction {
    name: Arc<str>,
    object: Arc<str>,
}

/// A kernel function found at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFunctionAt {
    /// Its name.
    pub name: Arc<str>,
    /// Where it begins.
    pub start: u64,
    /// [`KERNEL`], or a module's name in brackets.
    pub object: Arc<str>,
}

/// Why there are no kernel symbols.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelSymbolsError {
    /// The file cannot be read.
    #[error(
        "{}: {error}; kernel functions have no names without it (CONFIG_KALLSYMS)",
        .file.display()
    )]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// All addresses are 0: the kernel does not tell them to this user.
    #[error(
        "{}: the kernel hides its addresses from this user; run as root with \
         kernel.kptr_restrict at 0 or 1 (sysctl -w kernel.kptr_restrict=0)",
        .file.display()
    )]
    Hidden {
        /// The file.
        file: PathBuf,
    },
    /// The file holds something else.
    #[error(
        "{}, line {line}: expected `ADDRESS TYPE NAME [MODULE]`, found `{}`",
        .file.display(), .found.escape_debug()
    )]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The beginning of the line.
        found: String,
    },
}

/// A line of the file.
struct Line<'a> {
    address: u64,
    kind: u8,
    name: &'a str,
    module: Option<&'a str>,
}

impl KernelSymbols {
    /// The symbols of the running kernel.
    ///
    /// # Errors
    /// As [`KernelSymbols::read`].
    pub fn running() -> Result<Self, KernelSymbolsError> {
        Self::read(Path::new("/proc/kallsyms"))
    }

    /// The symbols in `file`, which is `/proc/kallsyms` or a copy of it.
    ///
    /// # Errors
    /// When the file cannot be read, is not of that form, or hides the addresses.
    pub fn read(file: &Path) -> Result<Self, KernelSymbolsError> {
        // Names are ASCII; whatever else a file holds makes for a malformed line.
        let text = fs::read(file).map_err(|error| KernelSymbolsError::Io {
            file: file.to_owned(),
            error,
        })?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().enumerate().map(|(index, line)| {
            parse_line(line).ok_or_else(|| KernelSymbolsError::Malformed {
                file: file.to_owned(),
                line: index + 1,
                found: line.chars().take(60).collect(),
            })
        });
        let mut lines: Vec<_> = lines.collect::<Result<_, _>>()?;
        if lines.iter().all(|line| line.address == 0) {
            let file = file.to_owned();
            return Err(KernelSymbolsError::Hidden { file });
        }
        lines.sort_by_key(|line| line.address);
        Ok(Self {
            functions: functions(&lines),
        })
    }

    /// The function at an address.
    pub fn function_at(&self, address: u64) -> Option<KernelFunctionAt> {
        let range = self.functions.find(address)?;
        Some(KernelFunctionAt {
            name: range.what.name.clone(),
            start: range.start,
            object: range.what.object.clone(),
        })
    }
}

fn parse_line(line: &str) -> Option<Line<'_>> {
    let mut words = line.split_ascii_whitespace();
    let address = words.next()?;
    let kind = words.next()?;
    let name = words.next()?;
    let module = words.next();
    let bracketed = module.is_none_or(|m| m.starts_with('[') && m.ends_with(']'));
    if words.next().is_some() || kind.len() != 1 || !bracketed {
        return None;
    }
    let digits = address.bytes().all(|digit| digit.is_ascii_hexdigit());
    let address = digits.then(|| u64::from_str_radix(address, 16).ok())??;
    Some(Line {
        address,
        kind: kind.as_bytes()[0],
        name,
        module,
    })
}

/// The functions among symbols that are sorted by address; each ends where the next symbol begins.
fn functions(lines: &[Line<'_>]) -> Ranges<KernelFunction> {
    let kernel: Arc<str> = KERNEL.into();
    let mut object = kernel.clone();
    let mut ranges = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if !matches!(line.kind, b't' | b'T' | b'w' | b'W') {
            continue;
        }
        let name = line.module.unwrap_or(KERNEL);
        if *object != *name {
            object = name.into();
        }
        ranges.push(Range {
            start: line.address,
            size: size(line, &lines[index + 1..]),
            limit: u64::MAX,
            rank: rank(line),
            what: KernelFunction {
                name: line.name.into(),
                object: object.clone(),
            },
        });
    }
    Ranges::new(ranges)
}

/// Up to the next symbol. That may be far away where the kernel or a module ends: there the
/// function is taken to end within the page after its beginning, as perf does.
fn size(line: &Line<'_>, following: &[Line<'_>]) -> u64 {
    const PAGE: u64 = 4096;
    let next = following.iter().find(|next| next.address != line.address);
    let page_after = (line.address / PAGE).saturating_add(2).saturating_mul(PAGE);
    let end = match next {
        Some(next) if next.module == line.module => next.address,
        Some(next) => next.address.min(page_after),
        None => page_after,
    };
    end - line.address
}

/// The linker's marks (`_stext`, `__irqentry_text_start`) begin with underscores and stand at the
/// first function of what they mark.
fn rank(line: &Line<'_>) -> [u8; 4] {
    let underscores = line.name.bytes().take_while(|byte| *byte == b'_').count();
    let fewer = u8::MAX - u8::try_from(underscores).unwrap_or(u8::MAX);
    let length = u8::try_from(line.name.len()).unwrap_or(u8::MAX);
    [fewer, u8::from(line.kind == b'T'), length, 0]
}
