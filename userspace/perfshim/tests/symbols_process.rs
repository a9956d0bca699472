// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that map, exec, fork and end, told in records; most are gone when one asks.

mod symbols_elf_file;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process;
use std::ptr;

use perfshim::record::Comm;
use perfshim::record::CpuMode;
use perfshim::record::Decoded;
use perfshim::record::MapIdentity;
use perfshim::record::Misc;
use perfshim::record::Mmap;
use perfshim::record::Mmap2;
use perfshim::record::Record;
use perfshim::record::Sample;
use perfshim::record::SampleId;
use perfshim::record::Task;
use perfshim::record::ThreadId;
use perfshim::symbols::FileId;
use perfshim::symbols::Frame;
use perfshim::symbols::Mapping;
use perfshim::symbols::Mode;
use perfshim::symbols::Processes;
use perfshim::symbols::Symbolizer;
use perfshim::sys;
use proptest::prelude::*;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::mm::mmap as mmap_file;
use symbols_elf_file::*;
use tempfile::TempDir;

/// Numbers that no process has: above the kernel's largest.
const PID: u32 = 5_000_000;
const CHILD: u32 = PID + 1;
const USER: Misc = Misc(sys::PERF_RECORD_MISC_USER as u16);
const EXEC: Misc = Misc((sys::PERF_RECORD_MISC_USER | sys::PERF_RECORD_MISC_COMM_EXEC) as u16);

/// Files with one function each, which has the file's name.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The function is at 0x100 behind the beginning of the code, and the code at 0x1000.
    fn add(&self, name: &str) -> PathBuf {
        self.add_with_build_id(name, None)
    }

    fn add_with_build_id(&self, name: &str, build_id: Option<&[u8]>) -> PathBuf {
        let elf = Elf {
            offset: 0x1000,
            address: 0x1000,
            size: 0x1000,
            symbols: &[(name, 0x1100, 0x80, STT_FUNC, STB_GLOBAL)],
            stripped: false,
            build_id,
        };
        fs::write(self.path(name), elf.bytes()).unwrap();
        self.path(name)
    }
}

fn thread(pid: u32) -> ThreadId {
    ThreadId { pid, tid: pid }
}

fn decoded(misc: Misc, time: u64, record: Record<'_>) -> Decoded<'_> {
    let id = SampleId {
        time: Some(time),
        ..SampleId::default()
    };
    Decoded { misc, id, record }
}

fn mmap(pid: u32, addr: u64, filename: &OsStr) -> Mmap<'_> {
    Mmap {
        thread: thread(pid),
        addr,
        len: 0x1000,
        page_offset: 0x1000,
        filename,
    }
}

/// The code of a file, mapped at an address.
fn map(symbolizer: &mut Symbolizer, pid: u32, time: u64, addr: u64, file: &OsStr) {
    let record = Record::Mmap(mmap(pid, addr, file));
    symbolizer.learn(&decoded(USER, time, record));
}

fn map2(symbolizer: &mut Symbolizer, addr: u64, file: &OsStr, inode: u64) {
    let record = Record::Mmap2(Mmap2 {
        mmap: mmap(PID, addr, file),
        identity: MapIdentity::Inode {
            major: 0,
            minor: 0,
            inode,
            generation: 0,
        },
        prot: 5,
        flags: 2,
    });
    symbolizer.learn(&decoded(USER, 1, record));
}

fn comm(symbolizer: &mut Symbolizer, misc: Misc, pid: u32, time: u64, comm: &str) {
    let comm = OsStr::new(comm);
    let thread = thread(pid);
    symbolizer.learn(&decoded(misc, time, Record::Comm(Comm { thread, comm })));
}

fn task(pid: u32, parent: u32, time: u64) -> Task {
    Task {
        thread: thread(pid),
        parent: thread(parent),
        time,
    }
}

fn fork(symbolizer: &mut Symbolizer, pid: u32, parent: u32, time: u64) {
    symbolizer.learn(&decoded(USER, time, Record::Fork(task(pid, parent, time))));
}

fn exit(symbolizer: &mut Symbolizer, pid: u32, parent: u32, time: u64) {
    symbolizer.learn(&decoded(USER, time, Record::Exit(task(pid, parent, time))));
}

