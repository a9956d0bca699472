/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the C and assembly workloads offer; src/lib.rs documents each. */
#ifndef WORKLOADS_H
#define WORKLOADS_H

#include <stddef.h>
#include <stdint.h>

void workload_loop(uint64_t iterations);
uint64_t workload_calls(uint64_t depth, uint64_t iterations);
size_t workload_return_addresses(uint64_t *out, size_t capacity);
int workload_fork(uint64_t iterations);

#endif
