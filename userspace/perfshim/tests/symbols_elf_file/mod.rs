// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small ELF files made for a test: 64 bits, this machine's byte order, one segment of code.

// Each test program uses some of these.
#![allow(dead_code)]

pub const STT_NOTYPE: u8 = 0;
pub const STT_OBJECT: u8 = 1;
pub const STT_FUNC: u8 = 2;
pub const STB_LOCAL: u8 = 0;
pub const STB_GLOBAL: u8 = 1;
pub const STB_WEAK: u8 = 2;

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_NOTE: u32 = 7;
const SHT_DYNSYM: u32 = 11;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;

/// A symbol: name, address, size, type (STT_*), binding (STB_*).
pub type Symbol<'a> = (&'a str, u64, u64, u8, u8);

/// What is in the file.
pub struct Elf<'a> {
    /// Where the code is in the file; at least 0x200, behind the headers.
    pub offset: u64,
    /// Where it is loaded, before relocation.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// The symbols.
    pub symbols: &'a [Symbol<'a>],
    /// Whether only the dynamic symbol table is left.
    pub stripped: bool,
    /// The build ID, if there is one.
    pub build_id: Option<&'a [u8]>,
}

impl Elf<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = vec![0; 0x200];
        let mut sections = vec![section(0, 0, 0, [0; 6])];
        let mut names = vec![0u8];

        file.resize((self.offset + self.size) as usize, 0xcc);
        let name = string(&mut names, ".text");
        let flags = SHF_ALLOC | SHF_EXECINSTR;
        let text = [self.address, self.offset, self.size, 0, 16, 0];
        sections.push(section(name, SHT_PROGBITS, flags, text));

        let mut strings = vec![0u8];
        let mut symbols = symbol(0, 0, 0, 0, 0);
        for (name, address, size, kind, binding) in self.symbols {
            let name = string(&mut strings, name);
            symbols.extend(symbol(name, (binding << 4) | kind, 1, *address, *size));
        }
        let (kind, symtab, strtab) = match self.stripped {
            true => (SHT_DYNSYM, ".dynsym", ".dynstr"),
            false => (SHT_SYMTAB, ".symtab", ".strtab"),
        };
        let at = append(&mut file, &symbols);
        let name = string(&mut names, symtab);
        // sh_link names the table of strings, the next section.
        let table = [0, at, symbols.len() as u64, 3 | (1 << 32), 8, 24];
        sections.push(section(name, kind, 0, table));
        let at = append(&mut file, &strings);
        let name = string(&mut names, strtab);
        sections.push(section(
            name,
            SHT_STRTAB,
            0,
            [0, at, strings.len() as u64, 0, 1, 0],
        ));

        if let Some(id) = self.build_id {
            let mut note = words32(&[4, id.len() as u32, 3]);
            note.extend(b"GNU\0");
            note.extend(id);
            let at = append(&mut file, &note);
            let name = string(&mut names, ".note.gnu.build-id");
            let place = [0, at, note.len() as u64, 0, 4, 0];
            sections.push(section(name, SHT_NOTE, SHF_ALLOC, place));
        }

        let name = string(&mut names, ".shstrtab");
        let at = append(&mut file, &names);
        sections.push(section(
            name,
            SHT_STRTAB,
            0,
            [0, at, names.len() as u64, 0, 1, 0],
        ));
        let at = append(&mut file, &sections.concat());
        self.write_headers(&mut file, at, sections.len() as u16);
        file
    }

    fn write_headers(&self, file: &mut [u8], sections_at: u64, sections: u16) {
        let data = if cfg!(target_endian = "little") { 1 } else { 2 };
        let mut header = vec![
            0x7f, b'E', b'L', b'F', 2, data, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        // ET_DYN; EM_NONE, for nothing here depends on the machine.
        header.extend([3u16, 0].iter().flat_map(|half| half.to_ne_bytes()));
        header.extend(words32(&[1]));
        header.extend(words64(&[0, 64, sections_at]));
        header.extend(words32(&[0]));
        let halves = [64u16, 56, 1, 64, sections, sections - 1];
        header.extend(halves.iter().flat_map(|half| half.to_ne_bytes()));
        // PT_LOAD, readable and executable.
        header.extend(words32(&[1, 5]));
        let (offset, address, size) = (self.offset, self.address, self.size);
        header.extend(words64(&[offset, address, address, size, size, 0x1000]));
        file[..header.len()].copy_from_slice(&header);
    }
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words64(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The last six words: address, offset, size, link and info, alignment, size of an entry.
fn section(name: u32, kind: u32, flags: u64, rest: [u64; 6]) -> Vec<u8> {
    let [address, offset, size, link_info, align, entry] = rest;
    let mut bytes = words32(&[name, kind]);
    bytes.extend(words64(&[flags, address, offset, size]));
    bytes.extend(words32(&[link_info as u32, (link_info >> 32) as u32]));
    bytes.extend(words64(&[align, entry]));
    bytes
}

fn symbol(name: u32, info: u8, section: u16, address: u64, size: u64) -> Vec<u8> {
    let mut bytes = words32(&[name]);
    bytes.extend([info, 0]);
    bytes.extend(section.to_ne_bytes());
    bytes.extend(words64(&[address, size]));
    bytes
}

fn string(table: &mut Vec<u8>, text: &str) -> u32 {
    let at = table.len() as u32;
    table.extend(text.as_bytes());
    table.push(0);
    at
}

/// Adds to the file at the next multiple of 8.
fn append(file: &mut Vec<u8>, bytes: &[u8]) -> u64 {
    file.resize(file.len().next_multiple_of(8), 0);
    let at = file.len() as u64;
    file.extend(bytes);
    at
}
