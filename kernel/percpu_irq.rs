// SPDX-License-Identifier: GPL-2.0

//! Interrupts that each CPU has for itself: one per-CPU interrupt number, such as an arm64 PPI, or
//! an ordinary interrupt, such as an SPI, for each CPU, where it is kept.
//!
//! A driver need not know which of the two it has. A [`PerCpuIrq`] is [looked up](of_platform) for
//! a device, or in a [table of the firmware](of_gsis), [requested](request) with a [`Handler`], and
//! then enabled on each CPU by that CPU itself, in its [hotplug callback](crate::cpuhp).
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

mod action;
mod gsi;
mod lines;
mod of;

pub use self::{
    gsi::{
        of_gsis,
        Gsi, //
    },
    of::of_platform, //
};

use self::{
    action::Action,
    lines::{
        is_private,
        Joining,
        Lines, //
    }, //
};
use crate::{
    bindings,
    cpuhp,
    percpu::{
        LocalCell,
        OnCpu,
        PerCpu, //
    },
    smp::CpuSet, //
};
use core::{
    convert::Infallible,
    ops::Deref, //
};
use kernel::{
    cpumask::Cpumask,
    device::{
        Bound,
        Device, //
    },
    devres,
    irq::IrqReturn,
    prelude::*,
    sync::{
        atomic::{
            AtomicFlag,
            Full,
            Release, //
        },
        Arc, //
    }, //
};

/// Handles an interrupt of each CPU.
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
        let here = self.address(&raw const bindings::__irq_regs);

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

/// An interrupt that each CPU, or some of them, has for itself.
///
/// # Invariants
///
/// Each CPU of `affinity` has one in `lines`.
pub struct PerCpuIrq {
    lines: Lines,
    affinity: CpuSet,
    /// Those of them that the interrupt core calls our handler on, where it looks whenever a per-CPU
    /// interrupt comes: all while it is requested, else none.
    routed: CpuSet,
    /// Whether somebody has it [requested](request), or is about to.
    claimed: AtomicFlag,
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

impl PerCpuIrq {
    fn new(lines: Lines, affinity: CpuSet) -> Result<Arc<Self>> {
        // INVARIANT: The callers have collected `affinity` from what is in `lines`.
        let this = Self {
            lines,
            affinity,
            routed: CpuSet::new()?,
            claimed: AtomicFlag::new(false),
            switches: PerCpu::new(|_cpu| Switches::new())?,
        };

        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The CPUs that have this interrupt.
    pub fn affinity(&self) -> &Cpumask {
        &self.affinity
    }

    /// Adds this CPU to those that have the interrupt, if it has the one that they share.
    ///
    /// Fails with [`EINVAL`] if it does not, and if the interrupt was not looked up in a table that
    /// says so ([`of_gsis`]).
    pub fn join(&self, cpu: &cpuhp::Transition<'_>) -> Result {
        if !self.lines.may_join(cpu.cpu()) {
            return Err(EINVAL);
        }
        // INVARIANT: The line is this CPU's too.
        self.affinity.add(cpu.cpu());
        // The interrupt core looks for handlers by CPU when the interrupt comes, and that it does
        // here only once this CPU has enabled it. If somebody else has this CPU, too, then the first
        // one's handler is called, which can be: it is taken out before it goes.
        self.routed.add(cpu.cpu());
        Ok(())
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
                self.lines.enable(cpu)?;
                switches.on.store(true);
            }
            (false, true) => {
                self.lines.disable(cpu);
                switches.on.store(false);
            }
            _ => {}
        }
        Ok(())
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
/// becomes an ordinary one. Returns what it is; as an NMI if it is one on some CPU.
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

    // SAFETY: `Registration` drops it after `Handled`, which makes each CPU disable its interrupt;
    // if that is never registered then no CPU enables it.
    let action = unsafe { Action::new(claim, name, urgency, handler) }?;
    let urgency = action.urgency();

    devres::register::<_, Error>(
        dev,
        try_pin_init!(Registration {
            action,
            handled <- cpuhp::Registration::new::<Infallible>(
                c"rust/percpu_irq:online",
                Handled(irq.clone()),
            ),
        }? Error),
        GFP_KERNEL,
    )?;
    Ok(urgency)
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
