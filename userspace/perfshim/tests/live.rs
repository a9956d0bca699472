// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library against the running kernel, by events that it counts in software on any machine.
//!
//! Where the kernel allows no events at all (a container, a high perf_event_paranoid), each test
//! says so and passes. Page faults are the events of choice: each first touch of a page is one,
//! so a test knows how many there are.

use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use perfshim::record::{CpuMode, DecodeError};
use perfshim::{
    Attr, Count, Decoder, Errno, Error, Event, EventConfig, Exclude, Group, Operation,
    OverwriteRing, Rate, ReadFormat, Record, Ring, SampleFields, SideBand, Software, Target, Wake,
    Wakeup, sys, wait_any,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::thread::gettid;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Whether events can be opened here; says so if not. Only a refusal for lack of permission, or
/// of perf events in the kernel, counts as "cannot".
fn allowed(target: Target<'_>) -> bool {
    let attr = Attr::new(Software::Dummy).exclude(user_only());
    match Event::open(&attr, target) {
        Err(error)
            if matches!(
                error.errno(),
                Some(Errno::ACCESS | Errno::PERM | Errno::NOSYS)
            ) =>
        {
            println!("SKIPPED: {error}");
            false
        }
        Err(error) => panic!("{error}"),
        Ok(_) => true,
    }
}

/// What an ordinary user may count at the usual paranoid level of 2.
fn user_only() -> Exclude {
    Exclude::KERNEL | Exclude::HV
}

fn page_faults() -> Attr {
    Attr::new(Software::PageFaults).exclude(user_only())
}

/// Memory whose pages are touched one after the other.
struct Pages {
    start: *mut u8,
    count: usize,
    touched: usize,
}

impl Pages {
    fn new(count: usize) -> Self {
        let bytes = count * rustix::param::page_size();
        // SAFETY: new memory that nobody else knows of.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let start = mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
                .expect("memory");
            // One fault for each page, not one for many.
            madvise(start, bytes, Advice::LinuxNoHugepage).expect("small pages");
            start
        };
        Self {
            start: start.cast(),
            count,
            touched: 0,
        }
    }

    /// Takes `count` page faults; returns the address of the first.
    fn touch(&mut self, count: usize) -> u64 {
        assert!(self.touched + count <= self.count);
        let size = rustix::param::page_size();
        let first = self.start.wrapping_add(self.touched * size);
        for page in 0..count {
            // SAFETY: within the memory mapped in `new`.
            unsafe { first.add(page * size).write_volatile(1) };
        }
        self.touched += count;
        first.addr() as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size.
        let result = unsafe { munmap(self.start.cast(), self.count * rustix::param::page_size()) };
        result.expect("unmapping what was mapped");
    }
}

/// Runs `f` while another thread computes; gives it that thread's id.
fn with_busy_thread<T>(f: impl FnOnce(u32) -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let stop = &stop;
        scope.spawn(move || {
            send.send(gettid().as_raw_nonzero().get() as u32)
                .expect("a listener");
            let mut sum = 0u64;
            while !stop.load(Ordering::Relaxed) {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
        });
        let tid = receive.recv().expect("a thread id");
        let _stop = StopOnDrop(stop);
        f(tid)
    })
}

/// Ends the busy thread, also when a test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn page_faults_are_counted() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = page_faults().read_format(ReadFormat::TIMES | ReadFormat::ID | ReadFormat::LOST);
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut pages = Pages::new(300);
    pages.touch(100);
    assert_eq!(event.read()?.value, 0, "events start disabled");
    event.enable()?;
    pages.touch(100);
    event.disable()?;
    let count = event.read()?;
    pages.touch(100);
    assert_eq!(
        event.read()?.value,
        count.value,
        "a disabled event stands still"
    );
    // The program's own code and stack may add a few, and the other touches would add 100.
    assert!((100..200).contains(&count.value), "{count:?}");
    assert_eq!(count.id, Some(event.id()?));
    assert_eq!(count.lost, Some(0));
    assert_eq!(
        count.scaled(),
        Some(count.value),
        "software events are never multiplexed"
    );
    assert!(!count.was_multiplexed());
    event.reset()?;
    assert_eq!(event.read()?.value, 0);
    Ok(())
}

