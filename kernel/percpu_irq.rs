// SPDX-License-Identifier: GPL-2.0

//! Per-CPU interrupts: one interrupt number that each CPU has for itself, such as an arm64 PPI.
//!
//! A [`PerCpuIrq`] is [looked up](of_platform) for a device, [requested](request) with a
//! [`Handler`], and then enabled on each CPU by that CPU itself, in its
//! [hotplug callback](crate::cpuhp).
//!
//! C header: [`include/linux/interrupt.h`](srctree/include/linux/interrupt.h)
//!
//! # Examples
//!
//! ```
//! use kernel::{
//!     cpuhp,
//!     device::{
//!         Bound,
//!         Device, //
//!     },
//!     irq::IrqReturn,
//!     percpu_irq::{
//!         self,
//!         IrqContext,
//!         PerCpuIrq, //
//!     },
//!     sync::Arc, //
//! };
//!
//! struct Handler;
//!
//! impl percpu_irq::Handler for Handler {
//!     fn handle(&self, irq: &IrqContext<'_>) -> IrqReturn {
//!         pr_debug!("interrupt on CPU {}\n", irq.cpu().as_u32());
//!         IrqReturn::Handled
//!     }
//! }
//!
//! struct EnableOnEachCpu(Arc<PerCpuIrq>);
//!
//! #[vtable]
//! impl cpuhp::Callbacks for EnableOnEachCpu {
//!     fn online(&self, cpu: &cpuhp::Transition<'_>) -> Result {
//!         self.0.enable(cpu)
//!     }
//!
//!     fn offline(&self, cpu: &cpuhp::Transition<'_>) {
//!         self.0.disable(cpu);
//!     }
//! }
//!
//! # #[allow(dead_code)]
//! fn probe(dev: &Device<Bound>, irq: Arc<PerCpuIrq>) -> Result {
//!     percpu_irq::request(dev, &irq, c"example", Handler)?;
//!     cpuhp::register(dev, c"example:online", EnableOnEachCpu(irq))
//! }
//! ```

use crate::{
    bindings,
    cpuhp,
    percpu::{
        address_on,
        LocalCell,
        OnCpu,
        PerCpu, //
    },
    smp, //
};
use core::{
    convert::Infallible,
    mem::ManuallyDrop,
    ops::Deref,
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    cpu::CpuId,
    cpumask::{
        Cpumask,
        CpumaskVar, //
    },
    device::{
        Bound,
        Device, //
    },
    devres,
    error::to_result,
    ffi::{
        c_int,
        c_uint,
        c_void, //
    },
    irq::IrqReturn,
    platform,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// The kind of interrupts that a device has.
pub enum Interrupts {
    /// The device has no interrupt.
    None,
    /// One per-CPU interrupt.
    PerCpu(Arc<PerCpuIrq>),
    /// This many interrupts of the ordinary, shared kind, such as arm64 SPIs.
    Shared(u32),
}

/// Finds out what interrupts `pdev` has.
///
/// Fails with [`EPROBE_DEFER`] when the interrupt controller is not there yet, and with [`EINVAL`]
/// when there are several interrupts and the first one is per-CPU.
pub fn of_platform(pdev: &platform::Device<Bound>) -> Result<Interrupts> {
    // `platform::Device` is a transparent wrapper of the C struct, whose pointer it keeps for
    // itself.
    let raw: *mut bindings::platform_device = core::ptr::from_ref(pdev).cast_mut().cast();

    // SAFETY: `raw` is a valid platform device.
    let count = unsafe { bindings::platform_irq_count(raw) };
    to_result(count)?;
    let count = count.unsigned_abs();

    if count == 0 {
        return Ok(Interrupts::None);
    }

    let mut affinity = core::ptr::null();

    // SAFETY: `raw` is a valid platform device, `affinity` a place for a pointer.
    let irq = unsafe { bindings::platform_get_irq_affinity(raw, 0, &mut affinity) };
    to_result(irq)?;
    let irq = irq.unsigned_abs();

    // SAFETY: It takes any number.
    if !unsafe { bindings::irq_check_status_bit(irq, bindings::IRQ_PER_CPU_DEVID) } {
        return Ok(Interrupts::Shared(count));
    }
    if count > 1 {
        return Err(EINVAL);
    }

    let affinity = if affinity.is_null() {
        smp::possible()
    } else {
        // SAFETY: It is the mask of the interrupt's partition or `cpu_possible_mask`. Both exist
        // as long as the interrupt controller, so until we have copied it.
        unsafe { Cpumask::from_raw(affinity) }
    };

    Ok(Interrupts::PerCpu(PerCpuIrq::new(irq, affinity)?))
}

/// Handles a per-CPU interrupt.
pub trait Handler: Send + Sync + 'static {
    /// Called on the CPU that was interrupted, in hard interrupt context.
    fn handle(&self, irq: &IrqContext<'_>) -> IrqReturn;
}

/// The interrupt that is being handled: proof that the code runs in its handler, on one CPU.
///
/// # Invariants
///
/// The code that has it is called by an interrupt handler, so the interrupted registers of this
/// CPU are known.
pub struct IrqContext<'a>(OnCpu<'a>);

