// SPDX-License-Identifier: GPL-2.0

//! Interrupts that have been requested, and what the kernel calls when one comes.

use super::{
    Claim,
    Handler,
    IrqContext,
    Lines,
    PerCpuIrq,
    Urgency, //
};
use crate::{
    bindings,
    cpuhp,
    percpu::{
        LocalCell,
        OnCpu,
        PerCpu, //
    },
    smp, //
};
use core::{
    convert::Infallible,
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    cpu::CpuId,
    cpumask::CpumaskVar,
    error::to_result,
    ffi::{
        c_char,
        c_int,
        c_uint,
        c_ulong,
        c_void, //
    },
    irq::IrqReturn,
    prelude::*, //
};

/// What a CPU needs when the interrupt comes.
struct Entry<H: Handler> {
    handler: NonNull<H>,
    cpu: CpuId,
    /// Whether the interrupt is enabled on this CPU. The hotplug callbacks change it, which are
    /// called one at a time.
    enabled: LocalCell<bool>,
}

// SAFETY: `Handler`s are `Send` and `Sync`, and of `handler` an `Entry` only gives out `&H`. The
// rest is `Send` and `Sync` by itself.
unsafe impl<H: Handler> Send for Entry<H> {}

// SAFETY: As above.
unsafe impl<H: Handler> Sync for Entry<H> {}

/// What the kernel calls when the interrupt comes.
///
/// # Invariants
///
/// The kernel knows `handle::<H>` or `handle_pinned::<H>` as the handler of `requests`, with
/// entries of `entries`, which point to `_handler`.
pub(super) struct Action<H: Handler> {
    // The order matters: what is above is dropped before what it uses.
    requests: KVec<Request>,
    entries: PerCpu<Entry<H>>,
    // Only reached through the entries.
    _handler: Pin<KBox<H>>,
    claim: Claim,
}

impl<H: Handler> Drop for Action<H> {
    fn drop(&mut self) {
        // Those of others that share a per-CPU interrupt may have joined here as well: the kernel
        // does not free what is for a CPU that has the interrupt enabled.
        self.claim.0.routed.clear();
    }
}

impl<H: Handler> Action<H> {
    /// Requests the interrupts of `claim`. None is enabled yet.
    ///
    /// # Safety
    ///
    /// When the result is dropped each CPU must have disabled its interrupt again, after which its
    /// handler is not called any more.
    pub(super) unsafe fn new(
        claim: Claim,
        name: &'static CStr,
        urgency: Urgency,
        handler: Pin<KBox<H>>,
    ) -> Result<Self> {
        let entries = PerCpu::new::<_, Infallible>(|cpu| Entry {
            handler: NonNull::from(&*handler),
            cpu,
            enabled: LocalCell::new(false),
        })?;
        let irq = &*claim.0;
        let mut requests = KVec::new();

        for cpu in smp::cpus(irq.affinity()) {
            irq.routed.add(cpu);
        }

        match &irq.lines {
            Lines::Private {
                irq: number, nmi, ..
            } => {
                let request = private(irq, *number, name, urgency, &entries)?;
                nmi.store(request.urgency == Urgency::Nmi);
                requests.push(request, GFP_KERNEL)?;
            }
            Lines::Pinned(numbers) => {
                for cpu in smp::cpus(irq.affinity()) {
                    let number = numbers.on(cpu).load();
                    let request = pinned(number, cpu, name, urgency, entries.on(cpu))?;
                    requests.push(request, GFP_KERNEL)?;
                }
            }
        }

        // INVARIANT: They were requested.
        Ok(Self {
            requests,
            entries,
            _handler: handler,
            claim,
        })
    }

    /// The interrupt.
    #[inline]
    pub(super) fn irq(&self) -> &PerCpuIrq {
        &self.claim.0
    }