#[test]
fn a_group_is_read_whole_however_many_join() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let mut group = Group::open(&page_faults(), Target::ThisThread)?;
    group.enable()?;
    for joined in 1..40 {
        let place = group.add(&page_faults(), Target::ThisThread)?;
        assert_eq!(place, joined);
        let counts = group.read()?;
        assert_eq!(counts.len(), joined + 1);
        let ids: Vec<_> = group.events().map(|event| event.id().ok()).collect();
        assert_eq!(counts.iter().map(|count| count.id).collect::<Vec<_>>(), ids);
    }
    group.disable()?;
    group.reset()?;
    group.enable()?;
    Pages::new(50).touch(50);
    group.disable()?;
    let counts = group.read()?;
    assert!(counts[0].value >= 50);
    // All were on at the same time, so all counted the same.
    assert!(
        counts.iter().all(|count| count.value == counts[0].value),
        "{counts:?}"
    );
    assert!(matches!(group.leader().read(), Err(Error::ReadFormat(_))));
    Ok(())
}

#[test]
fn samples_come_with_all_their_fields() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let fields = SampleFields::IDENTITY
        | SampleFields::IP
        | SampleFields::ADDR
        | SampleFields::PERIOD
        | SampleFields::READ
        | SampleFields::CALLCHAIN;
    let attr = page_faults()
        .sample(Rate::Period(1), fields)
        .exclude(Exclude::CALLCHAIN_KERNEL)
        .read_format(ReadFormat::TIMES | ReadFormat::ID);
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, 1 << 16)?;
    let mut pages = Pages::new(20);
    event.enable()?;
    let first = pages.touch(20);
    event.disable()?;
    let decoder = Decoder::new(&attr);
    let mut unread = ring.read()?;
    let (mut next, mut time) = (first, 0);
    while let Some(raw) = unread.next_record()? {
        let decoded = decoder.decode(raw)?;
        let Record::Sample(sample) = decoded.record else {
            panic!("{decoded:?}");
        };
        assert_eq!(decoded.misc.cpu_mode(), CpuMode::User);
        let thread = sample.thread.expect("a thread");
        assert_eq!(
            (thread.pid, thread.tid),
            (std::process::id(), gettid().as_raw_nonzero().get() as u32)
        );
        assert_eq!(
            (sample.id, sample.identifier),
            (Some(event.id()?), Some(event.id()?))
        );
        assert_eq!(sample.period, Some(1));
        // A clock that is not stable may stand still for a while.
        assert!(sample.time >= Some(time));
        time = sample.time.unwrap_or_default();
        let chain: Vec<_> = sample.callchain.expect("a chain").frames().collect();
        assert_eq!(chain.first().map(|frame| frame.address), sample.ip);
        assert!(sample.counts.and_then(|counts| counts.first()).is_some());
        if sample.addr == Some(next) {
            next += rustix::param::page_size() as u64;
        }
    }
    drop(unread);
    assert_eq!(
        next,
        first + 20 * rustix::param::page_size() as u64,
        "a fault has no sample"
    );
    assert!(ring.read()?.is_empty());
    Ok(())
}