/// The frames of a sample without a call chain.
fn sample(symbolizer: &mut Symbolizer, pid: u32, time: u64, ip: u64) -> Frame {
    let sample = Sample {
        ip: Some(ip),
        thread: Some(thread(pid)),
        time: Some(time),
        ..Sample::default()
    };
    symbolizer.sample(USER, &sample).remove(0)
}

fn name(symbolizer: &mut Symbolizer, pid: u32, time: u64, ip: u64) -> Option<String> {
    let frame = sample(symbolizer, pid, time, ip);
    frame.symbol.map(|symbol| symbol.name.to_string())
}

#[test]
fn an_address_is_found_through_mapping_file_and_program_header() {
    let files = Files::new();
    let path = files.add("alpha");
    let mut symbolizer = Symbolizer::new();
    map(&mut symbolizer, PID, 1, 0x7f00_0000_0000, path.as_os_str());
    let frame = sample(&mut symbolizer, PID, 2, 0x7f00_0000_0104);
    assert_eq!(frame.to_string(), format!("alpha+0x4 ({})", path.display()));
    let frame = sample(&mut symbolizer, PID, 2, 0x7f00_0000_0200);
    assert_eq!(
        (frame.symbol, frame.object.as_deref()),
        (None, path.to_str())
    );
    let frame = sample(&mut symbolizer, PID, 2, 0x7f00_0000_1000);
    assert_eq!((frame.symbol, frame.object), (None, None));
}

#[test]
fn a_process_that_ended_is_still_known() {
    let files = Files::new();
    let path = files.add("alpha");
    let mut symbolizer = Symbolizer::new();
    map(&mut symbolizer, PID, 1, 0x1000, path.as_os_str());
    comm(&mut symbolizer, USER, PID, 1, "worker");
    exit(&mut symbolizer, PID, 1, 10);
    assert_eq!(
        name(&mut symbolizer, PID, 9, 0x1100).as_deref(),
        Some("alpha")
    );
    assert_eq!(symbolizer.comm(PID, 9).as_deref(), Some("worker"));
}

#[test]
fn a_later_mapping_hides_an_earlier_one_from_then_on() {
    let files = Files::new();
    let (old, new) = (files.add("old"), files.add("new"));
    let mut symbolizer = Symbolizer::new();
    map(&mut symbolizer, PID, 1, 0x1000, old.as_os_str());
    map(&mut symbolizer, PID, 10, 0x1000, new.as_os_str());
    assert_eq!(name(&mut symbolizer, PID, 0, 0x1100), None);
    assert_eq!(
        name(&mut symbolizer, PID, 9, 0x1100).as_deref(),
        Some("old")
    );
    assert_eq!(
        name(&mut symbolizer, PID, 10, 0x1100).as_deref(),
        Some("new")
    );
}

#[test]
fn exec_unmaps_everything_and_a_new_name_alone_does_not() {
    let files = Files::new();
    let (old, new) = (files.add("old"), files.add("new"));
    let mut symbolizer = Symbolizer::new();
    map(&mut symbolizer, PID, 1, 0x1000, old.as_os_str());
    comm(&mut symbolizer, USER, PID, 5, "renamed");
    assert_eq!(
        name(&mut symbolizer, PID, 6, 0x1100).as_deref(),
        Some("old")
    );
    comm(&mut symbolizer, EXEC, PID, 10, "program");
    map(&mut symbolizer, PID, 11, 0x8000, new.as_os_str());
    assert_eq!(name(&mut symbolizer, PID, 12, 0x1100), None);
    assert_eq!(
        name(&mut symbolizer, PID, 12, 0x8100).as_deref(),
        Some("new")
    );
    assert_eq!(
        name(&mut symbolizer, PID, 6, 0x1100).as_deref(),
        Some("old")
    );
    assert_eq!(symbolizer.comm(PID, 6).as_deref(), Some("renamed"));
    assert_eq!(symbolizer.comm(PID, 12).as_deref(), Some("program"));
}

