# SPDX-License-Identifier: GPL-2.0
#
# The front door. Each target calls one script, which can be run alone and has --help.

.DEFAULT_GOAL := help
.PHONY: help demo test bench parity fuzz shell driver kernel qemu userspace series lint clean distclean
# The scripts use every CPU by themselves and share build trees.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

ifneq ($(filter-out help demo test bench parity fuzz shell driver kernel qemu userspace series lint clean distclean,$(MAKECMDGOALS)),)
$(error no target '$(firstword $(filter-out help demo test bench parity fuzz shell driver kernel qemu userspace series lint clean distclean,$(MAKECMDGOALS)))': `make help` lists what there is)
endif

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo
	@echo '  Each script in scripts/ has --help; scripts/guest runs any command in a fresh guest.'

demo: ## profile two workloads on Debian's arm64 kernel through the Rust driver
	@scripts/demo

test: ## run every test; T=PATTERN runs those whose name matches, LIST=1 only lists them
	@scripts/test
test: export T := $(T)
test: export LIST := $(LIST)

bench: ## measure the Rust driver beside the C one, in guest instructions
	@scripts/bench

parity: ## compare the Rust driver with the C driver, line by line
	@scripts/parity

fuzz: ## random operations on perf events on the debug kernel, for T=SECONDS (default 60)
	@scripts/fuzz --seconds $(or $(T),60)

shell: ## an interactive guest with the driver loaded, the tools, and build/share as /share
	@mkdir -p build/share
	@scripts/guest --interactive --share build/share

driver: ## rust_pmuv3.ko for Debian's kernel
	@scripts/driver

kernel: ## the lab kernels, release and debug
	@scripts/kernel release
	@scripts/kernel debug

qemu: ## the test machine: Debian's QEMU with the patches of qemu/patches
	@scripts/qemu

userspace: ## the tools, tests and workloads that run in the guest
	@scripts/userspace

series: ## the in-tree patch series, in build/series
	@scripts/export-series

lint: ## formatters, linters and style checks over everything
	@scripts/lint

clean: ## remove build/
	@rm -rf build

distclean: clean ## remove build/ and the cache that all checkouts share
	@. scripts/lib.sh && remove "$$CACHE"
distclean: SHELL := /bin/bash
