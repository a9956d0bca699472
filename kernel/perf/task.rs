// SPDX-License-Identifier: GPL-2.0

//! The task that runs on a CPU.

use crate::{
    bindings,
    percpu::OnCpu, //
};

/// Whether the task that runs on this CPU has events that it may read itself
/// ([`NewEvent::set_flags`](super::NewEvent::set_flags), `PERF_EVENT_FLAG_USER_READ_CNT`), on a
/// counter now or not.
#[inline]
pub fn task_reads_counters(cpu: &OnCpu<'_>) -> bool {
    // Perf core looks at the CPU that it runs on, which is this one.
    let _ = cpu;

    // SAFETY: Interrupts are off.
    let context = unsafe { bindings::perf_cpu_task_ctx() };

    // SAFETY: It is null or the context of this CPU's task, which cannot go while that runs here
    // with interrupts off. The number is a word of its own, which others may write.
    !context.is_null() && unsafe { (&raw const (*context).nr_user).read_volatile() } != 0
}
