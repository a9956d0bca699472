// SPDX-License-Identifier: MIT OR Apache-2.0
//! From addresses to functions: symbol, offset, object, and if wanted source lines and inlining.
//!
//! A [`Symbolizer`] is fed with what a recording says about processes (mappings, exec, fork,
//! names), or reads it from `/proc`, and then answers for any process at any time of the
//! recording, also when that process has ended since.
//!
//! * User addresses: the mapping says which file and which offset; the file's program headers make
//!   an address of it; its symbol table (or that of its separate debug file) has the function.
//! * Kernel addresses: `/proc/kallsyms`, with the symbols of modules.
//!
//! # Why `object` and `addr2line`
//! They read ELF and DWARF from plain bytes. The files of a recording are there or gone, replaced
//! since, or were never more than an image in memory (the vDSO): what to read is decided here, by
//! inode and build ID, and handed over as bytes, never mapped, so that a file that is truncated
//! meanwhile cannot kill the reader. `blazesym` symbolizes whole processes, which is less code as
//! long as they live; it finds and maps the files itself, and is under a third licence
//! (BSD-3-Clause). `object`, `addr2line` and `gimli` (MIT or Apache-2.0, as this crate) are what
//! the Rust standard library's own backtraces stand on, so they are looked after, build for every
//! target that Rust has, statically too, and need no newer compiler than 1.85 in the versions that
//! Cargo.toml names.
//!
//! ```
//! use perfshim::symbols::Mode;
//! use perfshim::symbols::Symbolizer;
//!
//! fn somewhere() {}
//!
//! let mut symbolizer = Symbolizer::new();
//! let pid = std::process::id();
//! symbolizer.load_process(pid)?;
//! let address = somewhere as usize as u64;
//! let stack = symbolizer.stack(pid, u64::MAX, [(Mode::User, address)]);
//! println!("{}", stack[0]); // somewhere+0x0 (/path/to/program)
//! # Ok::<(), std::io::Error>(())
//! ```

mod elf;
mod kernel;
mod maps;
mod objects;
mod process;
mod ranges;
mod records;

pub use elf::ElfFile;
pub use elf::FunctionAt;
pub use elf::LineAt;
pub use kernel::KERNEL;
pub use kernel::KernelFunctionAt;
pub use kernel::KernelSymbols;
pub use kernel::KernelSymbolsError;
pub use process::FileId;
pub use process::Mapping;
pub use process::Processes;

use std::cell::OnceCell;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use objects::Objects;

/// Whose code is at an address; the same number means different things in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The process.
    #[default]
    User,
    /// The kernel.
    Kernel,
    /// Hypervisor, guest, or not known: no symbols are looked for.
    Other,
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file, as the compiler was given it.
    pub file: Arc<str>,
    /// The line, from 1; 0 when not known.
    pub line: u32,
    /// The column, from 1; 0 when not known.
    pub column: u32,
}

/// A function in a call chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The address, as sampled.
    pub address: u64,
    /// Whose address it is.
    pub mode: Mode,
    /// The function, when its name is known.
    pub symbol: Option<Symbol>,
    /// The file that the code is from, [`KERNEL`], a kernel module in brackets, or what else the
    /// kernel calls a mapping; `None` where nothing is known to be mapped.
    pub object: Option<Arc<str>>,
    /// Whether the compiler put this function into its caller, which is the next frame.
    pub inlined: bool,
    /// Where in the source; only a [`Symbolizer::with_lines`] looks for it.
    pub location: Option<Location>,
}

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Symbol {
    /// The function's name, demangled.
    pub name: Arc<str>,
    /// How many bytes the address is behind the function's beginning. For a function that was
    /// inlined, behind the beginning of the one that it is in.
    pub offset: u64,
}

/// `function+0x1c (/path/to/object)`
impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.symbol {
            Some(symbol) => write!(f, "{}+{:#x}", symbol.name, symbol.offset)?,
            None => write!(f, "{:#x}", self.address)?,
        }
        if self.inlined {
            write!(f, " (inlined)")?;
        }
        write!(f, " ({})", self.object.as_deref().unwrap_or("[unknown]"))
    }
}

/// Finds the functions of sampled addresses.
///
/// Times are in nanoseconds of the recording's clock, `u64::MAX` for "now". What is learnt from
/// `/proc` counts as having been so since the beginning (time 0).
pub struct Symbolizer {
    processes: Processes,
    objects: Objects,
    kallsyms: PathBuf,
    kernel: OnceCell<Result<KernelSymbols, KernelSymbolsError>>,
    /// The latest time of a record.
    latest: u64,
}

impl Default for Symbolizer {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbolizer {
    /// A symbolizer that finds functions.
    pub fn new() -> Self {
        Self::reading(false)
    }

    /// A symbolizer that finds source lines and inlined functions too, where there is debug
    /// information. It keeps that of every file in memory.
    pub fn with_lines() -> Self {
        Self::reading(true)
    }

    fn reading(lines: bool) -> Self {
        Self {
            processes: Processes::default(),
            objects: Objects::new(lines),
            kallsyms: "/proc/kallsyms".into(),
            kernel: OnceCell::new(),
            latest: 0,
        }
    }

