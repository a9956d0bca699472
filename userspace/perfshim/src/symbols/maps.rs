// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/PID/maps`.

use std::fs;
use std::io;
use std::path::Path;

use super::FileId;
use super::Mapping;

/// What perf calls memory that no file is behind.
pub(super) const ANONYMOUS: &str = "//anon";

/// The executable mappings of a running process.
///
/// # Errors
/// When the process is gone or belongs to somebody else, and when the file is not of its form
/// (`InvalidData`); the error names the file.
pub fn of_process(pid: u32) -> io::Result<Vec<Mapping>> {
    read(Path::new(&format!("/proc/{pid}/maps")))
}

/// The executable mappings in `file`, which is a `/proc/PID/maps` or a copy of one.
///
/// # Errors
/// As [`of_process`].
pub fn read(file: &Path) -> io::Result<Vec<Mapping>> {
    let name = |kind, what: String| io::Error::new(kind, format!("{}: {what}", file.display()));
    let text = fs::read(file).map_err(|error| name(error.kind(), error.to_string()))?;
    // Paths need not be UTF-8; one that is not is not found then, but shown as well as can be.
    let text = String::from_utf8_lossy(&text);
    let mut mappings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match parse(line) {
            Some((mapping, true)) => mappings.push(mapping),
            Some((_, false)) => {}
            None => {
                let found: String = line.chars().take(60).collect();
                let expected = "expected `START-END PERMISSIONS OFFSET DEVICE INODE [PATH]`";
                let what = format!("line {}: {expected}, found `{found}`", index + 1);
                return Err(name(io::ErrorKind::InvalidData, what));
            }
        }
    }
    Ok(mappings)
}

/// A line's mapping, and whether it is executable.
fn parse(line: &str) -> Option<(Mapping, bool)> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let (start, end) = word().split_once('-')?;
    let permissions = word();
    let offset = word();
    let _device = word();
    let inode: u64 = word().parse().ok()?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    if start > end || permissions.len() != 4 {
        return None;
    }
    let path = match rest.trim_start() {
        "" => ANONYMOUS,
        path => path,
    };
    let file_id = match inode {
        0 => FileId::Unknown,
        inode => FileId::Inode(inode),
    };
    let mapping = Mapping {
        start,
        end,
        offset: hexadecimal(offset)?,
        // The one character that the kernel escapes here (seq_path).
        path: path.replace("\\012", "\n").into(),
        file_id,
    };
    Some((mapping, permissions.as_bytes()[2] == b'x'))
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok())?
}
