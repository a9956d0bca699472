/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * void workload_loop(uint64_t iterations)
 *
 * Retires exactly 10 instructions per iteration and 6 besides, for any
 * iterations >= 1: 4 up to the loop, 2 after it.  Nothing in the loop touches
 * memory, so that no cache or TLB event disturbs it.
 * A frame record is set up at once, so that a sample in the loop has its
 * caller next in the chain.
 */
	.text
	.p2align 6
	.globl	workload_loop
	.type	workload_loop, %function
workload_loop:
	hint	#34			// bti c: a no-op where there is no BTI
	stp	x29, x30, [sp, #-16]!
	mov	x29, sp
	cbz	x0, 2f
1:	add	x9, x9, #1
	add	x10, x10, #1
	add	x11, x11, #1
	add	x12, x12, #1
	add	x13, x13, #1
	add	x14, x14, #1
	add	x15, x15, #1
	add	x16, x16, #1
	subs	x0, x0, #1
	b.ne	1b
2:	ldp	x29, x30, [sp], #16
	ret
	.size	workload_loop, . - workload_loop

	.globl	workload_loop_end
workload_loop_end:

	.section .note.GNU-stack, "", %progbits