#[test]
fn samples_and_lost_records_add_up_to_the_count() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = page_faults()
        .sample(Rate::Period(1), SampleFields::ADDR | SampleFields::TIME)
        .read_format(ReadFormat::LOST);
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, 1)?;
    assert_eq!(
        ring.size(),
        rustix::param::page_size(),
        "rounded up to a page"
    );
    let room = ring.size() / 24;
    let mut pages = Pages::new(room * 5);
    let decoder = Decoder::new(&attr);
    let (mut samples, mut lost) = (0, 0);
    event.enable()?;
    // Too many, twice; then one that reports the loss.
    for faults in [2 * room, 2 * room, 1] {
        pages.touch(faults);
        event.disable()?;
        let mut unread = ring.read()?;
        while let Some(record) = unread.next_record()? {
            match decoder.decode(record)?.record {
                Record::Sample(_) => samples += 1,
                Record::Lost(found) => {
                    assert_eq!(found.id, event.id()?);
                    lost += found.lost;
                }
                other => panic!("{other:?}"),
            }
        }
        drop(unread);
        event.enable()?;
    }
    event.disable()?;
    let count = event.read()?;
    assert!(lost as usize > room, "{lost} lost of {count:?}");
    // What came after the last read is not in the sum.
    let mut rest = ring.read()?;
    while rest.next_record()?.is_some() {
        samples += 1;
    }
    assert_eq!(samples + lost, count.value);
    if count.lost != Some(lost) {
        assert!(count.lost.is_some_and(|kernel| kernel >= lost), "{count:?}");
    }
    Ok(())
}

#[test]
fn a_reader_is_woken_times_out_and_learns_of_the_end() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = Attr::new(Software::CpuClock)
        .exclude(user_only())
        .sample(
            Rate::Period(1_000_000),
            SampleFields::IP | SampleFields::TID,
        )
        .wakeup(Wakeup::Samples(3));
    let decoder = Decoder::new(&attr);
    let (event, mut ring) = with_busy_thread(|tid| -> Result<_, Box<dyn std::error::Error>> {
        let event = Event::open(&attr, Target::Thread(tid))?;
        let mut ring = Ring::map(&event, 1 << 16)?;
        assert_eq!(ring.wait(Some(Duration::from_millis(10)))?, Wake::TimedOut);
        event.enable()?;
        assert_eq!(ring.wait(Some(Duration::from_secs(30)))?, Wake::Ready);
        let mut unread = ring.read()?;
        let mut samples = 0;
        while let Some(record) = unread.next_record()? {
            if let Record::Sample(sample) = decoder.decode(record)?.record {
                assert_eq!(sample.thread.map(|thread| thread.tid), Some(tid));
                samples += 1;
            }
        }
        drop(unread);
        assert!(samples >= 3, "woken after {samples} samples");
        let woken = wait_any([&ring], Some(Duration::from_secs(30)))?;
        assert_eq!(woken, [(0, Wake::Ready)]);
        Ok((event, ring))
    })?;
    // The thread has ended, or is about to, and its last samples may wake too.
    let mut wake = Wake::Ready;
    while wake == Wake::Ready {
        wake = ring.wait(Some(Duration::from_secs(30)))?;
    }
    assert_eq!(wake, Wake::HungUp);
    assert!(wait_any([&ring], None)?[0].1.is_final());
    assert!(!ring.read()?.is_empty(), "what it left can be read");
    assert!(event.read()?.value > 0);
    Ok(())
}

#[test]
fn a_byte_watermark_wakes_too() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = page_faults()
        .sample(Rate::Period(1), SampleFields::ADDR)
        .wakeup(Wakeup::Bytes(160));
    let event = Event::open(&attr, Target::ThisThread)?;
    let ring = Ring::map(&event, 1 << 16)?;
    let mut pages = Pages::new(100);
    event.enable()?;
    pages.touch(100);
    event.disable()?;
    assert_eq!(ring.wait(Some(Duration::from_secs(10)))?, Wake::Ready);
    Ok(())
}