impl<'a> Deref for IrqContext<'a> {
    type Target = OnCpu<'a>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl IrqContext<'_> {
    /// The registers of the interrupted code. C's `get_irq_regs()`.
    #[inline]
    pub(crate) fn regs(&self) -> *mut bindings::pt_regs {
        let here = address_on(&raw const bindings::__irq_regs, self.cpu());

        // SAFETY: `here` is this CPU's copy of `__irq_regs`, which only interrupt entry and exit
        // on this CPU write: they cannot run during the handler, or restore the value.
        unsafe { *here }
    }
}

/// An interrupt number that each CPU has for itself.
///
/// # Invariants
///
/// `irq` is a per-CPU interrupt (`IRQ_PER_CPU_DEVID`).
pub struct PerCpuIrq {
    irq: c_uint,
    affinity: CpumaskVar,
    state: Atomic<u32>,
    /// Whether a CPU has it enabled. Only that CPU writes it.
    enabled: PerCpu<LocalCell<bool>>,
}

// SAFETY: The mask is plain memory that does not change; the rest is `Send`.
unsafe impl Send for PerCpuIrq {}

// SAFETY: The mask is only read; the rest is `Sync`.
unsafe impl Sync for PerCpuIrq {}

/// Nobody has requested the interrupt.
const FREE: u32 = 0;
/// It is being requested or released: nobody may enable it.
const BUSY: u32 = 1;
/// It has a handler.
const REQUESTED: u32 = 2;

impl PerCpuIrq {
    fn new(irq: c_uint, affinity: &Cpumask) -> Result<Arc<Self>> {
        // INVARIANT: The only caller has checked `irq`.
        let this = Self {
            irq,
            affinity: CpumaskVar::try_clone(affinity)?,
            state: Atomic::new(FREE),
            enabled: PerCpu::new(|_cpu| LocalCell::new(false))?,
        };

        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The interrupt number.
    pub fn number(&self) -> u32 {
        self.irq
    }

    /// The CPUs that have this interrupt.
    pub fn affinity(&self) -> &Cpumask {
        &self.affinity
    }

    /// Enables the interrupt on this CPU.
    ///
    /// It takes the lock of the interrupt's descriptor. Perf's callbacks must not wait for that:
    /// they run under locks of the scheduler. A hotplug callback may.
    ///
    /// Fails with [`ENODEV`] when the interrupt is not requested (any more) and with [`EINVAL`]
    /// when it is not for this CPU.
    pub fn enable(&self, cpu: &cpuhp::Transition<'_>) -> Result {
        if !self.affinity.test(cpu.cpu()) {
            return Err(EINVAL);
        }

        let enabled = self.enabled.get(cpu);

        // `close()` leaves this state and then looks at all CPUs that are on line. So either it
        // sees that this one has the interrupt enabled, or this sees that it is being closed.
        enabled.store(true);
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        if self.state.load(Relaxed) != REQUESTED {
            enabled.store(false);
            return Err(ENODEV);
        }

        // SAFETY: By the type invariant this is a per-CPU interrupt. It has a handler, which stays
        // until `close()` has disabled the interrupt here.
        unsafe { bindings::enable_percpu_irq(self.irq, bindings::IRQ_TYPE_NONE) };
        Ok(())
    }

    /// Disables the interrupt on this CPU, if it is enabled here.
    pub fn disable(&self, cpu: &cpuhp::Transition<'_>) {
        self.disable_here(cpu);
    }

    fn disable_here(&self, on: &OnCpu<'_>) {
        let enabled = self.enabled.get(on);

        if enabled.load() {
            // SAFETY: By the type invariant this is a per-CPU interrupt.
            unsafe { bindings::disable_percpu_irq(self.irq) };
            enabled.store(false);
        }
    }

    /// Keeps CPUs from enabling the interrupt and disables it everywhere.
    ///
    /// Fails with [`EBUSY`] when a CPU went off line without disabling it.
    fn close(&self) -> Result {
        self.state.store(BUSY, Release);
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        smp::call_each(|on| self.disable_here(on));

        let mut cpus = smp::cpus(smp::possible());
        if cpus.any(|cpu| self.enabled.on(cpu).load()) {
            return Err(EBUSY);
        }
        Ok(())
    }
}

/// Requests `irq` until `dev` is unbound. It is enabled on no CPU then.
///
/// `name` shows up in `/proc/interrupts`.
///
/// Fails with [`EBUSY`] when this was done already, and with [`EINVAL`] or [`EBUSY`] when another
/// driver has it for one of its CPUs.
pub fn request<H: Handler, E>(
    dev: &Device<Bound>,
    irq: &Arc<PerCpuIrq>,
    name: &'static CStr,
    handler: impl PinInit<H, E>,
) -> Result
where
    Error: From<E>,
{
    let registration = Registration::new(irq, name, handler)?;

    devres::register::<_, Infallible>(dev, registration, GFP_KERNEL)
}

/// What a CPU needs when the interrupt comes.
struct Entry<H: Handler> {
    handler: NonNull<H>,
    cpu: CpuId,
}

// SAFETY: `Handler`s are `Send` and `Sync`, and an `Entry` gives out a shared reference only.
unsafe impl<H: Handler> Send for Entry<H> {}

// SAFETY: As above.
unsafe impl<H: Handler> Sync for Entry<H> {}

/// A handler that is registered with the kernel.
struct Registration<H: Handler> {
    irq: Arc<PerCpuIrq>,
    // Not dropped when the kernel could not be kept from using them.
    handler: ManuallyDrop<Pin<KBox<H>>>,
    entries: ManuallyDrop<PerCpu<Entry<H>>>,
}

impl<H: Handler> Registration<H> {
    fn new<E>(
        irq: &Arc<PerCpuIrq>,
        name: &'static CStr,
        handler: impl PinInit<H, E>,
    ) -> Result<Self>
    where
        Error: From<E>,
    {
        irq.state.cmpxchg(FREE, BUSY, Full).map_err(|_| EBUSY)?;

        let result = Self::request(irq, name, handler);
        let state = if result.is_ok() { REQUESTED } else { FREE };
        irq.state.store(state, Release);
        result
    }

