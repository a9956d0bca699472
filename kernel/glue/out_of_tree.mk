# SPDX-License-Identifier: GPL-2.0
#
# What the Kbuild file of a driver includes to be built out of tree, after setting
#
#   glue-module  the name of its module, which is that of its Rust root file
#
# The abstractions are compiled into the module (kernel/out_of_tree.rs). The stock kernel's
# bindings know struct perf_event and struct pmu as opaque types only, so bindgen makes bindings of
# them here, with the flags that rust/Makefile uses.

glue-src := $(src)/../../kernel/glue

# Kbuild tells rustc's environment nothing of its own.
export RUST_PMU_BINDINGS := $(abspath $(obj))/glue_bindings.rs

RUSTFLAGS_$(glue-module).o += --cfg RUST_PMU_OUT_OF_TREE

# bindgen uses clang; these flags of a kernel that was built with GCC are unknown to it. The list is
# the part of rust/Makefile's that arm64 kernels use.
glue-skip-flags := -mgeneral-regs-only -msign-return-address=% -mrecord-mcount -mabi=lp64 \
	-mstack-protector-guard% -mstrict-align -mno-strict-align -fconserve-stack \
	-fno-allow-store-data-races -fno-ipa-cp-clone -fno-ipa-sra -fno-partial-inlining \
	-fno-reorder-blocks -fno-inline-functions-called-once -fno-stack-clash-protection \
	-fmin-function-alignment=% -fstrict-flex-arrays=% -fzero-call-used-regs=% \
	-fzero-init-padding-bits=% -fsanitize=bounds-strict -fasan-shadow-offset=% \
	-fplugin-arg-arm_ssp_per_task_plugin-% -femit-struct-debug-baseonly \
	-fdiagnostics-show-context -fdiagnostics-show-context=% --param=% --param asan-% \
	-fno-isolate-erroneous-paths-dereference

glue-clang-flags = $(if $(CONFIG_CC_IS_CLANG),$(c_flags), \
	$(filter-out $(glue-skip-flags),$(c_flags)) -w --target=aarch64-linux-gnu)

# The items that the abstractions use. What these refer to comes from the kernel's bindings.
glue-types := pmu|perf_event|perf_event_attr|perf_event_attr__.*|hw_perf_event|hw_perf_event__.*
glue-types := $(glue-types)|hw_perf_event_extra|perf_addr_filters_head|perf_sample_data
glue-types := $(glue-types)|perf_sample_data__.*|perf_sample_weight|perf_sample_weight__.*
glue-types := $(glue-types)|perf_mem_data_src|perf_mem_data_src__.*|perf_regs|perf_event_state
glue-types := $(glue-types)|perf_overflow_handler_t|perf_type_id|perf_event_sample_format
glue-types := $(glue-types)|cpu_pm_event|pmu_event_list|local64_t|local_t
glue-types := $(glue-types)|perf_cpu_pmu_context|perf_event_pmu_context|perf_event_context
glue-types := $(glue-types)|perf_event_groups|perf_time_ctx
# Of these only pointers occur.
glue-opaque := perf_output_handle|perf_buffer
glue-opaque := $(glue-opaque)|perf_addr_filter_range|event_filter|perf_cgroup
glue-opaque := $(glue-opaque)|perf_callchain_entry|perf_raw_record|perf_branch_stack
glue-functions := perf_pmu_register|perf_pmu_unregister|perf_pmu_migrate_context
glue-functions := $(glue-functions)|perf_event_update_userpage|sched_clock|irq_check_status_bit
glue-functions := $(glue-functions)|smp_call_function_any|cpu_pm_register_notifier
glue-functions := $(glue-functions)|cpu_pm_unregister_notifier|kern_path|path_put
# Where the kernel has KUnit built in, the module has the tests.
glue-functions := $(glue-functions)|perf_event_create_kernel_counter|perf_event_read_value
glue-functions := $(glue-functions)|perf_event_enable|perf_event_disable
glue-functions := $(glue-functions)|perf_event_release_kernel
glue-vars := PERF_PMU_CAP_.*|PERF_EF_.*|PERF_HES_.*|PERF_ATTACH_TASK|IRQ_PER_CPU_DEVID
glue-vars := $(glue-vars)|RUST_CONST_HELPER_.*

quiet_cmd_glue_bindgen = BINDGEN $@
      cmd_glue_bindgen = \
	$(BINDGEN) $< --rust-target 1.85 --use-core --ctypes-prefix kernel::ffi --no-layout-tests \
		--no-derive-default --no-derive-copy --no-debug '.*' --no-doc-comments \
		--enable-function-attribute-detection --no-recursive-allowlist \
		--allowlist-type '$(glue-types)|$(glue-opaque)' --opaque-type '$(glue-opaque)' \
		--allowlist-function '$(glue-functions)' \
		--allowlist-var '$(glue-vars)' --raw-line 'pub use kernel::bindings::*;' \
		-o $@ -- $(glue-clang-flags) -fno-builtin -D__BINDGEN__ -DMODULE; \
	sed -Ei 's/pub const RUST_CONST_HELPER_([a-zA-Z0-9_]*)/pub const \1/g' $@

$(obj)/glue_bindings.rs: $(glue-src)/bindings.h FORCE
	$(call if_changed_dep,glue_bindgen)

targets += glue_bindings.rs
clean-files += glue_bindings.rs

$(obj)/$(glue-module).o: $(obj)/glue_bindings.rs