#[test]
fn events_of_different_formats_share_a_ring() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let fields = SampleFields::IDENTIFIER | SampleFields::ADDR;
    let first = page_faults().sample(Rate::Period(1), fields);
    // Not the same event once more: the kernel (6.18 at least) prepares one sample for all events
    // of a kind, and the second would carry the first one's id.
    let second = Attr::new(Software::PageFaultsMin)
        .exclude(user_only())
        .sample(Rate::Period(1), fields | SampleFields::TIME);
    let owner = Event::open(&first, Target::ThisThread)?;
    let guest = Event::open(&second, Target::ThisThread)?;
    let mut ring = Ring::map(&owner, 1 << 16)?;
    ring.take_output_of(&guest)?;
    // It has no ring of its own meanwhile, and the owner keeps its own.
    let second_reader = Ring::map(&guest, 1 << 16);
    assert!(matches!(second_reader, Err(Error::RingUse(_))));
    guest.set_output(None)?;
    drop(Ring::map(&guest, 1 << 16)?);
    ring.take_output_of(&guest)?;
    let moved = owner.set_output(Some(&guest));
    assert!(matches!(moved, Err(Error::RingUse(_))));
    let decoder = Decoder::with_events([(owner.id()?, &first), (guest.id()?, &second)])?;
    owner.enable()?;
    guest.enable()?;
    Pages::new(10).touch(10);
    guest.disable()?;
    owner.disable()?;
    let (mut without_time, mut with_time) = (0, 0);
    let mut unread = ring.read()?;
    while let Some(record) = unread.next_record()? {
        let decoded = decoder.decode(record)?;
        match decoded.id.time {
            None => {
                assert_eq!(decoded.id.id, Some(owner.id()?));
                without_time += 1;
            }
            Some(_) => {
                assert_eq!(decoded.id.id, Some(guest.id()?));
                with_time += 1;
            }
        }
    }
    assert!(
        with_time >= 10 && without_time >= 10,
        "{with_time} {without_time}"
    );
    Ok(())
}

#[test]
fn an_overwritten_ring_keeps_the_newest() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = page_faults()
        .sample(Rate::Period(1), SampleFields::ADDR | SampleFields::TIME)
        .write_backward();
    let event = Event::open(&attr, Target::ThisThread)?;
    assert!(matches!(Ring::map(&event, 1), Err(Error::RingUse(_))));
    let mut ring = OverwriteRing::map(&event, 1)?;
    assert!(matches!(
        OverwriteRing::map(&event, 1),
        Err(Error::RingUse(_))
    ));
    let decoder = Decoder::new(&attr);
    let room = ring.size() / 24;
    let mut pages = Pages::new(6 * room);
    for faults in [room / 2, 3 * room, room + 1] {
        event.enable()?;
        let first = pages.touch(faults);
        event.disable()?;
        let snapshot = ring.snapshot()?;
        let mut addresses = Vec::new();
        snapshot.for_each(|raw| -> Result<(), Error> {
            if let Record::Sample(sample) = decoder.decode(raw)?.record {
                addresses.extend(sample.addr);
            }
            Ok(())
        })?;
        // Newest first; the program's own faults may lie between.
        let size = rustix::param::page_size() as u64;
        let mut next = first + (faults as u64 - 1) * size;
        let mut found = 0;
        for address in addresses {
            if address == next {
                found += 1;
                next -= size;
            }
        }
        assert!(
            found >= faults.min(room - 8),
            "{found} of {faults}, room for {room}"
        );
    }
    Ok(())
}

