/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the abstractions need beyond the kernel's own bindings.
 *
 * Out of tree, glue/out_of_tree.mk runs bindgen over this file; in tree the same lines are added to
 * rust/bindings/bindings_helper.h.
 */

#include <linux/cpu_pm.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/namei.h>
#include <linux/perf_event.h>
#include <linux/sched/clock.h>
#include <linux/smp.h>

/* `bindgen` gets confused at certain things. */
const int RUST_CONST_HELPER_PERF_EV_CAP_SOFTWARE = PERF_EV_CAP_SOFTWARE;