#[test]
fn a_child_has_what_its_parent_had_at_the_fork() {
    let files = Files::new();
    let (before, after) = (files.add("before"), files.add("after"));
    let mut symbolizer = Symbolizer::new();
    comm(&mut symbolizer, USER, PID, 1, "parent");
    map(&mut symbolizer, PID, 1, 0x1000, before.as_os_str());
    fork(&mut symbolizer, CHILD, PID, 5);
    comm(&mut symbolizer, USER, PID, 6, "other");
    map(&mut symbolizer, PID, 6, 0x1000, after.as_os_str());
    map(&mut symbolizer, PID, 6, 0x8000, after.as_os_str());
    assert_eq!(
        name(&mut symbolizer, CHILD, 7, 0x1100).as_deref(),
        Some("before")
    );
    assert_eq!(name(&mut symbolizer, CHILD, 7, 0x8100), None);
    assert_eq!(symbolizer.comm(CHILD, 7).as_deref(), Some("parent"));
    // exec and end of the child leave the parent as it is.
    comm(&mut symbolizer, EXEC, CHILD, 8, "child");
    exit(&mut symbolizer, CHILD, PID, 9);
    assert_eq!(name(&mut symbolizer, CHILD, 8, 0x1100), None);
    assert_eq!(
        name(&mut symbolizer, PID, 9, 0x1100).as_deref(),
        Some("after")
    );
}

#[test]
fn a_number_used_again_is_another_process() {
    let files = Files::new();
    let (first, second) = (files.add("first"), files.add("second"));
    let mut symbolizer = Symbolizer::new();
    map(&mut symbolizer, CHILD, 1, 0x1000, first.as_os_str());
    exit(&mut symbolizer, CHILD, PID, 2);
    map(&mut symbolizer, PID, 3, 0x8000, second.as_os_str());
    fork(&mut symbolizer, CHILD, PID, 4);
    assert_eq!(
        name(&mut symbolizer, CHILD, 1, 0x1100).as_deref(),
        Some("first")
    );
    assert_eq!(name(&mut symbolizer, CHILD, 5, 0x1100), None);
    assert_eq!(
        name(&mut symbolizer, CHILD, 5, 0x8100).as_deref(),
        Some("second")
    );
}

#[test]
fn a_thread_shares_the_mappings_and_takes_the_name() {
    let mut symbolizer = Symbolizer::new();
    comm(&mut symbolizer, USER, PID, 1, "main");
    let record = Record::Fork(Task {
        thread: ThreadId {
            pid: PID,
            tid: CHILD,
        },
        parent: thread(PID),
        time: 2,
    });
    symbolizer.learn(&decoded(USER, 2, record));
    assert_eq!(symbolizer.comm(CHILD, 3).as_deref(), Some("main"));
    assert_eq!(symbolizer.comm(CHILD, 1), None);
}

#[test]
fn records_without_a_time_count_in_their_order() {
    let files = Files::new();
    let (old, new) = (files.add("old"), files.add("new"));
    let mut symbolizer = Symbolizer::new();
    let learn = |symbolizer: &mut Symbolizer, file: &PathBuf| {
        symbolizer.learn(&Decoded {
            misc: USER,
            id: SampleId::default(),
            record: Record::Mmap(mmap(PID, 0x1000, file.as_os_str())),
        });
    };
    let now = Sample {
        ip: Some(0x1100),
        thread: Some(thread(PID)),
        ..Sample::default()
    };
    for file in [&old, &new] {
        learn(&mut symbolizer, file);
        let frame = symbolizer.sample(USER, &now).remove(0);
        let expected = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(&*frame.symbol.unwrap().name, expected);
        fork(&mut symbolizer, CHILD, PID, 100);
    }
}

#[test]
fn data_and_kernel_mappings_are_not_the_processs_code() {
    let files = Files::new();
    let path = files.add("alpha");
    let data = Misc((sys::PERF_RECORD_MISC_USER | sys::PERF_RECORD_MISC_MMAP_DATA) as u16);
    let kernel = Misc(sys::PERF_RECORD_MISC_KERNEL as u16);
    assert_eq!(kernel.cpu_mode(), CpuMode::Kernel);
    for misc in [data, kernel] {
        let mut symbolizer = Symbolizer::new();
        let record = Record::Mmap(mmap(PID, 0x1000, path.as_os_str()));
        symbolizer.learn(&decoded(misc, 1, record));
        assert_eq!(name(&mut symbolizer, PID, 2, 0x1100), None);
    }
}

