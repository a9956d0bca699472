/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * void workload_loop(uint64_t iterations)
 *
 * The same counts as loop_aarch64.S: 10 instructions per iteration and 6
 * besides, for any iterations >= 1.  `nop` pads the prologue to that number.
 */
	.text
	.p2align 6
	.globl	workload_loop
	.type	workload_loop, @function
workload_loop:
	push	%rbp
	mov	%rsp, %rbp
	test	%rdi, %rdi
	jz	2f
1:	lea	1(%rax), %rax
	lea	1(%rcx), %rcx
	lea	1(%rdx), %rdx
	lea	1(%rsi), %rsi
	lea	1(%r8), %r8
	lea	1(%r9), %r9
	lea	1(%r10), %r10
	lea	1(%r11), %r11
	sub	$1, %rdi
	jnz	1b
2:	pop	%rbp
	ret
	.size	workload_loop, . - workload_loop

	.globl	workload_loop_end
workload_loop_end:

	.section .note.GNU-stack, "", @progbits
