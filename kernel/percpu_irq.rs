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
//!         PerCpuIrq,
//!         Urgency, //
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
//!     percpu_irq::request(dev, &irq, c"example", Urgency::Ordinary, Handler)?;
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
        c_char,
        c_int,
        c_uint,
        c_void, //
    },
    irq::IrqReturn,
    platform,
    prelude::*,
    sync::{
        atomic::{
            AtomicFlag,
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
    /// Called on the CPU that was interrupted, in hard interrupt context, or as an NMI if the
    /// interrupt was [requested](request) as one: then it must not wait for locks.
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

/// How an interrupt comes to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// As an interrupt like others: not while interrupts are off.
    Ordinary,
    /// As an NMI, also while interrupts are off. On arm64 these are interrupts of a higher priority
    /// (`irqchip.gicv3_pseudo_nmi=1`).
    Nmi,
}

/// An interrupt number that each CPU has for itself.
///
/// # Invariants
///
/// `irq` is a per-CPU interrupt (`IRQ_PER_CPU_DEVID`).
pub struct PerCpuIrq {
    irq: c_uint,
    affinity: CpumaskVar,
    /// Whether somebody has it [requested](request), or is about to.
    claimed: AtomicFlag,
    /// Whether it was requested as an NMI.
    nmi: AtomicFlag,
    switches: PerCpu<Switches>,
}

/// What decides whether the interrupt is enabled on a CPU. Only that CPU changes it, with
/// interrupts off.
struct Switches {
    /// The driver wants it enabled.
    wanted: LocalCell<bool>,
    /// There is a handler, and the CPU is not about to go down.
    handled: LocalCell<bool>,
    /// It is enabled.
    on: LocalCell<bool>,
}

impl Switches {
    fn new() -> Self {
        Self {
            wanted: LocalCell::new(false),
            handled: LocalCell::new(false),
            on: LocalCell::new(false),
        }
    }
}

// SAFETY: The mask is plain memory that does not change; the rest is `Send`.
unsafe impl Send for PerCpuIrq {}

// SAFETY: The mask is only read; the rest is `Sync`.
unsafe impl Sync for PerCpuIrq {}

impl PerCpuIrq {
    fn new(irq: c_uint, affinity: &Cpumask) -> Result<Arc<Self>> {
        // INVARIANT: The only caller has checked `irq`.
        let this = Self {
            irq,
            affinity: CpumaskVar::try_clone(affinity)?,
            claimed: AtomicFlag::new(false),
            nmi: AtomicFlag::new(false),
            switches: PerCpu::new(|_cpu| Switches::new())?,
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

    /// Enables the interrupt on this CPU, from now on or from when it is [requested](request),
    /// until [`PerCpuIrq::disable`]. While the CPU is down it is disabled.
    ///
    /// It takes the lock of the interrupt's descriptor. Perf's callbacks must not wait for that:
    /// they run under locks of the scheduler. A hotplug callback may.
    ///
    /// Fails with [`EINVAL`] when the interrupt is not for this CPU, and when the interrupt
    /// controller cannot make it an NMI here.
    pub fn enable(&self, cpu: &cpuhp::Transition<'_>) -> Result {
        if !self.affinity.test(cpu.cpu()) {
            return Err(EINVAL);
        }
        self.switches.get(cpu).wanted.store(true);
        self.apply(cpu)
    }

    /// Disables the interrupt on this CPU.
    pub fn disable(&self, cpu: &cpuhp::Transition<'_>) {
        self.switches.get(cpu).wanted.store(false);
        // Only enabling can fail.
        let _ = self.apply(cpu);
    }

    /// Enables or disables the interrupt on this CPU as the switches say.
    fn apply(&self, cpu: &OnCpu<'_>) -> Result {
        let switches = self.switches.get(cpu);

        match (
            switches.wanted.load() && switches.handled.load(),
            switches.on.load(),
        ) {
            (true, false) => {
                self.switch_on(cpu)?;
                switches.on.store(true);
            }
            (false, true) => {
                self.switch_off(cpu);
                switches.on.store(false);
            }
            _ => {}
        }
        Ok(())
    }

    fn switch_on(&self, _here: &OnCpu<'_>) -> Result {
        if self.nmi.load(Relaxed) {
            // SAFETY: By the type invariant this is a per-CPU interrupt, which was requested as an
            // NMI. It is not enabled on this CPU, which is the one that this acts on.
            to_result(unsafe { bindings::prepare_percpu_nmi(self.irq) })?;
        }

        // SAFETY: By the type invariant this is a per-CPU interrupt. It acts on the CPU that calls.
        unsafe { bindings::enable_percpu_irq(self.irq, bindings::IRQ_TYPE_NONE) };
        Ok(())
    }

    fn switch_off(&self, _here: &OnCpu<'_>) {
        // SAFETY: By the type invariant this is a per-CPU interrupt. It acts on the CPU that calls.
        unsafe { bindings::disable_percpu_irq(self.irq) };

        if self.nmi.load(Relaxed) {
            // SAFETY: As above; `switch_on()` has prepared it on this CPU.
            unsafe { bindings::teardown_percpu_nmi(self.irq) };
        }
    }
}

/// Keeps `handled` of each CPU right for as long as it is registered.
///
/// When it is registered no more, or a CPU is down, then the interrupt is disabled there, whatever
/// the driver does and in whatever order the two are registered.
struct Handled(Arc<PerCpuIrq>);

#[vtable]
impl cpuhp::Callbacks for Handled {
    fn online(&self, cpu: &cpuhp::Transition<'_>) -> Result {
        self.0.switches.get(cpu).handled.store(true);
        // The kernel says when it cannot, and the CPU is of use without.
        let _ = self.0.apply(cpu);
        Ok(())
    }

    fn offline(&self, cpu: &cpuhp::Transition<'_>) {
        self.0.switches.get(cpu).handled.store(false);
        // Only enabling can fail.
        let _ = self.0.apply(cpu);
    }
}

/// Requests `irq` until `dev` is unbound. It comes to the CPUs that [enable](PerCpuIrq::enable) it.
///
/// `name` shows up in `/proc/interrupts`. An interrupt that is to be an NMI, but cannot be one,
/// becomes an ordinary one. Returns what it is.
///
/// Fails with [`EBUSY`] when this was done already, with [`EINVAL`] or [`EBUSY`] when another
/// driver has it for one of its CPUs, and like [`cpuhp::register`].
pub fn request<H: Handler, E>(
    dev: &Device<Bound>,
    irq: &Arc<PerCpuIrq>,
    name: &'static CStr,
    urgency: Urgency,
    handler: impl PinInit<H, E>,
) -> Result<Urgency>
where
    Error: From<E>,
{
    let claim = Claim::new(irq)?;
    let handler = KBox::pin_init(handler, GFP_KERNEL)?;

    devres::register::<_, Error>(
        dev,
        try_pin_init!(Registration {
            action: Action::new(claim, name, urgency, handler)?,
            handled <- cpuhp::Registration::new::<Infallible>(
                c"rust/percpu_irq:online",
                Handled(irq.clone()),
            ),
        }? Error),
        GFP_KERNEL,
    )?;
    Ok(if irq.nmi.load(Relaxed) {
        Urgency::Nmi
    } else {
        Urgency::Ordinary
    })
}

/// A handler that is registered with the kernel.
#[pin_data]
struct Registration<H: Handler> {
    // Dropped first: after that no CPU has the interrupt enabled.
    #[pin]
    handled: cpuhp::Registration<Handled>,
    action: Action<H>,
}

/// The right to request an interrupt, which one at a time has.
struct Claim(Arc<PerCpuIrq>);

impl Claim {
    fn new(irq: &Arc<PerCpuIrq>) -> Result<Self> {
        match irq.claimed.cmpxchg(false, true, Full) {
            Ok(_) => Ok(Self(irq.clone())),
            Err(_) => Err(EBUSY),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.claimed.store(false, Release);
    }
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

/// C's `request_percpu_irq_affinity()` and its like.
type Request = unsafe extern "C" fn(
    irq: c_uint,
    handler: bindings::irq_handler_t,
    name: *const c_char,
    affinity: *const bindings::cpumask,
    entries: *mut c_void,
) -> c_int;

/// What the kernel calls when the interrupt comes.
///
/// # Invariants
///
/// The kernel knows `handle::<H>` as the handler of the interrupt, with `entries`, which point to
/// `handler`.
struct Action<H: Handler> {
    claim: Claim,
    entries: PerCpu<Entry<H>>,
    // Only reached through the entries.
    _handler: Pin<KBox<H>>,
}

impl<H: Handler> Action<H> {
    fn new(
        claim: Claim,
        name: &'static CStr,
        urgency: Urgency,
        handler: Pin<KBox<H>>,
    ) -> Result<Self> {
        let irq = &claim.0;
        let entries = PerCpu::new::<_, Infallible>(|cpu| Entry {
            handler: NonNull::from(&*handler),
            cpu,
        })?;

        let request = |function: Request| {
            // SAFETY: `handle::<H>` expects an `Entry<H>` of the CPU that it runs on, which is
            // what the kernel makes of a per-CPU pointer. `entries`, what they point to and the
            // mask stay until `Self::drop()` has taken the handler away; `name` is static.
            to_result(unsafe {
                function(
                    irq.irq,
                    Some(handle::<H>),
                    name.as_char_ptr(),
                    irq.affinity.as_raw(),
                    entries.as_raw(),
                )
            })
        };

        let nmi = urgency == Urgency::Nmi && request(bindings::request_percpu_nmi).is_ok();
        if !nmi {
            request(bindings::request_percpu_irq_affinity)?;
        }
        irq.nmi.store(nmi, Relaxed);

        // INVARIANT: It was requested.
        Ok(Self {
            claim,
            entries,
            _handler: handler,
        })
    }
}

impl<H: Handler> Drop for Action<H> {
    fn drop(&mut self) {
        let irq = &self.claim.0;
        let free = if irq.nmi.load(Relaxed) {
            bindings::free_percpu_nmi
        } else {
            bindings::free_percpu_irq
        };

        // SAFETY: By the type invariant it was requested with these entries, by the counterpart of
        // `free`. No CPU has it enabled: `Handled` is not registered yet or no more. Since each CPU
        // on line has run its callback after the last time that the interrupt could come, no
        // handler is running.
        unsafe { free(irq.irq, self.entries.as_raw()) };
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
