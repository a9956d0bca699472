// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ELF files behind mappings, each read once.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use super::ElfFile;
use super::FileId;
use super::Mapping;
use super::maps;

/// What the kernel appends to a path that no longer leads to the file.
const DELETED: &str = " (deleted)";

/// The name of the code that the kernel maps into each process.
const VDSO: &str = "[vdso]";

/// The files read so far; `None` where one could not be used.
pub(super) struct Objects {
    lines: bool,
    files: HashMap<(Arc<str>, FileId), Option<ElfFile>>,
    problems: Vec<String>,
}

impl Objects {
    pub(super) fn new(lines: bool) -> Self {
        Self {
            lines,
            files: HashMap::new(),
            problems: Vec::new(),
        }
    }

    /// Which files could not be used, and why.
    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The file behind a mapping of the process.
    pub(super) fn file(&mut self, pid: u32, mapping: &Mapping) -> Option<&ElfFile> {
        let key = (mapping.path.clone(), mapping.file_id.clone());
        if !self.files.contains_key(&key) {
            let file = self.read(pid, mapping).unwrap_or_else(|problem| {
                let path = mapping.path.escape_debug();
                self.problems
                    .push(format!("no symbols of {path}: {problem}"));
                None
            });
            self.files.insert(key.clone(), file);
        }
        self.files.get(&key)?.as_ref()
    }

    /// Reads the file; `None` where there is none to read.
    fn read(&self, pid: u32, mapping: &Mapping) -> Result<Option<ElfFile>, String> {
        let path = &*mapping.path;
        if path == VDSO {
            return own_vdso(mapping.end - mapping.start, self.lines).map(Some);
        }
        if !path.starts_with('/') || path == maps::ANONYMOUS {
            return Ok(None);
        }
        let mut problem = "no such file".to_owned();
        for candidate in candidates(pid, mapping) {
            match self.read_if_same(&candidate, &mapping.file_id) {
                Ok(file) => return Ok(Some(file)),
                // The first place is the process's own view; what is said of it fits best.
                Err(Failure::Absent) => {}
                Err(Failure::Unusable(why)) => problem = why,
            }
        }
        Err(problem)
    }

    fn read_if_same(&self, path: &Path, file_id: &FileId) -> Result<ElfFile, Failure> {
        let metadata = fs::metadata(path).map_err(|_| Failure::Absent)?;
        if matches!(file_id, FileId::Inode(inode) if *inode != metadata.ino()) {
            return Err(Failure::replaced());
        }
        let file = ElfFile::open(path, self.lines).map_err(Failure::Unusable)?;
        match file_id {
            FileId::BuildId(id) if file.build_id() != Some(id) => Err(Failure::replaced()),
            _ => Ok(file),
        }
    }
}

/// Why a file at one of the places where it may be is not used.
enum Failure {
    Absent,
    Unusable(String),
}

impl Failure {
    fn replaced() -> Self {
        Self::Unusable("the file was replaced after it had been mapped".to_owned())
    }
}

/// Where a mapping's file may be: as the process sees it while it runs, which may be in a container
/// or where the file has been deleted, and as we see it.
fn candidates(pid: u32, mapping: &Mapping) -> Vec<PathBuf> {
    let path = &*mapping.path;
    let Some(former) = path.strip_suffix(DELETED) else {
        return vec![format!("/proc/{pid}/root{path}").into(), path.into()];
    };
    let (start, end) = (mapping.start, mapping.end);
    let mapped = format!("/proc/{pid}/map_files/{start:x}-{end:x}").into();
    if mapping.file_id == FileId::Unknown {
        // Whatever has that name now, nothing tells whether it is the same.
        return vec![mapped];
    }
    vec![
        mapped,
        format!("/proc/{pid}/root{former}").into(),
        former.into(),
    ]
}

/// The vDSO, which has no file: it is the same in all processes, so ours is read. One of another
/// size belongs to processes of another word size, and is not known.
fn own_vdso(size: u64, lines: bool) -> Result<ElfFile, String> {
    let own = maps::of_process(process::id()).map_err(|error| error.to_string())?;
    let own = own.into_iter().find(|mapping| *mapping.path == *VDSO);
    let own = own.ok_or("this process has none to compare with")?;
    if own.end - own.start != size {
        return Err("it is not that of this process".to_owned());
    }
    let read = || {
        let mut memory = fs::File::open("/proc/self/mem")?;
        memory.seek(SeekFrom::Start(own.start))?;
        let mut bytes = Vec::new();
        memory.take(size).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error: std::io::Error| error.to_string())?;
    ElfFile::parse(&bytes, lines)
}
