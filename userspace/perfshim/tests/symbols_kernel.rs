// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel functions from copies of `/proc/kallsyms`.

use std::fs;
use std::path::PathBuf;

use perfshim::symbols::KernelSymbols;
use perfshim::symbols::KernelSymbolsError;
use perfshim::symbols::Mode;
use perfshim::symbols::Symbolizer;
use proptest::prelude::*;
use tempfile::TempDir;

const KALLSYMS: &str = "\
ffff800080000000 T _text
ffff800080010000 T __irqentry_text_start
ffff800080010000 t gic_handle_irq
ffff800080010000 T _stext
ffff800080010080 T do_undefinstr
ffff800080010100 W arch_thing
ffff800080010200 D some_data
ffff800080010300 T last_text
ffff800080010310 D _edata
ffff800080900000 B _end
ffff80007a000000 t probe\t[rust_pmuv3]
ffff80007a000040 T exported\t[rust_pmuv3]
ffff80007b000000 t bpf_prog_1234_x\t[bpf]
";

fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("kallsyms");
    fs::write(&path, content).unwrap();
    (folder, path)
}

fn found(symbols: &KernelSymbols, address: u64) -> Option<(String, u64, String)> {
    let function = symbols.function_at(address)?;
    let (name, object) = (function.name.to_string(), function.object.to_string());
    Some((name, address - function.start, object))
}

#[test]
fn addresses_have_function_offset_and_module() {
    let (_folder, path) = file(KALLSYMS.as_bytes());
    let symbols = KernelSymbols::read(&path).unwrap();
    for (address, expected) in [
        (
            0xffff_8000_8001_0010,
            Some(("gic_handle_irq", 0x10, "[kernel.kallsyms]")),
        ),
        (
            0xffff_8000_8001_0080,
            Some(("do_undefinstr", 0, "[kernel.kallsyms]")),
        ),
        (
            0xffff_8000_8001_01ff,
            Some(("arch_thing", 0xff, "[kernel.kallsyms]")),
        ),
        (0xffff_8000_8001_0200, None),
        (
            0xffff_8000_8001_030f,
            Some(("last_text", 0xf, "[kernel.kallsyms]")),
        ),
        (0xffff_8000_7a00_0020, Some(("probe", 0x20, "[rust_pmuv3]"))),
        (
            0xffff_8000_7a00_0050,
            Some(("exported", 0x10, "[rust_pmuv3]")),
        ),
        // No symbol says where a module ends: not much more than a page is taken for it.
        (0xffff_8000_7a00_2000, None),
        (
            0xffff_8000_7b00_0100,
            Some(("bpf_prog_1234_x", 0x100, "[bpf]")),
        ),
        (0xffff_8000_8090_0000, None),
        (0, None),
        (u64::MAX, None),
    ] {
        let expected = expected.map(|(name, offset, object): (&str, u64, &str)| {
            (name.to_owned(), offset, object.to_owned())
        });
        assert_eq!(found(&symbols, address), expected, "{address:#x}");
    }
}

#[test]
fn hidden_addresses_are_said_to_be_hidden_with_the_remedy() {
    let hidden = "0000000000000000 T _text\n0000000000000000 t probe\t[module]\n";
    let (_folder, path) = file(hidden.as_bytes());
    let error = KernelSymbols::read(&path).err().unwrap();
    assert!(matches!(error, KernelSymbolsError::Hidden { .. }));
    assert!(error.to_string().contains("kptr_restrict"), "{error}");

    let mut symbolizer = Symbolizer::new().kallsyms(&path);
    assert!(
        symbolizer.kernel_problem().is_none(),
        "nothing was looked up yet"
    );
    let frames = symbolizer.stack(0, 0, [(Mode::Kernel, 0xffff_8000_8001_0010)]);
    assert_eq!(frames[0].symbol, None);
    assert_eq!(frames[0].to_string(), "0xffff800080010010 ([unknown])");
    assert!(
        symbolizer
            .kernel_problem()
            .unwrap()
            .to_string()
            .contains("root")
    );
}

#[test]
fn what_is_no_kallsyms_is_refused_with_the_line() {
    for (content, line) in [
        (&b"hello\n"[..], 1),
        (b"ffff T ok\nzzzz T bad\n", 2),
        (b"ffff TT bad\n", 1),
        (b"ffff T ok [module\n", 1),
        (b"ffff T ok [module] more\n", 1),
        (b"ffff T ok\n\n", 2),
        (b"10000000000000000 T too_far\n", 1),
        (b"\xff\xfe\x00", 1),
    ] {
        let (_folder, path) = file(content);
        match KernelSymbols::read(&path).err().unwrap() {
            KernelSymbolsError::Malformed { line: found, .. } => assert_eq!(found, line),
            other => panic!("{other}"),
        }
    }
    let (folder, _) = file(b"");
    let error = KernelSymbols::read(&folder.path().join("absent"))
        .err()
        .unwrap();
    assert!(matches!(error, KernelSymbolsError::Io { .. }), "{error}");
}

#[test]
fn returns_into_the_next_function_belong_to_the_caller() {
    let (_folder, path) = file(KALLSYMS.as_bytes());
    let mut symbolizer = Symbolizer::new().kallsyms(&path);
    let at = 0xffff_8000_8001_0080;
    let frames = symbolizer.stack(0, 0, [(Mode::Kernel, at), (Mode::Kernel, at)]);
    let names: Vec<_> = frames.iter().map(ToString::to_string).collect();
    let expected = [
        "do_undefinstr+0x0 ([kernel.kallsyms])",
        "gic_handle_irq+0x80 ([kernel.kallsyms])",
    ];
    assert_eq!(names, expected);
}

#[test]
fn this_kernels_symbols_are_read_or_said_to_be_hidden() {
    match KernelSymbols::running() {
        Ok(symbols) => {
            let text = fs::read_to_string("/proc/kallsyms").unwrap();
            let line = text
                .lines()
                .find(|line| line.ends_with(" schedule"))
                .unwrap();
            let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
            assert_eq!(found(&symbols, address + 1).unwrap().0, "schedule");
        }
        Err(error) => eprintln!("skipped: {error}"),
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        lines in "([0-9a-f]{1,17} [tTdW] [a-z_]{1,5}( \\[[a-z]{1,3}\\])?\n){0,12}",
        noise in proptest::collection::vec(any::<u8>(), 0..10),
        address: u64,
    ) {
        let (_folder, path) = file(&[lines.as_bytes(), &noise].concat());
        if let Ok(symbols) = KernelSymbols::read(&path) {
            let _ = symbols.function_at(address);
        }
    }
}
