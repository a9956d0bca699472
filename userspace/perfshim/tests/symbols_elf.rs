// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions and lines of ELF files: made ones, and this test's own program.

mod symbols_elf_file;

use std::hint::black_box;
use std::process;

use perfshim::symbols::ElfFile;
use perfshim::symbols::Frame;
use perfshim::symbols::Mode;
use perfshim::symbols::Symbolizer;
use proptest::prelude::*;
use symbols_elf_file::*;

fn made<'a>(symbols: &'a [Symbol<'a>]) -> Elf<'a> {
    // Address and offset differ, as lld lays programs out.
    Elf {
        offset: 0x1000,
        address: 0x40_2000,
        size: 0x1000,
        symbols,
        stripped: false,
        build_id: None,
    }
}

fn name_at(file: &ElfFile, address: u64) -> Option<String> {
    file.function_at(address)
        .map(|function| function.name.to_string())
}

#[test]
fn functions_have_their_symbols_names_and_sizes() {
    let elf = made(&[
        ("first", 0x40_2000, 0x10, STT_FUNC, STB_GLOBAL),
        ("second", 0x40_2020, 0x10, STT_FUNC, STB_LOCAL),
        ("data", 0x40_2040, 0x10, STT_OBJECT, STB_GLOBAL),
        ("label", 0x40_2100, 0, STT_NOTYPE, STB_LOCAL),
        ("$x", 0x40_2080, 0, STT_NOTYPE, STB_LOCAL),
    ]);
    for stripped in [false, true] {
        let file = ElfFile::parse(&Elf { stripped, ..elf }.bytes(), false).unwrap();
        assert_eq!(name_at(&file, 0x40_1fff), None);
        assert_eq!(name_at(&file, 0x40_2000).as_deref(), Some("first"));
        assert_eq!(name_at(&file, 0x40_200f).as_deref(), Some("first"));
        assert_eq!(name_at(&file, 0x40_2010), None, "between two functions");
        let second = file.function_at(0x40_2024).unwrap();
        assert_eq!((&*second.name, second.start), ("second", 0x40_2020));
        assert_eq!(name_at(&file, 0x40_2040), None, "data is no function");
        assert_eq!(
            name_at(&file, 0x40_2080),
            None,
            "a mapping symbol names nothing"
        );
        // A label of assembly code has no size: it reaches to the end of the section.
        assert_eq!(name_at(&file, 0x40_2fff).as_deref(), Some("label"));
        assert_eq!(name_at(&file, 0x40_3000), None);
    }
}

#[test]
fn of_several_names_of_a_function_the_plain_global_one_is_taken() {
    let file = made(&[
        ("__write", 0x40_2000, 8, STT_FUNC, STB_GLOBAL),
        ("write", 0x40_2000, 8, STT_FUNC, STB_WEAK),
        ("__GI_write", 0x40_2000, 8, STT_FUNC, STB_LOCAL),
        ("plain", 0x40_2010, 8, STT_FUNC, STB_GLOBAL),
        ("local", 0x40_2010, 8, STT_FUNC, STB_LOCAL),
    ]);
    let file = ElfFile::parse(&file.bytes(), false).unwrap();
    assert_eq!(name_at(&file, 0x40_2010).as_deref(), Some("plain"));
    assert!(["write", "__write"].contains(&name_at(&file, 0x40_2000).unwrap().as_str()));
}

#[test]
fn rust_and_cxx_names_are_demangled_and_others_left() {
    let file = made(&[
        (
            "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
            0x40_2000,
            8,
            STT_FUNC,
            STB_GLOBAL,
        ),
        (
            "_RNvCs1234_7mycrate3foo",
            0x40_2010,
            8,
            STT_FUNC,
            STB_GLOBAL,
        ),
        (
            "_ZN9Something7performEi",
            0x40_2020,
            8,
            STT_FUNC,
            STB_GLOBAL,
        ),
        ("_Z_plain_c", 0x40_2030, 8, STT_FUNC, STB_GLOBAL),
    ]);
    let file = ElfFile::parse(&file.bytes(), false).unwrap();
    let names = [0x40_2000, 0x40_2010, 0x40_2020, 0x40_2030].map(|a| name_at(&file, a).unwrap());
    assert_eq!(
        names,
        [
            "core::fmt::Formatter::pad",
            "mycrate::foo",
            "Something::perform(int)",
            "_Z_plain_c"
        ]
    );
}

#[test]
fn file_offsets_become_addresses_by_the_program_headers() {
    let file = ElfFile::parse(&made(&[]).bytes(), false).unwrap();
    assert_eq!(file.address_of(0x1000), Some(0x40_2000));
    assert_eq!(file.address_of(0x1fff), Some(0x40_2fff));
    assert_eq!(file.address_of(0x2000), None);
    assert_eq!(file.address_of(0xfff), None);
    assert_eq!(file.address_of(u64::MAX), None);
}

#[test]
fn what_is_no_elf_file_is_refused() {
    let good = made(&[("f", 0x40_2000, 8, STT_FUNC, STB_GLOBAL)]).bytes();
    for bad in [&b""[..], b"#!/bin/sh\n", &good[..20], &good[..70]] {
        assert!(ElfFile::parse(bad, true).is_err());
    }
}

#[test]
fn pipes_folders_and_devices_are_not_opened() {
    for path in ["/", "/dev/zero", "/proc/self/fd"] {
        let error = ElfFile::open(path.as_ref(), false).err().unwrap();
        assert_eq!(error, "not a regular file");
    }
}

/// Where this is, as a call chain would say: the address behind the call.
#[inline(never)]
fn called_from_test() -> u64 {
    black_box(called_from_test as usize as u64)
}

fn frames(symbolizer: &mut Symbolizer, address: u64) -> Vec<Frame> {
    symbolizer.stack(process::id(), u64::MAX, [(Mode::User, address)])
}

#[test]
fn this_program_is_found_with_lines() {
    let mut symbolizer = Symbolizer::with_lines();
    symbolizer.load_process(process::id()).unwrap();
    let address = called_from_test();
    let frames = frames(&mut symbolizer, address + 4);
    let frame = frames.last().unwrap();
    let symbol = frame.symbol.as_ref().unwrap();
    assert!(
        symbol.name.ends_with("symbols_elf::called_from_test"),
        "{frame}"
    );
    assert_eq!(symbol.offset, 4);
    let object = frame.object.as_deref().unwrap();
    assert_eq!(object, std::env::current_exe().unwrap().to_str().unwrap());
    let location = frame.location.as_ref().unwrap();
    assert!(
        location.file.ends_with("tests/symbols_elf.rs"),
        "{location:?}"
    );
    let here = line!();
    assert!((here - 40..here).contains(&location.line), "{location:?}");
    assert!(
        frame.to_string().contains("called_from_test+0x4 ("),
        "{frame}"
    );
    assert_eq!(symbolizer.problems(), [""; 0]);
}

#[test]
fn without_lines_there_are_names_all_the_same() {
    let mut symbolizer = Symbolizer::new();
    symbolizer.load_process(process::id()).unwrap();
    let frames = frames(&mut symbolizer, called_from_test());
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].location, None);
    assert!(
        frames[0]
            .symbol
            .as_ref()
            .unwrap()
            .name
            .ends_with("called_from_test")
    );
}

