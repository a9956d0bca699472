// SPDX-License-Identifier: MIT OR Apache-2.0
// Workloads with a known call depth, and one that forks.
#include "workloads.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

// Both arm64 and x86-64 keep a frame record of two words where the frame
// pointer points: the caller's record, then the return address.
struct frame_record {
	const struct frame_record *caller;
	uint64_t return_address;
};

// Calls itself until `depth` frames are on the stack, then runs the counted
// loop in the innermost one.  The sum makes each call's result needed after it
// returns, so that none of them can become a jump.
__attribute__((noinline))
uint64_t workload_calls(uint64_t depth, uint64_t iterations)
{
	if (depth <= 1) {
		workload_loop(iterations);
		return 1;
	}
	return 1 + workload_calls(depth - 1, iterations);
}

// A return address without the signature that a function with pointer
// authentication keeps in its frame record.
static uint64_t without_signature(uint64_t address)
{
#ifdef __aarch64__
	register uint64_t lr __asm__("x30") = address;

	// xpaclri: a no-op where there is no pointer authentication.
	__asm__("hint #7" : "+r"(lr));
	return lr;
#else
	return address;
#endif
}

// Stores the return addresses on this thread's stack, the caller's own first,
// up to `capacity`, as the architecture's frame records give them.  Returns
// how many there are.
__attribute__((noinline))
size_t workload_return_addresses(uint64_t *out, size_t capacity)
{
	const struct frame_record *frame = __builtin_frame_address(0);
	size_t n = 0;

	while (frame && frame->return_address && n < capacity) {
		const struct frame_record *caller = frame->caller;

		out[n++] = without_signature(frame->return_address);
		// The stack grows down: a caller's record lies higher.
		if (caller <= frame)
			break;
		frame = caller;
	}
	return n;
}

// Runs the counted loop in a child process and waits for it.  Returns 0, or an
// errno.  The child calls nothing that is unsafe after a fork from a program
// with threads.
int workload_fork(uint64_t iterations)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return errno;
	if (pid == 0) {
		workload_loop(iterations);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : ECHILD;
}