#[test]
fn side_band_records_tell_what_tasks_do() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let records = SideBand::COMM | SideBand::TASK | SideBand::MMAP2 | SideBand::CONTEXT_SWITCH;
    let attr = Attr::new(Software::Dummy)
        .exclude(user_only())
        .side_band(records)
        .fields(SampleFields::TID | SampleFields::TIME | SampleFields::CPU | SampleFields::ID);
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, 1 << 18)?;
    let own = std::thread::current()
        .name()
        .map(|name| CString::new(&name[..name.len().min(15)]));
    event.enable()?;
    rustix::thread::set_name(c"perfshim-test")?;
    let child = std::thread::spawn(|| gettid().as_raw_nonzero().get() as u32).join();
    let child = child.map_err(|_| "the thread panicked")?;
    let file = std::fs::File::open("/proc/self/exe")?;
    let page = rustix::param::page_size();
    // SAFETY: a new mapping of a file that is not written to, taken down at once.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::EXEC;
        let start = mmap(
            std::ptr::null_mut(),
            page,
            protection,
            MapFlags::PRIVATE,
            &file,
            0,
        )?;
        munmap(start, page)?;
    }
    std::thread::sleep(Duration::from_millis(1));
    event.disable()?;
    if let Some(Ok(name)) = own {
        rustix::thread::set_name(&name)?;
    }

    let decoder = Decoder::new(&attr);
    let tid = gettid().as_raw_nonzero().get() as u32;
    let (mut named, mut forked, mut mapped, mut switched) = (false, false, false, false);
    let executable = std::fs::read_link("/proc/self/exe")?;
    let mut unread = ring.read()?;
    while let Some(raw) = unread.next_record()? {
        let decoded = decoder.decode(raw)?;
        assert!(decoded.id.time.is_some() && decoded.id.cpu.is_some());
        match decoded.record {
            Record::Comm(comm) => {
                assert_eq!(comm.thread.tid, tid);
                named |= comm.comm == "perfshim-test";
            }
            Record::Fork(task) => {
                assert_eq!(task.parent.tid, tid);
                forked |= task.thread.tid == child;
            }
            Record::Mmap2(found) => mapped |= Path::new(found.mmap.filename) == executable,
            Record::Switch => switched |= decoded.misc.is_switch_out(),
            Record::Exit(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(
        named && forked && mapped && switched,
        "{named} {forked} {mapped} {switched}"
    );
    Ok(())
}

#[test]
fn refresh_stops_after_so_many_overflows() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = page_faults().sample(Rate::Period(10), SampleFields::ADDR);
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, 1 << 16)?;
    event.refresh(3)?;
    Pages::new(200).touch(200);
    event.disable()?;
    let mut samples = 0;
    let mut unread = ring.read()?;
    while unread.next_record()?.is_some() {
        samples += 1;
    }
    assert_eq!(samples, 3);
    Ok(())
}

#[test]
fn the_period_can_change() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = page_faults().sample(Rate::Period(1), SampleFields::ADDR);
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, 1 << 16)?;
    event.set_period(50)?;
    event.enable()?;
    Pages::new(300).touch(300);
    event.disable()?;
    let mut samples = 0;
    let mut unread = ring.read()?;
    while unread.next_record()?.is_some() {
        samples += 1;
    }
    assert!((6..10).contains(&samples), "{samples}");
    Ok(())
}

#[test]
fn a_paused_ring_takes_nothing() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = page_faults().sample(Rate::Period(1), SampleFields::ADDR);
    let event = Event::open(&attr, Target::ThisThread)?;
    let mut ring = Ring::map(&event, 1 << 16)?;
    let mut pages = Pages::new(40);
    event.enable()?;
    event.pause_output()?;
    pages.touch(20);
    assert!(ring.read()?.is_empty());
    event.resume_output()?;
    pages.touch(20);
    event.disable()?;
    let decoder = Decoder::new(&attr);
    let mut lost = 0;
    let mut unread = ring.read()?;
    while let Some(record) = unread.next_record()? {
        if let Record::Lost(found) = decoder.decode(record)?.record {
            lost += found.lost;
        }
    }
    assert!(lost >= 20, "{lost}");
    Ok(())
}

#[test]
fn a_ring_may_be_mapped_again_after_it_was_dropped() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let attr = page_faults().sample(Rate::Period(1), SampleFields::ADDR);
    let event = Event::open(&attr, Target::ThisThread)?;
    for bytes in [0, 1, 5000, 1 << 16] {
        let ring = Ring::map(&event, bytes)?;
        assert!(ring.size() >= bytes);
        assert_eq!(ring.page().data_size(), ring.size() as u64);
        assert!(matches!(Ring::map(&event, bytes), Err(Error::RingUse(_))));
    }
    Ok(())
}

