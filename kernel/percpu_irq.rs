// SPDX-License-Identifier: GPL-2.0

//! Interrupts that each CPU has for itself: one per-CPU interrupt number, such as an arm64 PPI, or
//! an ordinary interrupt, such as an SPI, for each CPU, where it is kept.
//!
//! A driver need not know which of the two it has. A [`PerCpuIrq`] is [looked up](of_platform) for
//! a device, or in a [table of the firmware](of_gsis), and then [requested](request) with a
//! [`Handler`]: from then on it is enabled on each of its CPUs while that is up.
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
//! struct Hotplug;
//!
//! impl cpuhp::Callbacks for Hotplug {
//!     const NAME: &'static CStr = c"example:online";
//!
//!     fn online(&self, _cpu: &cpuhp::Transition<'_>) -> Result {
//!         // The place to prepare what interrupts: they come when this is over.
//!         Ok(())
//!     }
//!
//!     fn offline(&self, _cpu: &cpuhp::Transition<'_>) {
//!         // They do not come any more.
//!     }
//! }
//!
//! # #[allow(dead_code)]
//! fn probe(dev: &Device<Bound>, irq: Arc<PerCpuIrq>) -> Result {
//!     percpu_irq::request(dev, &irq, c"example", Urgency::Ordinary, Handler, Hotplug)?;
//!     Ok(())
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
    percpu::OnCpu,
    smp::{
        self,
        CpuSet, //
    }, //
};
use core::ops::Deref;
use kernel::{
    cpumask::Cpumask,
    device::{
        Bound,
        Device, //
    },
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
    /// Where the interrupt core calls our handler, at which it looks whenever a per-CPU interrupt
    /// comes: all that ever were in `affinity` while it is requested, else none.
    routed: CpuSet,
    /// Whether somebody has it [requested](request), or is about to.
    claimed: AtomicFlag,
}

impl PerCpuIrq {
    fn new(lines: Lines, affinity: CpuSet) -> Result<Arc<Self>> {
        // INVARIANT: The callers have collected `affinity` from what is in `lines`.
        let this = Self {
            lines,
            affinity,
            routed: CpuSet::new()?,
            claimed: AtomicFlag::new(false),
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
        // here only once this CPU has enabled it. If somebody else has this CPU, too, then the
        // first one's handler is called, which can be: it is taken out before it goes.
        self.routed.add(cpu.cpu());
        Ok(())
    }

    /// Takes this CPU out of those that have the interrupt, before it is enabled: for a CPU of
    /// which the driver finds, in the `online` of its callbacks, that it cannot handle interrupts.
    pub fn leave(&self, cpu: &cpuhp::Transition<'_>) {
        // INVARIANT: There are fewer than before.
        self.affinity.remove(cpu.cpu());
    }
}

/// An interrupt that has been requested: it is enabled on each CPU that comes, and disabled on each
/// CPU that goes, whatever the driver does.
#[pin_data]
struct Switch<H: Handler, C: cpuhp::Callbacks> {
    #[pin]
    callbacks: C,
    action: Action<H>,
}

impl<H: Handler, C: cpuhp::Callbacks> cpuhp::Callbacks for Switch<H, C> {
    const NAME: &'static CStr = C::NAME;

    #[inline]
    fn online(&self, cpu: &cpuhp::Transition<'_>) -> Result {
        self.callbacks.online(cpu)?;

        let irq = self.action.irq();
        let enabled = self.action.enabled(cpu);

        if !enabled.load() && smp::contains(&irq.affinity, cpu.cpu()) {
            match irq.lines.enable(cpu) {
                Ok(()) => enabled.store(true),
                // The kernel says why, and the CPU is of use without.
                Err(_) => irq.affinity.remove(cpu.cpu()),
            }
        }
        Ok(())
    }

    #[inline]
    fn offline(&self, cpu: &cpuhp::Transition<'_>) {
        let enabled = self.action.enabled(cpu);

        if enabled.load() {
            self.action.irq().lines.disable(cpu);
            enabled.store(false);
        }
        self.callbacks.offline(cpu);
    }
}

/// Requests `irq` until `dev` is unbound. It is enabled on each of its CPUs while that is up.
///
/// `callbacks` are those of [`cpuhp::register`]: a CPU's `online` comes before its interrupt is
/// enabled, `offline` after it was disabled.
///
/// `name` shows up in `/proc/interrupts`. An interrupt that is to be an NMI, but cannot be one,
/// becomes an ordinary one. Returns what it is; as an NMI if it is one on some CPU.
///
/// Fails with [`EBUSY`] when this was done already, with [`EINVAL`] or [`EBUSY`] when another
/// driver has it for one of its CPUs, and like [`cpuhp::register`].
pub fn request<H: Handler, C: cpuhp::Callbacks, E, F>(
    dev: &Device<Bound>,
    irq: &Arc<PerCpuIrq>,
    name: &'static CStr,
    urgency: Urgency,
    handler: impl PinInit<H, E>,
    callbacks: impl PinInit<C, F>,
) -> Result<Urgency>
where
    Error: From<E> + From<F>,
{
    let claim = Claim::new(irq)?;
    let handler = KBox::pin_init(handler, GFP_KERNEL)?;

    // SAFETY: It is dropped with its `Switch`. Once that is registered, CPUs enable the interrupt,
    // and they have disabled it when the registration has ended, or has failed half-way.
    let action = unsafe { Action::new(claim, name, urgency, handler) }?;
    let urgency = action.urgency();

    cpuhp::register(
        dev,
        try_pin_init!(Switch {
            callbacks <- callbacks,
            action,
        }? Error),
    )?;
    Ok(urgency)
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
