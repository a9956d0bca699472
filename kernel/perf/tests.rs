// SPDX-License-Identifier: GPL-2.0

//! KUnit tests with a PMU that counts in software.
//!
//! It is what most PMUs outside CPUs are like: it belongs to the whole system, one CPU is in charge
//! of it, it has no interrupt, and it has two counters. The events are opened as kernel counters.

#[kernel::prelude::kunit_tests(rust_perf)]
mod kunit {
    use crate::{
        bindings,
        cpuhp,
        percpu::{
            LocalCell,
            OnCpu,
            PerCpu, //
        },
        perf::{
            self,
            sysfs::{
                Attribute,
                ConfigWord,
                EventAttr,
                FormatAttr, //
            },
            Active,
            Capabilities,
            CounterWidth,
            Driver,
            Event,
            Member,
            NewEvent,
            Pmu,
            Slot,
            TaskContext, //
        },
        smp, //
    };
    use core::{
        mem::size_of,
        ptr::{
            null_mut,
            NonNull, //
        },
    };
    use kernel::{
        cpu::CpuId,
        device::{
            Bound,
            Device, //
        },
        error::from_err_ptr,
        faux,
        fmt::Write,
        page::PAGE_SIZE,
        prelude::*,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc, //
        }, //
    };

    const TICKS: u64 = 0x1;
    const HIDDEN: u64 = 0x2;

    /// The driver's data.
    struct Fake {
        in_charge: Atomic<u32>,
        counters: PerCpu<Counters>,
    }

    /// The counters of a CPU, of which those of the CPU in charge are used.
    struct Counters {
        enabled: LocalCell<bool>,
        running: LocalCell<u64>,
        values: [LocalCell<u64>; Fake::COUNTERS as usize],
    }

    impl Counters {
        fn new() -> Self {
            Self {
                enabled: LocalCell::new(false),
                running: LocalCell::new(0),
                values: [LocalCell::new(0), LocalCell::new(0)],
            }
        }

        fn value(&self, slot: Slot) -> &LocalCell<u64> {
            &self.values[usize::from(slot.number())]
        }
    }

    impl Fake {
        const COUNTERS: u8 = 2;
        const EVENT: FormatAttr = FormatAttr::new(c"event", ConfigWord::Config, 0, 7);

        fn width() -> CounterWidth {
            CounterWidth::new(48).unwrap_or(CounterWidth::BITS_32)
        }

        fn in_charge(&self) -> Result<CpuId> {
            CpuId::from_u32(self.in_charge.load(Relaxed)).ok_or(ENODEV)
        }

        /// Lets something happen `times` on the CPU in charge: the running counters count it.
        fn tick(&self, times: u64) -> Result {
            smp::call(self.in_charge()?, |on| {
                let counters = self.counters.get(on);

                if counters.enabled.load() {
                    for slot in (0..Self::COUNTERS).filter_map(Slot::new) {
                        if counters.running.load() & slot.bit() != 0 {
                            let value = counters.value(slot);
                            value.store(value.load().wrapping_add(times) & Self::width().max());
                        }
                    }
                }
            })
        }
    }

    #[vtable]
    impl Driver for Fake {
        const TASK_CONTEXT: TaskContext = TaskContext::System;
        const CAPABILITIES: Capabilities = Capabilities::NO_EXCLUDE;
        const EVENTS: &'static [EventAttr] = &[
            EventAttr::new(c"ticks", TICKS),
            EventAttr::new(c"hidden", HIDDEN),
            EventAttr::with_text(c"ticks.unit", "Ticks"),
        ];
        const FORMAT: &'static [FormatAttr] = &[
            Self::EVENT,
            FormatAttr::new(c"edge", ConfigWord::Config1, 4, 4),
        ];
        const CAPS: &'static [Attribute<Self>] = &[Attribute::new(c"counters", |_, to| {
            to.write_fmt(fmt!("0x{:08x}\n", Self::COUNTERS))
        })];
        const PLAIN: &'static [Attribute<Self>] = &[Attribute::new(c"cpumask", |fake, to| {
            to.write_fmt(fmt!("{}\n", fake.in_charge.load(Relaxed)))
        })];

        fn event_visible(&self, event: &EventAttr) -> bool {
            event.id() != Some(HIDDEN)
        }

        fn event_init(&self, event: &mut NewEvent<'_, Self>) -> Result {
            if !event.is_own_type() {
                return Err(ENOENT);
            }
            if event.is_sampling() || event.is_task() {
                return Err(EOPNOTSUPP);
            }
            if event.attr().field(&Self::EVENT) != TICKS {
                return Err(EINVAL);
            }

            let mut needed = 0;
            for member in event.group() {
                match member {
                    Member::Own(event) => needed += u8::from(event.can_run()),
                    Member::Software => {}
                    Member::Other => return Err(EINVAL),
                }
            }
            if needed > Self::COUNTERS {
                return Err(EINVAL);
            }

            event.set_cpu(self.in_charge()?)?;
            event.set_default_period(Self::width());
            Ok(())
        }

        fn add(
            &self,
            _cpu: &OnCpu<'_>,
            _event: &Event<Self>,
            active: &Active<'_, Self>,
        ) -> Result<Slot> {
            (0..Self::COUNTERS)
                .filter_map(Slot::new)
                .find(|slot| active.set() & slot.bit() == 0)
                .ok_or(EAGAIN)
        }

        fn start(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
            let counters = self.counters.get(cpu);

            let start = event.set_period(Self::width());

            counters.value(slot).store(start & Self::width().max());
            counters.running.store(counters.running.load() | slot.bit());
        }

        fn stop(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
            let running = &self.counters.get(cpu).running;

            running.store(running.load() & !slot.bit());
            self.read(cpu, event, slot);
        }

        fn read(&self, cpu: &OnCpu<'_>, event: &Event<Self>, slot: Slot) {
            let value = self.counters.get(cpu).value(slot);

            event.update(Self::width(), || value.load());
        }

        fn enable(&self, cpu: &OnCpu<'_>, active: &Active<'_, Self>) {
            self.counters.get(cpu).enabled.store(!active.is_empty());
        }

        fn disable(&self, cpu: &OnCpu<'_>, _active: &Active<'_, Self>) {
            self.counters.get(cpu).enabled.store(false);
        }
    }

    /// Moves the events when the CPU in charge leaves.
    struct Charge(Arc<Pmu<Fake>>);

    impl cpuhp::Callbacks for Charge {
        const NAME: &'static CStr = c"rust_perf_test:online";

        fn online(&self, _cpu: &cpuhp::Transition<'_>) -> Result {
            Ok(())
        }

        fn offline(&self, cpu: &cpuhp::Transition<'_>) {
            let leaving = cpu.cpu();
            let other = smp::cpus(smp::online()).find(|cpu| *cpu != leaving);

            if let (Ok(from), Some(to)) = (self.0.in_charge(), other) {
                if from == leaving {
                    self.0.in_charge.store(to.as_u32(), Relaxed);
                    self.0.migrate(from, to);
                }
            }
        }
    }

    fn new_pmu() -> Result<Arc<Pmu<Fake>>> {
        Pmu::new(Fake {
            in_charge: Atomic::new(0),
            counters: PerCpu::new(|_cpu| Counters::new())?,
        })
    }

    fn bound(faux: &faux::Registration) -> &Device<Bound> {
        AsRef::<faux::Device<Bound>>::as_ref(faux).as_ref()
    }

    /// A device with a PMU. When it is dropped, the PMU is unregistered.
    fn new_device(pmu: &Arc<Pmu<Fake>>, name: &CStr) -> Result<faux::Registration> {
        let device = faux::Registration::new(name, None)?;

        cpuhp::register(bound(&device), Charge(pmu.clone()))?;
        perf::register(bound(&device), pmu, name, Capabilities::NO_INTERRUPT)?;
        Ok(device)
    }

    /// An event that the kernel has opened.
    struct Counter(NonNull<bindings::perf_event>);

    impl Counter {
        fn open(pmu: &Pmu<Fake>, config: u64, sample_period: u64) -> Result<Self> {
            // SAFETY: The struct consists of integers.
            let mut attr: bindings::perf_event_attr = unsafe { core::mem::zeroed() };

            attr.size = size_of::<bindings::perf_event_attr>() as u32;
            // SAFETY: The PMU is registered, so the number does not change.
            attr.type_ = unsafe { (*pmu.as_raw()).type_ } as u32;
            attr.config = config;
            // SAFETY: The union consists of numbers of this size.
            unsafe {
                (&raw mut attr.__bindgen_anon_1)
                    .cast::<u64>()
                    .write(sample_period)
            };

            // SAFETY: `attr` is valid; there is no task, no handler and no context.
            let event = from_err_ptr(unsafe {
                bindings::perf_event_create_kernel_counter(
                    &mut attr,
                    0,
                    null_mut(),
                    None,
                    null_mut(),
                )
            })?;

            Ok(Self(NonNull::new(event).ok_or(EINVAL)?))
        }

        fn enable(&self) {
            // SAFETY: The event was opened and is not released yet.
            unsafe { bindings::perf_event_enable(self.0.as_ptr()) }
        }

        fn disable(&self) {
            // SAFETY: The event was opened and is not released yet.
            unsafe { bindings::perf_event_disable(self.0.as_ptr()) }
        }

        fn read(&self) -> u64 {
            let (mut enabled, mut running) = (0, 0);

            // SAFETY: The event was opened and is not released yet.
            unsafe { bindings::perf_event_read_value(self.0.as_ptr(), &mut enabled, &mut running) }
        }

        fn state(&self) -> bindings::perf_event_state {
            // SAFETY: The event was opened and is not released yet.
            unsafe { (&raw const (*self.0.as_ptr()).state).read_volatile() }
        }

        fn is_active(&self) -> bool {
            self.state() == bindings::perf_event_state_PERF_EVENT_STATE_ACTIVE
        }

        fn cpu(&self) -> i32 {
            // SAFETY: The event was opened and is not released yet.
            unsafe { (&raw const (*self.0.as_ptr()).cpu).read_volatile() }
        }
    }

    // SAFETY: Perf core's functions may be called from any thread.
    unsafe impl Sync for Counter {}

    impl Drop for Counter {
        fn drop(&mut self) {
            // SAFETY: The event was opened, and this is its last use.
            unsafe { bindings::perf_event_release_kernel(self.0.as_ptr()) };
        }
    }

    /// What a reader of a PMU's file in sysfs would get; `None` if the file is not there.
    fn read_file(pmu: &Pmu<Fake>, folder: Option<&CStr>, name: &CStr) -> Option<KVec<u8>> {
        let raw = pmu.as_raw();

        // SAFETY: The PMU is registered, so it has a device and groups that end with null, each
        // of which has attributes that end with null; ours are device attributes.
        unsafe {
            let dev = (*raw).dev;
            let mut groups = (*raw).attr_groups;

            while let Some(group) = (*groups).as_ref() {
                groups = groups.add(1);
                let same = match folder {
                    Some(folder) => {
                        !group.name.is_null() && CStr::from_char_ptr(group.name) == folder
                    }
                    None => group.name.is_null(),
                };
                if !same {
                    continue;
                }

                let mut attrs = group.__bindgen_anon_2.attrs;
                while !(*attrs).is_null() {
                    let attr = *attrs;
                    attrs = attrs.add(1);
                    if CStr::from_char_ptr((*attr).name) != name {
                        continue;
                    }

                    let is_visible = group.__bindgen_anon_1.is_visible?;
                    if is_visible(&raw mut (*dev).kobj, attr, 0) == 0 {
                        return None;
                    }

                    let attr: *mut bindings::device_attribute = attr.cast();
                    let show = (*attr).__bindgen_anon_1.show?;
                    let mut page = KVec::from_elem(0u8, PAGE_SIZE, GFP_KERNEL).ok()?;
                    let length = show(dev, attr, page.as_mut_ptr());
                    page.truncate(usize::try_from(length).ok()?);
                    return Some(page);
                }
            }
        }
        None
    }

    #[test]
    fn an_event_counts_while_it_is_enabled() -> Result {
        let pmu = new_pmu()?;
        let _device = new_device(&pmu, c"rust_perf_counts")?;
        let counter = Counter::open(&pmu, TICKS, 0)?;

        assert_eq!(counter.read(), 0);
        pmu.tick(5)?;
        assert_eq!(counter.read(), 5);

        counter.disable();
        pmu.tick(100)?;
        assert_eq!(counter.read(), 5);

        counter.enable();
        pmu.tick(2)?;
        assert_eq!(counter.read(), 7);
        Ok(())
    }

    #[test]
    fn events_take_turns_when_counters_are_scarce() -> Result {
        let pmu = new_pmu()?;
        let _device = new_device(&pmu, c"rust_perf_turns")?;
        let counters = [
            Counter::open(&pmu, TICKS, 0)?,
            Counter::open(&pmu, TICKS, 0)?,
            Counter::open(&pmu, TICKS, 0)?,
        ];

        // Perf lets them take turns, but never more than there are counters. The CPU in charge
        // cannot be in the midst of a change while it answers.
        let active = || {
            smp::call(pmu.in_charge()?, |_on| {
                counters
                    .iter()
                    .filter(|counter| counter.is_active())
                    .count()
            })
        };
        assert_eq!(active()?, 2);

        // When the others leave, the third has a counter for itself. Enabling an event makes perf
        // schedule it at once, without waiting for its turn.
        counters[0].disable();
        counters[1].disable();
        counters[2].disable();
        counters[2].enable();
        assert!(counters[2].is_active());
        assert_eq!(active()?, 1);
        pmu.tick(3)?;
        assert_eq!(counters[2].read(), 3);
        Ok(())
    }

    #[test]
    fn what_the_pmu_cannot_do_is_refused() -> Result {
        let pmu = new_pmu()?;
        let _device = new_device(&pmu, c"rust_perf_refused")?;

        assert_eq!(Counter::open(&pmu, 0x77, 0).err(), Some(EINVAL));
        // It has no interrupt.
        assert!(Counter::open(&pmu, TICKS, 1000).is_err());
        Ok(())
    }

    #[test]
    fn an_open_event_is_revoked_with_its_pmu() -> Result {
        let pmu = new_pmu()?;
        let device = new_device(&pmu, c"rust_perf_revoked")?;
        let counter = Counter::open(&pmu, TICKS, 0)?;
        pmu.tick(4)?;

        drop(device);

        assert_eq!(
            counter.state(),
            bindings::perf_event_state_PERF_EVENT_STATE_REVOKED
        );
        // Its slot is free: perf core has deleted it.
        assert!(smp::call(pmu.in_charge()?, |on| pmu.active(on).is_empty())?);

        // The same PMU can be registered again, and is another one to user space.
        let _device = new_device(&pmu, c"rust_perf_revoked")?;
        let counter = Counter::open(&pmu, TICKS, 0)?;
        pmu.tick(1)?;
        assert_eq!(counter.read(), 1);
        Ok(())
    }

    #[test]
    fn a_pmu_is_registered_once() -> Result {
        let pmu = new_pmu()?;
        let device = new_device(&pmu, c"rust_perf_once")?;

        let again = perf::register(bound(&device), &pmu, c"rust_perf_again", Capabilities::NONE);
        assert_eq!(again, Err(EBUSY));
        Ok(())
    }

    #[test]
    fn files_say_what_drivers_in_c_would() -> Result {
        let pmu = new_pmu()?;
        let _device = new_device(&pmu, c"rust_perf_files")?;
        let is = |folder, name, contents: &[u8]| {
            read_file(&pmu, folder, name).is_some_and(|read| read[..] == *contents)
        };

        assert!(is(Some(c"events"), c"ticks", b"event=0x0001\n"));
        assert!(is(Some(c"events"), c"ticks.unit", b"Ticks\n"));
        assert!(is(Some(c"format"), c"event", b"config:0-7\n"));
        assert!(is(Some(c"format"), c"edge", b"config1:4\n"));
        assert!(is(Some(c"caps"), c"counters", b"0x00000002\n"));
        assert!(is(None, c"cpumask", b"0\n"));
        assert!(read_file(&pmu, Some(c"events"), c"hidden").is_none());
        Ok(())
    }

    /// The CPU in charge is never taken off line by other tests, so any CPU but the first will do.
    #[test]
    #[cfg(CONFIG_HOTPLUG_CPU)]
    fn events_move_when_their_cpu_leaves() -> Result {
        let Some(second) = smp::cpus(smp::online()).nth(1) else {
            pr_info!("one CPU only: nothing to move to\n");
            return Ok(());
        };
        let pmu = new_pmu()?;
        pmu.in_charge.store(second.as_u32(), Relaxed);
        let _device = new_device(&pmu, c"rust_perf_moves")?;
        let counter = Counter::open(&pmu, TICKS, 0)?;
        pmu.tick(3)?;

        // SAFETY: It may be called with any CPU number, from a context that may sleep.
        let removed = unsafe { bindings::remove_cpu(second.as_u32()) };
        let first = pmu.in_charge()?;
        let ticked = pmu.tick(4);
        let count = counter.read();
        let cpu = counter.cpu();
        // SAFETY: As above.
        let added = unsafe { bindings::add_cpu(second.as_u32()) };

        assert_eq!((removed, added), (0, 0));
        assert!(first != second);
        assert_eq!(cpu, i32::from(first));
        assert!(ticked.is_ok());
        assert_eq!(count, 7);
        Ok(())
    }

    /// Events that only have what `NewEvent::group()` looks at.
    struct Bare(KBox<bindings::perf_event>);

    impl Bare {
        fn new(pmu: *mut bindings::pmu) -> Result<Self> {
            let mut event = KBox::<bindings::perf_event>::new_uninit(GFP_KERNEL)?;
            // SAFETY: The memory is ours, and all fields may be zero.
            let event = unsafe {
                event.as_mut_ptr().write_bytes(0, 1);
                event.assume_init()
            };
            let mut this = Self(event);
            let raw = this.raw();

            this.0.pmu = pmu;
            this.0.group_leader = raw;
            // SAFETY: The list is part of the event.
            let list = unsafe { &raw mut (*raw).sibling_list };
            this.0.sibling_list.next = list;
            this.0.sibling_list.prev = list;
            Ok(this)
        }

        fn raw(&mut self) -> *mut bindings::perf_event {
            &raw mut *self.0
        }

        fn join(&mut self, leader: &mut Bare) {
            let (this, leader) = (self.raw(), leader.raw());

            // SAFETY: Both events are valid, and nobody else knows them.
            unsafe {
                let head = &raw mut (*leader).sibling_list;
                let node = &raw mut (*this).sibling_list;
                (*this).group_leader = leader;
                (*node).next = head;
                (*node).prev = (*head).prev;
                (*(*head).prev).next = node;
                (*head).prev = node;
            }
        }
    }

    #[test]
    fn a_group_has_a_leader_siblings_and_the_new_event() -> Result {
        let pmu = new_pmu()?;
        let own = pmu.as_raw();
        let mut other = 0u64;
        let other: *mut bindings::pmu = (&raw mut other).cast();

        let mut leader = Bare::new(own)?;
        let mut foreign = Bare::new(other)?;
        let mut software = Bare::new(other)?;
        software.0.event_caps = bindings::PERF_EV_CAP_SOFTWARE;
        let mut revoked = Bare::new(null_mut())?;
        let mut new = Bare::new(own)?;

        foreign.join(&mut leader);
        software.join(&mut leader);
        revoked.join(&mut leader);
        new.0.group_leader = leader.raw();

        let kinds = |event: *mut bindings::perf_event| -> Result<KVec<u8>> {
            // SAFETY: The event is valid, its PMU is a `Pmu<Fake>`, and nobody changes the group.
            let event = unsafe { NewEvent::<Fake>::from_raw(event) };
            let mut kinds = KVec::new();

            for member in event.group() {
                kinds.push(
                    match member {
                        Member::Own(_) => b'o',
                        Member::Software => b's',
                        Member::Other => b'x',
                    },
                    GFP_KERNEL,
                )?;
            }
            Ok(kinds)
        };

        assert!(kinds(leader.raw())?[..] == *b"o");
        assert!(kinds(new.raw())?[..] == *b"oxsxo");
        Ok(())
    }
}