#[test]
fn the_page_tells_the_state_of_the_event() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let event = Event::open(&page_faults(), Target::ThisThread)?;
    let ring = Ring::map(&event, 0)?;
    let page = ring.page();
    assert_eq!((page.version(), page.compat_version()), (0, 0));
    // Up to the first reserved field, whatever the kernel's version.
    assert!(page.size() >= 64, "{}", page.size());
    let state = page.state();
    // No hardware counter stands behind a software event.
    assert_eq!(state.index, 0);
    Ok(())
}

#[test]
fn a_ring_counts_as_a_read_does() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    for format in [
        ReadFormat::empty(),
        ReadFormat::TIMES,
        ReadFormat::TIMES | ReadFormat::ID | ReadFormat::LOST,
    ] {
        let attr = page_faults().read_format(format).enabled();
        let event = Event::open(&attr, Target::ThisThread)?;
        let ring = Ring::map(&event, 0)?;
        let mut pages = Pages::new(10);
        pages.touch(10);
        event.disable()?;
        let count = ring.count()?;
        assert_eq!(count, event.read()?);
        assert!(count.value >= 10, "{count:?}");
        // Another thread is told the same.
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| ring.count()).join());
        assert_eq!(elsewhere.expect("no panic")?, count);
    }
    let group = Group::open(&page_faults(), Target::ThisThread)?;
    let ring = Ring::map(group.leader(), 0)?;
    assert!(matches!(ring.count(), Err(Error::ReadFormat(_))));
    Ok(())
}

#[test]
fn a_whole_cpu_can_be_watched() -> Outcome {
    if !allowed(Target::Cpu(0)) {
        return Ok(());
    }
    let attr = Attr::new(Software::CpuClock).exclude(user_only());
    let event = Event::open(&attr, Target::Cpu(0))?;
    let start = Instant::now();
    event.enable()?;
    std::thread::sleep(Duration::from_millis(20));
    let count = event.read()?.value;
    // Two clocks of one machine, one of which may be disciplined.
    let most = start.elapsed().as_nanos() * 101 / 100;
    assert!(count > 0 && u128::from(count) <= most, "{count} ns");
    Ok(())
}