    /// Whether it is enabled on this CPU.
    #[inline]
    pub(super) fn enabled<'a>(&'a self, cpu: &'a cpuhp::Transition<'_>) -> &'a LocalCell<bool> {
        &self.entries.here(cpu).enabled
    }

    /// What came of it: an NMI if one of them is.
    pub(super) fn urgency(&self) -> Urgency {
        if self.requests.iter().any(|it| it.urgency == Urgency::Nmi) {
            Urgency::Nmi
        } else {
            Urgency::Ordinary
        }
    }
}

/// An interrupt that has been requested, which ends when this is dropped.
///
/// # Invariants
///
/// `irq` was requested with `data` by the counterpart of what `free()` calls.
struct Request {
    irq: c_uint,
    kind: Kind,
    urgency: Urgency,
    data: *mut c_void,
}

#[derive(Clone, Copy)]
enum Kind {
    Private,
    Pinned,
}

// SAFETY: `data` is only used to tell the kernel which handler goes.
unsafe impl Send for Request {}

// SAFETY: As above.
unsafe impl Sync for Request {}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this is how it was requested. No CPU has it enabled: either
        // none ever had, or `Action::new()`'s caller has seen to it; so no handler is running.
        let free = || unsafe {
            match (self.kind, self.urgency) {
                (Kind::Private, Urgency::Ordinary) => {
                    bindings::free_percpu_irq(self.irq, self.data)
                }
                (Kind::Private, Urgency::Nmi) => bindings::free_percpu_nmi(self.irq, self.data),
                (Kind::Pinned, Urgency::Ordinary) => {
                    bindings::free_irq(self.irq, self.data);
                }
                (Kind::Pinned, Urgency::Nmi) => {
                    bindings::free_nmi(self.irq, self.data);
                }
            }
        };

        #[cfg(RUST_PMU_OUT_OF_TREE)]
        if let Kind::Private = self.kind {
            // SAFETY: It was requested, and is a per-CPU interrupt.
            unsafe { crate::out_of_tree::percpu_free::while_nobody_takes(self.irq, free) };
            return;
        }
        free();
    }
}

/// Makes a request as urgent as `urgency` if possible: an interrupt that cannot be an NMI becomes
/// an ordinary one.
fn most_urgent(
    urgency: Urgency,
    nmi: impl FnOnce() -> c_int,
    ordinary: impl FnOnce() -> c_int,
) -> Result<Urgency> {
    if urgency == Urgency::Nmi && nmi() == 0 {
        return Ok(Urgency::Nmi);
    }
    to_result(ordinary()).map(|()| Urgency::Ordinary)
}

/// Requests the number that all CPUs of `irq` share.
fn private<H: Handler>(
    irq: &PerCpuIrq,
    number: c_uint,
    name: &'static CStr,
    urgency: Urgency,
    entries: &PerCpu<Entry<H>>,
) -> Result<Request> {
    /// C's `request_percpu_irq_affinity()` and its like.
    type Function = unsafe extern "C" fn(
        irq: c_uint,
        handler: bindings::irq_handler_t,
        name: *const c_char,
        affinity: *const bindings::cpumask,
        entries: *mut c_void,
    ) -> c_int;

    let data = entries.as_raw();
    let request = |function: Function| {
        // SAFETY: `handle::<H>` expects an `Entry<H>` of the CPU that it runs on, which is what the
        // kernel makes of a per-CPU pointer. The entries, what they point to and the mask stay
        // until the request is dropped, as the order of `Action`'s fields says, though the mask may
        // grow; `name` is static.
        unsafe {
            function(
                number,
                Some(handle::<H>),
                name.as_char_ptr(),
                irq.routed.as_raw(),
                data,
            )
        }
    };

    // INVARIANT: It was requested that way.
    Ok(Request {
        irq: number,
        kind: Kind::Private,
        urgency: most_urgent(
            urgency,
            || request(bindings::request_percpu_nmi),
            || request(bindings::request_percpu_irq_affinity),
        )?,
        data,
    })
}

