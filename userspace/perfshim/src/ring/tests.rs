// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader against a ring in ordinary memory, written to as the kernel does it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::map::Mapping;
use super::overwrite::copy_stable;
use super::span::pieces;
use super::{Buffer, Capabilities, PageState, RingError};
use crate::count::Count;
use crate::error::Error;
use crate::flags::ReadFormat;
use crate::record::Header;
use crate::sys::perf_event_mmap_page as Page;

/// Where the data area starts: not at 4096, as on kernels with larger pages.
const DATA_OFFSET: usize = 16384;

/// Memory of a ring, and the kernel's side of it.
struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    size: usize,
}

// SAFETY: the memory is reached through atomics, and in the data area as head and tail allow.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(size: usize) -> Self {
        let layout = Layout::from_size_align(DATA_OFFSET + size, 4096).expect("a small layout");
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
        let memory = Self { base, layout, size };
        memory
            .field(offset_of!(Page, data_offset))
            .store(DATA_OFFSET as u64, Ordering::Relaxed);
        memory
            .field(offset_of!(Page, data_size))
            .store(size as u64, Ordering::Relaxed);
        memory
    }

    /// The sequence number of the page.
    fn lock(&self) -> &AtomicU32 {
        // SAFETY: as in `field`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset_of!(Page, lock)).cast()) }
    }

    /// The 64-bit field at `offset` in the page.
    fn field(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the page is at the start of the memory, aligned, and used through atomics only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn head(&self) -> &AtomicU64 {
        self.field(offset_of!(Page, data_head))
    }

    fn tail(&self) -> &AtomicU64 {
        self.field(offset_of!(Page, data_tail))
    }

    fn buffer(&self) -> Result<Buffer, RingError> {
        // SAFETY: the memory is large enough, aligned, starts with a page, and outlives the
        // buffer in every test here.
        let mapping = unsafe { Mapping::of_memory(self.base, self.layout.size()) }?;
        Ok(Buffer {
            mapping,
            scratch: Vec::new(),
        })
    }

    /// Puts bytes at `position`, round the end where need be.
    fn put(&self, position: u64, bytes: &[u8]) {
        for (i, &byte) in bytes.iter().enumerate() {
            let place = (position.wrapping_add(i as u64) % self.size as u64) as usize;
            // SAFETY: the place is in the data area, and the reader does not look between head
            // and tail.
            unsafe { self.base.as_ptr().add(DATA_OFFSET + place).write(byte) };
        }
    }

    /// What `__perf_output_begin` and `perf_output_end` do; `false` if there is no room.
    fn write(&self, record: &[u8]) -> bool {
        let head = self.head().load(Ordering::Relaxed);
        let tail = self.tail().load(Ordering::Acquire);
        // CIRC_SPACE: one byte stays free.
        let room = (tail.wrapping_sub(head).wrapping_sub(1)) % self.size as u64;
        if room < record.len() as u64 {
            return false;
        }
        self.put(head, record);
        self.head()
            .store(head.wrapping_add(record.len() as u64), Ordering::Release);
        true
    }

    /// The same for a ring that is written backward and overwritten.
    fn write_backward(&self, record: &[u8]) {
        let head = self
            .head()
            .load(Ordering::Relaxed)
            .wrapping_sub(record.len() as u64);
        self.put(head, record);
        self.head().store(head, Ordering::Release);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Sets a field of the page, between two steps of the sequence number as the kernel does. For tests
/// of one thread.
macro_rules! set {
    ($memory:expr, $value:expr, $($field:tt)+) => {{
        let page: *mut Page = $memory.base.as_ptr().cast();
        $memory.lock().fetch_add(1, Ordering::Relaxed);
        // SAFETY: the page is at the start of the memory, aligned; there is no reference to the
        // field.
        unsafe { (&raw mut (*page).$($field)+).write($value) };
        $memory.lock().fetch_add(1, Ordering::Relaxed);
    }};
}

/// A record of `size` bytes whose body depends on `seed`.
fn record(size: u16, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(1000u32.to_ne_bytes());
    bytes.extend(0u16.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    let word = |i: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i);
    for i in 0..u64::from(size / 8).saturating_sub(1) {
        bytes.extend(word(i).to_ne_bytes());
    }
    bytes
}

/// All that is unread, each record's bytes.
fn drain(buffer: &mut Buffer) -> Result<Vec<Vec<u8>>, Error> {
    let mut unread = buffer.read()?;
    let mut records = Vec::new();
    while let Some(record) = unread.next_record()? {
        records.push(record.bytes().to_vec());
    }
    Ok(records)
}

#[test]
fn a_record_may_wrap_at_every_offset() {
    for start in (0..256u64).step_by(8) {
        for size in (8..=248u16).step_by(8) {
            let memory = Memory::new(256);
            memory.head().store(start, Ordering::Relaxed);
            memory.tail().store(start, Ordering::Relaxed);
            let mut buffer = memory.buffer().expect("a right page");
            let expected = record(size, start);
            assert!(memory.write(&expected));
            assert_eq!(drain(&mut buffer).expect("a record"), [expected]);
            assert_eq!(
                memory.tail().load(Ordering::Relaxed),
                start + u64::from(size)
            );
        }
    }
}

#[test]
fn positions_may_pass_the_largest_number() {
    let memory = Memory::new(256);
    let start = u64::MAX - 63;
    memory.head().store(start, Ordering::Relaxed);
    memory.tail().store(start, Ordering::Relaxed);
    let mut buffer = memory.buffer().expect("a right page");
    let records = [record(40, 1), record(48, 2), record(16, 3)];
    assert!(records.iter().all(|record| memory.write(record)));
    assert_eq!(drain(&mut buffer).expect("records"), records);
    assert_eq!(memory.tail().load(Ordering::Relaxed), 40);
}

#[test]
fn the_tail_moves_behind_what_was_handed_out() {
    let memory = Memory::new(256);
    let mut buffer = memory.buffer().expect("a right page");
    let tail = || memory.tail().load(Ordering::Relaxed);
    for seed in 0..3 {
        assert!(memory.write(&record(32, seed)));
    }
    let mut unread = buffer.read().expect("a ring");
    assert_eq!(unread.len(), 96);
    unread.next_record().expect("a record").expect("the first");
    assert_eq!(tail(), 0, "the record may still be in use");
    unread.commit();
    assert_eq!(tail(), 32);
    unread.next_record().expect("a record").expect("the second");
    drop(unread);
    assert_eq!(tail(), 64);
    assert_eq!(drain(&mut buffer).expect("a record"), [record(32, 2)]);
    assert_eq!(tail(), 96);
    assert!(drain(&mut buffer).expect("nothing").is_empty());
}

#[test]
fn what_comes_during_a_read_is_for_the_next() {
    let memory = Memory::new(256);
    let mut buffer = memory.buffer().expect("a right page");
    assert!(memory.write(&record(16, 1)));
    let mut unread = buffer.read().expect("a ring");
    assert!(memory.write(&record(24, 2)));
    assert!(unread.next_record().expect("a record").is_some());
    assert!(unread.next_record().expect("the end").is_none());
    drop(unread);
    assert_eq!(drain(&mut buffer).expect("a record"), [record(24, 2)]);
}

#[test]
fn a_record_of_size_0_is_an_error_and_can_be_skipped() {
    for size in 0..8u16 {
        let memory = Memory::new(256);
        let mut buffer = memory.buffer().expect("a right page");
        let mut bad = record(16, 1);
        bad[6..8].copy_from_slice(&size.to_ne_bytes());
        assert!(memory.write(&record(24, 0)) && memory.write(&bad));
        let mut unread = buffer.read().expect("a ring");
        assert!(unread.next_record().expect("the good one").is_some());
        for _ in 0..2 {
            match unread.next_record() {
                Err(Error::Ring(error)) => {
                    assert_eq!(error, RingError::TooSmall { position: 24, size });
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(unread.discard(), 16);
        assert_eq!(memory.tail().load(Ordering::Relaxed), 40);
        assert!(memory.write(&record(8, 2)));
        assert_eq!(drain(&mut buffer).expect("the next"), [record(8, 2)]);
    }
}

#[test]
fn a_record_larger_than_what_is_unread_is_an_error() {
    for size in [24u16, 256, 264, u16::MAX] {
        let memory = Memory::new(256);
        let mut buffer = memory.buffer().expect("a right page");
        let mut bad = record(16, 1);
        bad[6..8].copy_from_slice(&size.to_ne_bytes());
        assert!(memory.write(&bad));
        let mut unread = buffer.read().expect("a ring");
        match unread.next_record() {
            Err(Error::Ring(error)) => assert_eq!(
                error,
                RingError::TooLarge {
                    position: 0,
                    size,
                    left: 16
                }
            ),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_header_cut_short_is_an_error() {
    let memory = Memory::new(256);
    let mut buffer = memory.buffer().expect("a right page");
    memory.head().store(4, Ordering::Relaxed);
    let mut unread = buffer.read().expect("a ring");
    assert!(matches!(
        unread.next_record(),
        Err(Error::Ring(RingError::TooLarge { left: 4, .. }))
    ));
}

#[test]
fn more_unread_than_fits_is_an_error() {
    let memory = Memory::new(256);
    let mut buffer = memory.buffer().expect("a right page");
    for head in [257, 1 << 40, u64::MAX] {
        memory.head().store(head, Ordering::Relaxed);
        assert!(matches!(
            buffer.read(),
            Err(RingError::Overrun { size: 256, .. })
        ));
    }
    memory.head().store(256, Ordering::Relaxed);
    assert_eq!(buffer.read().expect("a full ring").len(), 256);
}

#[test]
fn a_page_that_points_outside_is_an_error() {
    for (offset, size) in [
        (DATA_OFFSET as u64, 512),
        (DATA_OFFSET as u64 + 8, 256),
        (u64::MAX, 256),
        (4, 256),
        (0, 256),
        (size_of::<Page>() as u64 - 8, 256),
        (DATA_OFFSET as u64, 4),
    ] {
        let memory = Memory::new(256);
        memory
            .field(offset_of!(Page, data_offset))
            .store(offset, Ordering::Relaxed);
        memory
            .field(offset_of!(Page, data_size))
            .store(size, Ordering::Relaxed);
        assert!(
            matches!(memory.buffer(), Err(RingError::Layout { .. })),
            "{offset} {size}"
        );
    }
}

#[test]
fn a_ring_without_data_is_empty() {
    let memory = Memory::new(0);
    let mut buffer = memory.buffer().expect("a right page");
    assert!(drain(&mut buffer).expect("nothing").is_empty());
    assert_eq!(pieces(0, 0, 0), Ok((0, 0, 0)));
}

#[test]
fn records_arrive_whole_and_in_order() {
    const RECORDS: u64 = 100_000;
    let memory = Memory::new(4096);
    let mut buffer = memory.buffer().expect("a right page");
    let size_of = |seed: u64| 16 + 8 * (seed * 7 % 13) as u16;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seed in 0..RECORDS {
                let record = record(size_of(seed), seed);
                while !memory.write(&record) {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < RECORDS {
            let mut unread = buffer.read().expect("a ring");
            if unread.is_empty() {
                drop(unread);
                std::thread::yield_now();
                continue;
            }
            while let Some(found) = unread.next_record().expect("a record") {
                assert_eq!(found.bytes(), record(size_of(next), next));
                next += 1;
            }
        }
    });
    assert!(drain(&mut buffer).expect("nothing").is_empty());
}

/// Records of a snapshot, newest first.
fn newest(memory: &Memory) -> Result<Vec<Vec<u8>>, Error> {
    let buffer = memory.buffer()?;
    let snapshot = copy_stable(&buffer.mapping);
    let mut records = Vec::new();
    snapshot.for_each(|record| {
        records.push(record.bytes().to_vec());
        Ok::<_, Error>(())
    })?;
    Ok(records)
}

#[test]
fn overwriting_keeps_the_newest_records() {
    let memory = Memory::new(256);
    assert!(newest(&memory).expect("nothing").is_empty());
    let mut written: Vec<Vec<u8>> = Vec::new();
    for seed in 0..200 {
        let next = record(16 + 8 * (seed * 5 % 7) as u16, seed);
        memory.write_backward(&next);
        written.push(next);
        // What fits whole, counted from the newest.
        let mut room = 256usize;
        let expected: Vec<_> = written
            .iter()
            .rev()
            .take_while(|record| {
                room = room.checked_sub(record.len()).unwrap_or(usize::MAX);
                room != usize::MAX
            })
            .cloned()
            .collect();
        assert_eq!(newest(&memory).expect("records"), expected, "after {seed}");
    }
}

#[test]
fn a_damaged_record_ends_a_snapshot_with_an_error() {
    let memory = Memory::new(256);
    memory.write_backward(&record(16, 1));
    let mut bad = record(16, 2);
    bad[6..8].copy_from_slice(&0u16.to_ne_bytes());
    memory.write_backward(&bad);
    assert!(matches!(
        newest(&memory),
        Err(Error::Ring(RingError::TooSmall { .. }))
    ));
    // Nothing was overwritten yet, so a record that reaches beyond what was written is damaged.
    let memory = Memory::new(256);
    let mut bad = record(16, 2);
    bad[6..8].copy_from_slice(&24u16.to_ne_bytes());
    memory.write_backward(&bad);
    assert!(matches!(
        newest(&memory),
        Err(Error::Ring(RingError::TooLarge { .. }))
    ));
}

#[test]
fn a_page_that_is_never_settled_has_a_state_all_the_same() {
    let memory = Memory::new(256);
    let buffer = memory.buffer().expect("a right page");
    memory.lock().store(1, Ordering::Relaxed);
    memory
        .field(offset_of!(Page, time_enabled))
        .store(7, Ordering::Relaxed);
    assert_eq!(buffer.mapping.control().state().time_enabled, 7);
}

#[test]
fn the_state_of_the_page_is_never_torn() {
    const TURNS: u64 = 200_000;
    let memory = Memory::new(256);
    let buffer = memory.buffer().expect("a right page");
    let lock = memory.lock();
    let enabled = memory.field(offset_of!(Page, time_enabled));
    let running = memory.field(offset_of!(Page, time_running));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=TURNS {
                // As perf_event_update_userpage does it.
                lock.fetch_add(1, Ordering::Relaxed);
                std::sync::atomic::fence(Ordering::Release);
                enabled.store(turn, Ordering::Relaxed);
                running.store(turn, Ordering::Relaxed);
                std::sync::atomic::fence(Ordering::Release);
                lock.fetch_add(1, Ordering::Relaxed);
            }
        });
        loop {
            let state = buffer.mapping.control().state();
            assert_eq!(state.time_enabled, state.time_running);
            if state.time_enabled == TURNS {
                break;
            }
        }
    });
}

#[test]
fn counters_are_signed_and_as_wide_as_the_page_says() {
    let state = |pmc_width, offset| PageState {
        pmc_width,
        offset,
        ..PageState::default()
    };
    assert_eq!(state(48, 100).count(5), 105);
    // A counter that starts at minus the period, as most do.
    assert_eq!(state(32, 1000).count(0xffff_ff9c), 900);
    assert_eq!(state(64, 1).count(u64::MAX), 0);
    assert_eq!(state(0, 7).count(123), 7);
    // Above its width a counter may hold anything.
    assert_eq!(state(32, 100).count(0xdead_beef_0000_0005), 105);
    assert_eq!(state(1, 10).count(1), 9);
}

/// What `armpmu_event_set_period()` and `armpmu_event_update()` do with a counter of 32 bits, and
/// `perf_event_update_userpage()` with the page.
#[test]
fn a_count_is_right_however_the_kernel_took_the_counter() {
    let page = |count: u64, previous: u64| PageState {
        pmc_width: 32,
        offset: count.wrapping_sub(previous) as i64,
        ..PageState::default()
    };
    // Started at minus half its range, which the kernel notes with all its 64 bits.
    let start = 0x8000_0001u64;
    for counted in [0, 5, 0x7fff_fffe, 0x7fff_ffff, 0x8000_0010] {
        let started = page(1_000, start | 0xffff_ffff_0000_0000);
        let now = start.wrapping_add(counted) & 0xffff_ffff;
        assert_eq!(started.count(now), 1_000 + counted);
    }
    // Read by a system call, which notes what it found, and reset.
    let previous = start + 70;
    for counted in [0, 5, 0x7fff_ff00, 0x7fff_fff0] {
        let reset = page(0, previous);
        let now = previous.wrapping_add(counted) & 0xffff_ffff;
        assert_eq!(reset.count(now), counted);
    }
}

/// What an event's page may say: on counter 3, of 32 bits. The clock has two nanoseconds a tick,
/// and the page was written at tick 100.
fn user_page() -> Memory {
    let memory = Memory::new(256);
    set!(memory, 4, index);
    set!(memory, 1_000, offset);
    set!(memory, 32, pmc_width);
    set!(memory, 500, time_enabled);
    set!(memory, 300, time_running);
    set!(memory, 2 << 8, time_mult);
    set!(memory, 8, time_shift);
    set!(memory, 200u64.wrapping_neg(), time_offset);
    may(&memory, Capabilities::USER_RDPMC | Capabilities::USER_TIME);
    memory
}

fn may(memory: &Memory, capabilities: Capabilities) {
    set!(memory, capabilities.bits(), __bindgen_anon_1.capabilities);
}

/// What stands in the counters meanwhile.
fn counter(index: u32) -> Option<u64> {
    match index {
        4 => Some(7),
        1..=32 => Some(8),
        _ => None,
    }
}

#[test]
fn a_page_gives_the_count_and_the_times_that_were_asked_for() {
    let memory = user_page();
    let buffer = memory.buffer().expect("a right page");
    let page = buffer.mapping.control();
    assert_eq!(page.read(counter), Some(1_007));
    let read = |format, ticks| page.read_with_times(format, counter, || ticks);
    let times = |time_enabled, time_running| {
        Some(Count {
            value: 1_007,
            time_enabled,
            time_running,
            ..Count::default()
        })
    };
    for (format, expected) in [
        (ReadFormat::TIMES, times(Some(520), Some(320))),
        (ReadFormat::TOTAL_TIME_ENABLED, times(Some(520), None)),
        (ReadFormat::TOTAL_TIME_RUNNING, times(None, Some(320))),
    ] {
        assert_eq!(read(format, 110), expected, "{format:?}");
    }
    // Rounded, a time may lie before the page was written.
    assert_eq!(read(ReadFormat::TIMES, 99), times(Some(500), Some(300)));
    // Without the clock there is a count, but there are no times.
    may(&memory, Capabilities::USER_RDPMC);
    assert_eq!(page.read(counter), Some(1_007));
    assert_eq!(read(ReadFormat::TIMES, 110), None);
}

#[test]
fn a_page_that_does_not_say_how_gives_no_count() {
    let changes: [fn(&Memory); 7] = [
        |memory| set!(memory, 0, index),
        |memory| set!(memory, 33, index),
        |memory| set!(memory, u32::MAX, index),
        |memory| set!(memory, 0, pmc_width),
        |memory| set!(memory, 65, pmc_width),
        |memory| may(memory, Capabilities::USER_TIME),
        // The kernel is at it.
        |memory| _ = memory.lock().fetch_add(1, Ordering::Relaxed),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let memory = user_page();
        let buffer = memory.buffer().expect("a right page");
        let page = buffer.mapping.control();
        assert_eq!(page.read(counter), Some(1_007));
        change(&memory);
        assert_eq!(page.read(counter), None, "{i}");
        let timed = page.read_with_times(ReadFormat::TIMES, counter, || 110);
        assert_eq!(timed, None, "{i}");
    }
}

#[test]
fn a_counter_that_is_taken_while_it_is_read_is_not_believed() {
    let memory = user_page();
    let buffer = memory.buffer().expect("a right page");
    let asked = std::cell::RefCell::new(Vec::new());
    let counter = |index| {
        asked.borrow_mut().push(index);
        if index == 4 {
            set!(memory, 6, index);
        }
        Some(u64::from(index))
    };
    let page = buffer.mapping.control();
    assert_eq!(page.read(counter), Some(1_006));
    assert_eq!(*asked.borrow(), [4, 6]);

    // And when it is given none instead.
    let counter = |index| {
        if index != 0 {
            set!(memory, 0, index);
        }
        (index != 0).then_some(8)
    };
    assert_eq!(page.read(counter), None);
}

#[test]
fn no_page_makes_a_count_panic() {
    let wild = [0, 1, 31, 32, 33, 63, 64, 65, u64::MAX / 2, u64::MAX];
    for a in wild {
        for b in wild {
            let memory = user_page();
            may(&memory, Capabilities::all());
            set!(memory, a as u32, index);
            set!(memory, b as i64, offset);
            set!(memory, a as u16, pmc_width);
            set!(memory, b, time_enabled);
            set!(memory, b as u32, time_mult);
            set!(memory, a as u16, time_shift);
            set!(memory, a ^ b, time_offset);
            set!(memory, a, time_cycles);
            set!(memory, b, time_mask);
            let buffer = memory.buffer().expect("a right page");
            let page = buffer.mapping.control();
            page.read_with_times(ReadFormat::TIMES, |_| Some(b), || a);
        }
    }
}

#[test]
fn clock_ticks_and_times_convert_both_ways() {
    let state = PageState {
        capabilities: Capabilities::USER_TIME | Capabilities::USER_TIME_ZERO,
        // 62.5 MHz, as QEMU's: 16 ns a tick.
        time_mult: 16 << 10,
        time_shift: 10,
        time_offset: 3,
        time_zero: 1_000,
        ..PageState::default()
    };
    assert_eq!(state.delta(1 << 40), Some((16 << 40) + 3));
    assert_eq!(state.timestamp(10), Some(1_160));
    assert_eq!(state.ticks(1_160), Some(10));
    let short = PageState {
        capabilities: state.capabilities | Capabilities::USER_TIME_SHORT,
        time_cycles: 0x1_0000_00f0,
        time_mask: 0xffff_ffff,
        ..state
    };
    // The narrow clock has wrapped since: 0x10 comes 0x20 after 0xf0 in its low byte only if the
    // mask says so.
    assert_eq!(short.timestamp(0x100), state.timestamp(0x1_0000_0100));
    assert_eq!(PageState::default().timestamp(1), None);
    assert_eq!(PageState::default().delta(1), None);
    // A page that lies must not panic.
    let wild = PageState {
        capabilities: Capabilities::all(),
        time_shift: 200,
        time_mult: 0,
        pmc_width: 999,
        ..state
    };
    assert_eq!(wild.ticks(5), None);
    assert_eq!(wild.timestamp(u64::MAX), Some(1_000));
    assert_eq!(wild.count(1), 1);
}

#[test]
fn a_header_is_8_bytes() {
    assert_eq!(size_of::<crate::sys::perf_event_header>(), Header::SIZE);
}