/// The vDSO has no file: its functions come from memory.
#[test]
fn the_vdso_has_names() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        eprintln!("skipped: this machine has no vDSO");
        return;
    };
    let (start, rest) = line.split_once('-').unwrap();
    let (end, _) = rest.split_once(' ').unwrap();
    let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
    let mut symbolizer = Symbolizer::new();
    symbolizer.load_process(process::id()).unwrap();
    let mut names = (start..end).step_by(4).filter_map(|address| {
        let frames = frames(&mut symbolizer, address);
        assert_eq!(frames[0].object.as_deref(), Some("[vdso]"));
        frames[0]
            .symbol
            .as_ref()
            .map(|symbol| symbol.name.to_string())
    });
    assert!(names.any(|name| name.contains("clock_gettime")));
}

/// The image of a small real file with dynamic symbols and a build ID, of every CPU's own kind.
fn vdso() -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let Some(range) = line.and_then(|line| line.split(' ').next()) else {
        return made(&[("f", 0x40_2000, 8, STT_FUNC, STB_GLOBAL)]).bytes();
    };
    let (start, end) = range.split_once('-').unwrap();
    let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
    let mut bytes = vec![0; (end - start) as usize];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut bytes, start).unwrap();
    bytes
}

proptest! {
    /// Damaged files give an error, or something, but no panic.
    #[test]
    fn damaged_files_are_survived(
        real: bool,
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..20),
        length in any::<proptest::sample::Index>(),
        cut: bool,
        address: u64,
    ) {
        let symbols = [
            ("first", 0x40_2000, 0x10, STT_FUNC, STB_GLOBAL),
            ("label", 0x40_2100, 0, STT_NOTYPE, STB_LOCAL),
        ];
        let mut bytes = match real {
            true => vdso(),
            false => Elf { build_id: Some(&[7; 20]), ..made(&symbols) }.bytes(),
        };
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        if let Ok(file) = ElfFile::parse(&bytes, true) {
            for address in [address, 0x40_2005, 0x40_2105] {
                let _ = file.function_at(address);
                let _ = file.lines_at(address);
                let _ = file.address_of(address);
            }
        }
    }
}
