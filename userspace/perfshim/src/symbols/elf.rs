// SPDX-License-Identifier: MIT OR Apache-2.0
//! One ELF file: which function, and which line, is at an address.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use gimli::RunTimeEndian;
use object::Object;
use object::ObjectSection;
use object::ObjectSegment;
use object::ObjectSymbol;
use object::SectionKind;
use object::SymbolKind;

use super::Location;
use super::ranges::Range;
use super::ranges::Ranges;

type Section = gimli::EndianArcSlice<RunTimeEndian>;

/// Where distributions put debug information apart from the programs.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// The functions and lines of an ELF file.
pub struct ElfFile {
    segments: Vec<Segment>,
    functions: Ranges<Function>,
    build_id: Option<Vec<u8>>,
    lines: Option<Lines>,
}

/// Bytes of the file that are loaded to an address.
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

/// A symbol's name as the file has it, and as people write it.
struct Function {
    raw: Box<str>,
    readable: OnceCell<Arc<str>>,
}

impl Function {
    fn name(&self) -> Arc<str> {
        let demangle = || addr2line::demangle_auto(Cow::Borrowed(&self.raw), None).into();
        self.readable.get_or_init(demangle).clone()
    }
}

/// A function found at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionAt {
    /// Its name, demangled if it is a Rust or C++ symbol.
    pub name: Arc<str>,
    /// Where it begins, as the file counts addresses.
    pub start: u64,
}

/// A function or line found in the debug information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineAt {
    /// The function's name, demangled; `None` where the debug information has none.
    pub function: Option<Arc<str>>,
    /// The place in the source; for the callers of an inlined function, that of the call.
    pub location: Option<Location>,
}

impl ElfFile {
    /// Reads a file's symbol table, and its line tables if `lines` says so.
    ///
    /// Where the file has lost them, those of the debug file with the same build ID are taken.
    ///
    /// # Errors
    /// When the file cannot be read, or is no ELF file; the text does not name the file.
    pub fn open(path: &Path, lines: bool) -> Result<Self, String> {
        let mut file = Self::parse(&read(path)?, lines)?;
        if let Some(debug) = file.debug_file() {
            // A debug file that cannot be used leaves what the file itself has.
            if let Ok(debug) = read(&debug).and_then(|bytes| Self::parse(&bytes, lines)) {
                if !debug.functions.is_empty() {
                    file.functions = debug.functions;
                }
                file.lines = debug.lines.or(file.lines);
            }
        }
        Ok(file)
    }

    /// Reads what [`ElfFile::open`] does from the bytes of a file.
    ///
    /// # Errors
    /// When they are no ELF file; the text says why.
    pub fn parse(bytes: &[u8], lines: bool) -> Result<Self, String> {
        let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
        let segments = file.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            let address = segment.address();
            Segment {
                offset,
                size,
                address,
            }
        });
        Ok(Self {
            segments: segments.collect(),
            functions: functions(&file),
            build_id: file.build_id().ok().flatten().map(<[u8]>::to_vec),
            lines: lines.then(|| Lines::load(&file)).flatten(),
        })
    }

    /// The build ID, if the file has one.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// The address that the byte at `offset` of the file is loaded to, before relocation.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let within = |segment: &&Segment| {
            offset
                .checked_sub(segment.offset)
                .is_some_and(|at| at < segment.size)
        };
        let segment = self.segments.iter().find(within)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// The function at an address.
    pub fn function_at(&self, address: u64) -> Option<FunctionAt> {
        let range = self.functions.find(address)?;
        Some(FunctionAt {
            name: range.what.name(),
            start: range.start,
        })
    }

    /// What the debug information says about an address: functions that were inlined there, the
    /// innermost first, and last the function that really is there. Empty without any.
    pub fn lines_at(&self, address: u64) -> Arc<[LineAt]> {
        let Some(lines) = &self.lines else {
            return Arc::default();
        };
        // Samples meet at few addresses, and searching debug information takes long.
        let mut found = lines.found.borrow_mut();
        let lines = found
            .entry(address)
            .or_insert_with(|| lines.at(address).into());
        lines.clone()
    }

    /// Where the symbols are that this file lacks.
    fn debug_file(&self) -> Option<PathBuf> {
        let (first, rest) = self.build_id()?.split_first()?;
        let rest: Vec<_> = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let rest = rest.concat();
        let path = PathBuf::from(format!("{DEBUG_FILES}/{first:02x}/{rest}.debug"));
        path.exists().then_some(path)
    }
}

