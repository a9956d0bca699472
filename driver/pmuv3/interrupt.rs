// SPDX-License-Identifier: GPL-2.0

//! What happens when counters overflow.
//!
//! All counters of a CPU share one interrupt. It stays asserted until the overflow flags are
//! cleared, and the flags tell whose turn it is, so only those counters are touched.

use kernel::{
    irq::IrqReturn,
    sync::Arc, //
};

use crate::{
    counters::CounterSet,
    event::Stored,
    percpu_irq::{
        self,
        IrqContext, //
    },
    perf::{
        self,
        Active,
        Event,
        Pmu,
        Slot, //
    },
    pmu::Pmuv3, //
};

/// The handler of the overflow interrupt.
pub(crate) struct OverflowHandler(pub(crate) Arc<Pmu<Pmuv3>>);

impl percpu_irq::Handler for OverflowHandler {
    fn handle(&self, irq: &IrqContext<'_>) -> IrqReturn {
        perf::handle_interrupt(irq, || {
            let active = self.0.active(irq);
            self.0.handle_overflows(irq, &active, |overflowed| {
                self.sample(irq, &active, overflowed);
            })
        })
    }
}

impl OverflowHandler {
    /// Serves the events on the counters that overflowed.
    fn sample(&self, irq: &IrqContext<'_>, active: &Active<'_, Pmuv3>, overflowed: CounterSet) {
        for counter in overflowed.intersection(CounterSet::from_bits(active.set())) {
            let event = Slot::new(counter.index())
                .and_then(|slot| active.get(slot).map(|event| (slot, event)));
            if let Some((slot, event)) = event {
                // Perf core throttles a group as a whole: the overflow of one member may just have
                // stopped this one, which updated its count. Another overflow would make perf core
                // forget that the group is throttled, and it would never be started again.
                if !event.is_stopped() {
                    self.serve(irq, slot, event);
                }
            }
        }
    }

    fn serve(&self, irq: &IrqContext<'_>, slot: Slot, event: &Event<Pmuv3>) {
        let need = Stored::load(event).need;
        let Some(at) = self.0.find(slot, need.length) else {
            return;
        };
        at.update(event, need.length);
        let (start, sample) = event.next_period(need.length.into());
        at.set(start);
        if let Some(sample) = sample {
            event.overflow(irq, sample);
        }
    }
}