    /// Takes the kernel's symbols from this copy of `/proc/kallsyms` instead.
    #[must_use]
    pub fn kallsyms(mut self, file: impl Into<PathBuf>) -> Self {
        self.kallsyms = file.into();
        self
    }

    /// What is known about processes, to add to it.
    pub fn processes(&mut self) -> &mut Processes {
        &mut self.processes
    }

    /// Learns what a running process has mapped and how its threads are called.
    ///
    /// To miss nothing, open the events first, so that what changes from then on is recorded.
    ///
    /// # Errors
    /// When the process has ended, or belongs to somebody else; the error names the file.
    pub fn load_process(&mut self, pid: u32) -> io::Result<()> {
        for mapping in maps::of_process(pid)? {
            self.processes.map(pid, 0, mapping);
        }
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
        for task in tasks.flatten() {
            // A thread that ends just now needs no name.
            let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
            let name = fs::read(task.path().join("comm"));
            if let (Some(tid), Ok(name)) = (tid, name) {
                let name = String::from_utf8_lossy(&name);
                self.processes.name(tid, 0, name.trim_end_matches('\n'));
            }
        }
        Ok(())
    }

    /// Learns that of every process that runs and that we may look at.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn load_running(&mut self) -> io::Result<()> {
        for entry in fs::read_dir("/proc")?.flatten() {
            if let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            {
                // Processes come and go, and some are not ours; what is left is what there is.
                let _ = self.load_process(pid);
            }
        }
        Ok(())
    }

    /// The name of a task at that time.
    pub fn comm(&self, tid: u32, time: u64) -> Option<Arc<str>> {
        self.processes.name_at(tid, time)
    }

    /// The functions of a call chain, the innermost first as in a sample; with lines, one address
    /// may become several frames.
    ///
    /// The first address in each mode is where the CPU was; the others are where calls return
    /// to, and are looked up one byte before, since a call can be the last instruction of a
    /// function. Offsets are those of the addresses themselves.
    pub fn stack(
        &mut self,
        pid: u32,
        time: u64,
        addresses: impl IntoIterator<Item = (Mode, u64)>,
    ) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut previous = None;
        for (mode, address) in addresses {
            let back = u64::from(previous == Some(mode));
            previous = Some(mode);
            let looked_up = address.saturating_sub(back);
            match mode {
                Mode::User => self.user(pid, time, address, looked_up, &mut frames),
                Mode::Kernel => frames.push(self.kernel(address, looked_up)),
                Mode::Other => frames.push(unknown(mode, address)),
            }
        }
        frames
    }

    /// Why kernel addresses have no names; `None` when they have, or when none was looked up yet.
    pub fn kernel_problem(&self) -> Option<&KernelSymbolsError> {
        self.kernel.get().and_then(|symbols| symbols.as_ref().err())
    }

    /// Which files could not be used so far, and why, one line each.
    pub fn problems(&self) -> &[String] {
        self.objects.problems()
    }

    fn kernel(&self, address: u64, looked_up: u64) -> Frame {
        let read = || KernelSymbols::read(&self.kallsyms);
        let symbols = self.kernel.get_or_init(read).as_ref().ok();
        let Some(found) = symbols.and_then(|symbols| symbols.function_at(looked_up)) else {
            return unknown(Mode::Kernel, address);
        };
        Frame {
            symbol: Some(Symbol {
                name: found.name,
                offset: address - found.start,
            }),
            object: Some(found.object),
            ..unknown(Mode::Kernel, address)
        }
    }

    fn user(&mut self, pid: u32, time: u64, address: u64, looked_up: u64, frames: &mut Vec<Frame>) {
        let unknown = unknown(Mode::User, address);
        let Some(mapping) = self.processes.mapping_at(pid, time, looked_up) else {
            return frames.push(unknown);
        };
        let unnamed = Frame {
            object: Some(mapping.path.clone()),
            ..unknown
        };
        let Some(file) = self.objects.file(pid, mapping) else {
            return frames.push(unnamed);
        };
        let offset = (looked_up - mapping.start).checked_add(mapping.offset);
        let Some(in_file) = offset.and_then(|offset| file.address_of(offset)) else {
            return frames.push(unnamed);
        };
        let function = file.function_at(in_file);
        // The sampled address is at most a byte behind the one that was looked up.
        let behind = address - looked_up;
        let offset = function.as_ref().map_or(0, |f| in_file - f.start + behind);
        let lines = file.lines_at(in_file);
        let (outermost, inlined) = match lines.split_last() {
            Some((outermost, inlined)) => (outermost.clone(), inlined),
            None => (LineAt::default(), &lines[..]),
        };
        for line in inlined {
            let name = line.function.clone();
            frames.push(Frame {
                symbol: name.map(|name| Symbol { name, offset }),
                inlined: true,
                location: line.location.clone(),
                ..unnamed.clone()
            });
        }
        let name = function.map(|f| f.name).or(outermost.function);
        frames.push(Frame {
            symbol: name.map(|name| Symbol { name, offset }),
            location: outermost.location,
            ..unnamed
        });
    }
}

/// A frame of which only the address is known.
fn unknown(mode: Mode, address: u64) -> Frame {
    Frame {
        address,
        mode,
        symbol: None,
        object: None,
        inlined: false,
        location: None,
    }
}