#[test]
fn a_file_that_was_replaced_lends_no_wrong_names() {
    let files = Files::new();
    let path = files.add("alpha");
    let inode = fs::metadata(&path).unwrap().ino();
    let mut symbolizer = Symbolizer::new();
    map2(&mut symbolizer, 0x1000, path.as_os_str(), inode);
    assert_eq!(
        name(&mut symbolizer, PID, 2, 0x1100).as_deref(),
        Some("alpha")
    );

    let mut symbolizer = Symbolizer::new();
    map2(&mut symbolizer, 0x1000, path.as_os_str(), inode + 1);
    let frame = sample(&mut symbolizer, PID, 2, 0x1100);
    assert_eq!(
        (frame.symbol, frame.object.as_deref()),
        (None, path.to_str())
    );
    let [problem] = symbolizer.problems() else {
        panic!("{:?}", symbolizer.problems());
    };
    assert!(
        problem.contains("alpha") && problem.contains("replaced"),
        "{problem}"
    );
}

#[test]
fn a_file_that_took_a_deleted_ones_name_lends_it_no_symbols() {
    let files = Files::new();
    let path = format!("{} (deleted)", files.add("alpha").display());
    let mut symbolizer = Symbolizer::new();
    map(&mut symbolizer, PID, 1, 0x1000, OsStr::new(&path));
    let frame = sample(&mut symbolizer, PID, 2, 0x1100);
    assert_eq!(
        (frame.symbol, frame.object.as_deref()),
        (None, Some(&*path))
    );
}

#[test]
fn a_build_id_tells_files_apart() {
    let files = Files::new();
    let path = files.add_with_build_id("alpha", Some(&[0xab; 20]));
    for (id, expected) in [([0xab; 20], Some("alpha")), ([0xcd; 20], None)] {
        let mut symbolizer = Symbolizer::new();
        let mapping = Mapping {
            start: 0x1000,
            end: 0x2000,
            offset: 0x1000,
            path: path.to_str().unwrap().into(),
            file_id: FileId::BuildId(id.to_vec()),
        };
        symbolizer.processes().map(PID, 1, mapping);
        assert_eq!(name(&mut symbolizer, PID, 1, 0x1100).as_deref(), expected);
        assert_eq!(symbolizer.problems().len(), usize::from(expected.is_none()));
    }
}

#[test]
fn files_that_are_gone_or_never_were_leave_the_objects_name() {
    let files = Files::new();
    let garbage = files.path("garbage");
    fs::write(&garbage, "not an ELF file").unwrap();
    let absent = files.path("absent");
    for (path, problems) in [
        (garbage.to_str().unwrap(), 1),
        (absent.to_str().unwrap(), 1),
        ("//anon", 0),
        ("[heap]", 0),
        ("/memfd:code (deleted)", 1),
    ] {
        let mut symbolizer = Symbolizer::new();
        map(&mut symbolizer, PID, 1, 0x1000, OsStr::new(path));
        for _ in 0..2 {
            let frame = sample(&mut symbolizer, PID, 2, 0x1100);
            assert_eq!((frame.symbol, frame.object.as_deref()), (None, Some(path)));
        }
        assert_eq!(
            symbolizer.problems().len(),
            problems,
            "{:?}",
            symbolizer.problems()
        );
    }
}

/// Where a deleted file is still mapped by a process that runs, the process leads to it.
#[test]
fn a_deleted_file_of_a_running_process_is_found() {
    // As large as the largest pages, so that it can be mapped everywhere.
    const SIZE: usize = 0x1_0000;
    let elf = Elf {
        offset: SIZE as u64,
        address: 0,
        size: SIZE as u64,
        symbols: &[("deleted", 0x100, 0x80, STT_FUNC, STB_GLOBAL)],
        stripped: false,
        build_id: None,
    };
    let files = Files::new();
    let path = files.path("program");
    fs::write(&path, elf.bytes()).unwrap();
    let file = fs::File::open(&path).unwrap();
    // SAFETY: A mapping of its own at an address that the kernel picks; nobody looks into it.
    let mapped = unsafe {
        let protection = ProtFlags::READ | ProtFlags::EXEC;
        mmap_file(
            ptr::null_mut(),
            SIZE,
            protection,
            MapFlags::PRIVATE,
            &file,
            SIZE as u64,
        )
    };
    let address = mapped.unwrap() as u64 + 0x100;
    fs::remove_file(&path).unwrap();

    let mut symbolizer = Symbolizer::new();
    symbolizer.load_process(process::id()).unwrap();
    let frames = symbolizer.stack(process::id(), u64::MAX, [(Mode::User, address)]);
    let object = frames[0].object.as_deref().unwrap();
    assert_eq!(object, format!("{} (deleted)", path.display()));
    match &frames[0].symbol {
        Some(symbol) => assert_eq!((&*symbol.name, symbol.offset), ("deleted", 0)),
        // /proc/PID/map_files is for the privileged.
        None => assert!(symbolizer.problems()[0].contains("no symbols of")),
    }
}