/// The bytes of a regular file; opening a pipe or device of that name could block.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    fs::read(path).map_err(|error| error.to_string())
}

/// The functions of the symbol table; of the dynamic one where the other was stripped.
fn functions(file: &object::File<'_>) -> Ranges<Function> {
    let mut ranges: Vec<_> = file.symbols().filter_map(|s| function(file, &s)).collect();
    if ranges.is_empty() {
        let dynamic = file.dynamic_symbols();
        ranges = dynamic
            .filter_map(|symbol| function(file, &symbol))
            .collect();
    }
    Ranges::new(ranges)
}

/// A symbol as a function, if it is one.
fn function(file: &object::File<'_>, symbol: &object::Symbol<'_, '_>) -> Option<Range<Function>> {
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    if section.kind() != SectionKind::Text {
        return None;
    }
    let name = symbol.name().ok()?;
    // Code written in assembly often says no more than that there is a label. Labels with `$`
    // mark where code and data change (AAELF64, RISC-V ELF psABI), and name nothing.
    let label = matches!(symbol.kind(), SymbolKind::Unknown | SymbolKind::Label);
    let names_code = symbol.kind() == SymbolKind::Text || (label && !name.starts_with('$'));
    if !names_code || name.is_empty() {
        return None;
    }
    let start = symbol.address();
    Some(Range {
        start,
        size: symbol.size(),
        limit: section.address().saturating_add(section.size()),
        rank: [
            u8::from(symbol.kind() == SymbolKind::Text),
            u8::from(symbol.is_global() && !symbol.is_weak()),
            u8::from(!name.starts_with('_')),
            u8::from(symbol.is_global()),
        ],
        what: Function {
            raw: name.into(),
            readable: OnceCell::new(),
        },
    })
}

/// The line tables, which are parsed when the first address is looked up.
struct Lines {
    dwarf: Arc<gimli::Dwarf<Section>>,
    context: OnceCell<Option<addr2line::Context<Section>>>,
    /// What was found at the addresses that were asked for.
    found: RefCell<HashMap<u64, Arc<[LineAt]>>>,
}

impl Lines {
    fn load(file: &object::File<'_>) -> Option<Self> {
        file.section_by_name(".debug_info")?;
        let endian = match file.is_little_endian() {
            true => RunTimeEndian::Little,
            false => RunTimeEndian::Big,
        };
        // A section that cannot be decompressed counts as empty: what needs it is not found.
        let section = |id: gimli::SectionId| {
            let section = file.section_by_name(id.name());
            let bytes = section.and_then(|section| section.uncompressed_data().ok());
            let bytes: Arc<[u8]> = bytes.unwrap_or_default().into();
            Ok::<_, gimli::Error>(Section::new(bytes, endian))
        };
        let dwarf = gimli::Dwarf::load(section).ok()?;
        Some(Self {
            dwarf: Arc::new(dwarf),
            context: OnceCell::new(),
            found: RefCell::default(),
        })
    }

    fn at(&self, address: u64) -> Vec<LineAt> {
        let new = || addr2line::Context::from_arc_dwarf(self.dwarf.clone()).ok();
        let Some(context) = self.context.get_or_init(new) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let Ok(mut frames) = context.find_frames(address).skip_all_loads() else {
            return found;
        };
        // After an error nothing more can be read of this unit; what came before is right.
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref();
            found.push(LineAt {
                function: function.and_then(|name| name.demangle().ok().map(Into::into)),
                location: frame.location.and_then(|location| {
                    Some(Location {
                        file: location.file?.into(),
                        line: location.line.unwrap_or(0),
                        column: location.column.unwrap_or(0),
                    })
                }),
            });
        }
        found
    }
}