/// Requests an interrupt for `cpu` alone, where it stays.
fn pinned<H: Handler>(
    irq: c_uint,
    cpu: CpuId,
    name: &'static CStr,
    urgency: Urgency,
    entry: &Entry<H>,
) -> Result<Request> {
    // Nobody else can have it, it is not balanced, it stays here when the CPU goes down, and it
    // starts disabled.
    const FLAGS: u32 = bindings::IRQF_PERCPU
        | bindings::IRQF_NOBALANCING
        | bindings::IRQF_NO_AUTOEN
        | bindings::IRQF_NO_THREAD
        | bindings::IRQF_COND_ONESHOT;

    let mut only = CpumaskVar::new_zero(GFP_KERNEL)?;
    only.set(cpu);

    // SAFETY: The mask is copied.
    let moved = to_result(unsafe { bindings::irq_force_affinity(irq, only.as_raw()) });
    // A controller that serves one CPU need not be able to choose.
    if smp::possible().weight() > 1 {
        moved.inspect_err(|error| {
            pr_err!(
                "cannot move interrupt {irq} to CPU {} ({error:?}): its controller has to be able \
                 to\n",
                cpu.as_u32()
            );
        })?;
    }

    let data: *mut c_void = core::ptr::from_ref(entry).cast_mut().cast();
    let flags = FLAGS as c_ulong;
    let handler: bindings::irq_handler_t = Some(handle_pinned::<H>);

    // INVARIANT: It was requested that way.
    let request = Request {
        irq,
        kind: Kind::Pinned,
        urgency: most_urgent(
            urgency,
            // SAFETY: `handle_pinned::<H>` expects an `Entry<H>`. It and what it points to stay
            // until the request is dropped, as the order of `Action`'s fields says; `name` is
            // static.
            || unsafe { bindings::request_nmi(irq, handler, flags, name.as_char_ptr(), data) },
            // SAFETY: As above.
            || unsafe {
                bindings::request_threaded_irq(irq, handler, None, flags, name.as_char_ptr(), data)
            },
        )?,
        data,
    };

    // Else an interrupt that is disabled is masked only when it comes again, and as an NMI never.
    //
    // SAFETY: The interrupt is ours.
    unsafe { bindings::irq_modify_status(irq, 0, bindings::IRQ_DISABLE_UNLAZY as c_ulong) };

    Ok(request)
}

/// # Safety
///
/// To be called by the interrupt core only, with this CPU's `Entry<H>`.
// It is the one place where the handler is inlined.
#[inline(never)]
unsafe extern "C" fn handle<H: Handler>(_irq: c_int, entry: *mut c_void) -> bindings::irqreturn_t {
    // SAFETY: `entry` is this CPU's entry; it stays until the interrupt is freed.
    let entry = unsafe { &*entry.cast::<Entry<H>>() };

    // SAFETY: The kernel handles an interrupt on the CPU that it came to, with interrupts off, and
    // our caller passes the entry of that CPU.
    let on = unsafe { OnCpu::new(entry.cpu) };

    // SAFETY: The handler is dropped after the interrupt is freed.
    let handler = unsafe { entry.handler.as_ref() };

    // INVARIANT: This is the handler.
    match handler.handle(&IrqContext(on)) {
        IrqReturn::None => bindings::irqreturn::IRQ_NONE,
        IrqReturn::Handled => bindings::irqreturn::IRQ_HANDLED,
    }
}

/// # Safety
///
/// To be called by the interrupt core only, with an `Entry<H>`.
unsafe extern "C" fn handle_pinned<H: Handler>(
    irq: c_int,
    entry: *mut c_void,
) -> bindings::irqreturn_t {
    // SAFETY: It stays until the interrupt is freed.
    let cpu = unsafe { (*entry.cast::<Entry<H>>()).cpu };

    // Only the interrupt controller keeps it on its CPU.
    if CpuId::current() != cpu {
        return bindings::irqreturn::IRQ_NONE;
    }

    // SAFETY: The interrupt core calls us, and the entry is that of this CPU.
    unsafe { handle::<H>(irq, entry) }
}