fn mapping(start: u64, len: u64) -> Mapping {
    Mapping {
        start,
        end: start + len,
        offset: 0,
        path: "[x]".into(),
        file_id: FileId::Unknown,
    }
}

#[derive(Clone, Debug)]
enum Change {
    Map(u64, u64),
    Exec,
    Fork(u32),
}

proptest! {
    /// In whatever order records come, the answer is that of the order of time.
    #[test]
    fn the_order_of_arrival_does_not_matter(
        changes in proptest::collection::btree_map(
            0u64..1000,
            (0u32..4, prop_oneof![
                (0u64..50, 1u64..30).prop_map(|(start, len)| Change::Map(start, len)),
                Just(Change::Exec),
                (0u32..4).prop_map(Change::Fork),
            ]),
            0..30,
        ),
        seed in any::<u64>(),
        probes in proptest::collection::vec((0u32..4, 0u64..1100, 0u64..90), 20),
    ) {
        let apply = |processes: &mut Processes, time: u64, (pid, change): &(u32, Change)| {
            match change {
                Change::Map(start, len) => processes.map(*pid, time, mapping(*start, *len)),
                Change::Exec => processes.exec(*pid, time),
                Change::Fork(parent) => processes.fork((*pid, *pid), (*parent, *parent), time),
            }
        };
        let mut sorted = Processes::default();
        changes.iter().for_each(|(time, change)| apply(&mut sorted, *time, change));
        let mut order: Vec<_> = changes.iter().collect();
        order.sort_by_key(|(time, _)| (*time ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut shuffled = Processes::default();
        order.into_iter().for_each(|(time, change)| apply(&mut shuffled, *time, change));
        for (pid, time, address) in probes {
            prop_assert_eq!(
                sorted.mapping_at(pid, time, address),
                shuffled.mapping_at(pid, time, address)
            );
        }
    }

    /// Against a model that keeps each process's mappings as a plain list and copies it at forks.
    #[test]
    fn look_ups_agree_with_copying_at_each_fork(
        changes in proptest::collection::vec(
            (0u32..4, prop_oneof![
                3 => (0u64..50, 1u64..30).prop_map(|(start, len)| Change::Map(start, len)),
                1 => Just(Change::Exec),
                1 => (0u32..4).prop_map(Change::Fork),
            ]),
            0..40,
        ),
    ) {
        let mut processes = Processes::default();
        let mut model = vec![Vec::<Mapping>::new(); 4];
        for (time, (pid, change)) in changes.iter().enumerate() {
            let time = time as u64;
            match change {
                Change::Map(start, len) => {
                    processes.map(*pid, time, mapping(*start, *len));
                    model[*pid as usize].push(mapping(*start, *len));
                }
                Change::Exec => {
                    processes.exec(*pid, time);
                    model[*pid as usize].clear();
                }
                Change::Fork(parent) => {
                    processes.fork((*pid, *pid), (*parent, *parent), time);
                    model[*pid as usize] = model[*parent as usize].clone();
                }
            }
            for pid in 0..4u32 {
                for address in 0..80 {
                    let covers = |m: &&Mapping| (m.start..m.end).contains(&address);
                    let expected = model[pid as usize].iter().rev().find(covers);
                    prop_assert_eq!(processes.mapping_at(pid, time, address), expected);
                }
            }
        }
    }

    /// Times that are all the same let processes be each other's parents: the search ends.
    #[test]
    fn circles_of_parents_end(forks in proptest::collection::vec((0u32..4, 0u32..4), 0..20)) {
        let mut processes = Processes::default();
        for (pid, parent) in forks {
            processes.fork((pid, pid), (parent, parent), 7);
        }
        for pid in 0..4 {
            prop_assert!(processes.mapping_at(pid, 7, 0).is_none());
            prop_assert!(processes.name_at(pid, 7).is_none());
        }
    }
}