/// What the kernel answered, and the words that explain it.
fn refusal<T>(result: Result<T, Error>) -> (Operation, Errno, String) {
    match result.map(|_| ()) {
        Err(Error::Refused(refusal)) => (refusal.operation, refusal.errno, refusal.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_are_explained() -> Outcome {
    if !allowed(Target::ThisThread) {
        return Ok(());
    }
    let nobody = Attr::new(EventConfig::new(0x7fff_fff0, 0)).exclude(user_only());
    let (operation, errno, text) = refusal(Event::open(&nobody, Target::ThisThread));
    assert_eq!((operation, errno), (Operation::Open, Errno::NOENT));
    assert!(
        text.contains("ENOENT: no PMU has the number 2147483632"),
        "{text}"
    );
    let sysfs = Path::new("/sys/bus/event_source/devices/software").exists();
    let named = if sysfs {
        "software"
    } else {
        "sysfs names none"
    };
    assert!(text.contains(named), "the PMUs that there are: {text}");

    let (_, errno, text) = refusal(Event::open(&page_faults(), Target::Thread(i32::MAX as u32)));
    assert_eq!(errno, Errno::SRCH);
    assert!(text.contains("thread 2147483647 does not exist"), "{text}");
    let outside = Event::open(&page_faults(), Target::Thread(0));
    assert!(matches!(outside, Err(Error::Target(_))));

    let small = Attr::from_raw(sys::perf_event_attr {
        size: 8,
        ..*page_faults().raw()
    });
    let (_, errno, text) = refusal(Event::open(&small, Target::ThisThread));
    assert_eq!(errno, Errno::TOOBIG, "{text}");

    let often = page_faults().sample(Rate::Frequency(u64::MAX), SampleFields::IP);
    let (_, errno, text) = refusal(Event::open(&often, Target::ThisThread));
    assert_eq!(errno, Errno::INVAL);
    assert!(text.contains("perf_event_max_sample_rate"), "{text}");

    let counting = Event::open(&page_faults(), Target::ThisThread)?;
    let (operation, errno, text) = refusal(counting.set_period(5));
    assert_eq!((operation, errno), (Operation::Period, Errno::INVAL));
    assert!(text.contains("takes no samples"), "{text}");
    let (operation, errno, _) = refusal(counting.pause_output());
    assert_eq!((operation, errno), (Operation::PauseOutput, Errno::INVAL));
    let (operation, errno, _) = refusal(counting.set_filter(c"nonsense"));
    assert_eq!((operation, errno), (Operation::SetFilter, Errno::INVAL));
    let (operation, _, text) = refusal(counting.modify_attributes(&page_faults()));
    assert_eq!(operation, Operation::ModifyAttributes, "{text}");
    let (operation, errno, _) = refusal(counting.set_output(Some(&counting)));
    assert_eq!((operation, errno), (Operation::SetOutput, Errno::INVAL));

    let pinned_member = page_faults().pinned();
    let joined = Event::open_in_group(&pinned_member, Target::ThisThread, &counting);
    let (_, errno, text) = refusal(joined);
    assert_eq!(errno, Errno::INVAL);
    assert!(text.contains("cannot join this group"), "{text}");

    let inherited = Event::open(&page_faults().inherit(), Target::ThisThread)?;
    let (operation, errno, text) = refusal(Ring::map(&inherited, 1));
    assert_eq!((operation, errno), (Operation::Map, Errno::INVAL));
    assert!(text.contains("Target::ThreadOnCpu"), "{text}");
    Ok(())
}

#[test]
fn counts_of_the_wrong_length_are_refused() {
    let format = ReadFormat::GROUP | ReadFormat::ID;
    let words = |words: &[u64]| {
        words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect::<Vec<_>>()
    };
    let good = words(&[2, 10, 1, 20, 2]);
    let counts = perfshim::Counts::from_read(format, &good).map(|counts| counts.iter().collect());
    let count = |value, id| Count {
        value,
        id: Some(id),
        ..Count::default()
    };
    assert_eq!(counts, Ok(vec![count(10, 1), count(20, 2)]));
    for bad in [
        words(&[3, 10, 1, 20, 2]),
        words(&[u64::MAX]),
        words(&[]),
        vec![1],
    ] {
        let result = perfshim::Counts::from_read(format, &bad).map(|_| ());
        assert!(matches!(result, Err(DecodeError::Short { .. })), "{bad:?}");
    }
    let long = perfshim::Counts::from_read(format, &words(&[1, 10, 1, 20])).map(|_| ());
    assert_eq!(long, Err(DecodeError::Trailing { left: 8 }));
}

#[test]
fn scaling_is_value_times_enabled_by_running() {
    let count = |value, enabled, running| Count {
        value,
        time_enabled: enabled,
        time_running: running,
        ..Count::default()
    };
    assert_eq!(count(100, Some(50), Some(25)).scaled(), Some(200));
    assert!(count(100, Some(50), Some(25)).was_multiplexed());
    assert_eq!(count(u64::MAX, Some(3), Some(3)).scaled(), Some(u64::MAX));
    assert_eq!(
        count(u64::MAX, Some(4), Some(2)).scaled(),
        Some(u64::MAX),
        "held at the most"
    );
    assert_eq!(count(0, Some(50), Some(0)).scaled(), None, "it never ran");
    assert_eq!(
        count(0, Some(0), Some(0)).scaled(),
        Some(0),
        "it was never enabled"
    );
    assert_eq!(count(7, None, Some(1)).scaled(), None);
}