    fn request<E>(
        irq: &Arc<PerCpuIrq>,
        name: &'static CStr,
        handler: impl PinInit<H, E>,
    ) -> Result<Self>
    where
        Error: From<E>,
    {
        let handler = KBox::pin_init(handler, GFP_KERNEL)?;
        let entries = PerCpu::new::<_, Infallible>(|cpu| Entry {
            handler: NonNull::from(&*handler),
            cpu,
        })?;

        // SAFETY: `handle::<H>` expects an `Entry<H>` of the CPU that it runs on, which is what
        // the kernel makes of a per-CPU pointer. `entries`, what they point to and the mask stay
        // until `Self::drop()` has taken the handler away; `name` is static.
        to_result(unsafe {
            bindings::request_percpu_irq_affinity(
                irq.irq,
                Some(handle::<H>),
                name.as_char_ptr(),
                irq.affinity.as_raw(),
                entries.as_raw(),
            )
        })?;

        Ok(Self {
            irq: irq.clone(),
            handler: ManuallyDrop::new(handler),
            entries: ManuallyDrop::new(entries),
        })
    }
}

impl<H: Handler> Drop for Registration<H> {
    fn drop(&mut self) {
        if self.irq.close().is_err() {
            pr_err!(
                "interrupt {} is still enabled on an offline CPU: its handler stays\n",
                self.irq.irq
            );
            core::mem::forget(self.irq.clone());
            return;
        }

        // SAFETY: It was requested with these arguments, and it is enabled on no CPU. Since each
        // CPU on line has run `close()`'s function after the last time that the interrupt could
        // come, no handler is running.
        unsafe { bindings::free_percpu_irq(self.irq.irq, self.entries.as_raw()) };

        // SAFETY: Neither is used after this; the kernel does not know them any more.
        unsafe {
            ManuallyDrop::drop(&mut self.entries);
            ManuallyDrop::drop(&mut self.handler);
        }
        self.irq.state.store(FREE, Release);
    }
}

/// # Safety
///
/// To be called by the interrupt core only, with this CPU's `Entry<H>`.
unsafe extern "C" fn handle<H: Handler>(_irq: c_int, entry: *mut c_void) -> bindings::irqreturn_t {
    // SAFETY: `entry` is this CPU's entry; it stays until the interrupt is freed.
    let entry = unsafe { &*entry.cast::<Entry<H>>() };

    // SAFETY: The kernel handles a per-CPU interrupt on the CPU that it came to, with interrupts
    // off, and passes the entry of that CPU.
    let on = unsafe { OnCpu::new(entry.cpu) };

    // SAFETY: The handler is dropped after the interrupt is freed.
    let handler = unsafe { entry.handler.as_ref() };

    // INVARIANT: This is the handler.
    match handler.handle(&IrqContext(on)) {
        IrqReturn::None => bindings::irqreturn::IRQ_NONE,
        IrqReturn::Handled => bindings::irqreturn::IRQ_HANDLED,
    }
}
