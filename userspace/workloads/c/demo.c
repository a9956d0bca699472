// SPDX-License-Identifier: MIT OR Apache-2.0
// workload-c: a program whose profile is known before it runs.
//
//   main ─┬─ crunch ─┬─ seventy_percent
//         │          └─ twenty_percent
//         └─ tidy ───── ten_percent
//
// The three leaves run the same loop, 7 : 2 : 1 times, in short rounds: stopped
// after any round, the shares are the same.
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
// A round is short against any sampling period, and their ratio is no whole
// number: samples at even distances meet all of it.
#define UNIT 199
// Rounds in an iteration, which ends with a look at the clock.
#define ROUNDS 1000

static inline __attribute__((always_inline)) uint64_t mix(uint64_t state, uint64_t iterations)
{
	while (iterations--) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
	}
	return state;
}

NOINLINE uint64_t seventy_percent(uint64_t state)
{
	return mix(state, 7 * UNIT);
}

NOINLINE uint64_t twenty_percent(uint64_t state)
{
	return mix(state, 2 * UNIT);
}

NOINLINE uint64_t ten_percent(uint64_t state)
{
	return mix(state, UNIT);
}

NOINLINE uint64_t crunch(uint64_t state)
{
	return twenty_percent(seventy_percent(state));
}

NOINLINE uint64_t tidy(uint64_t state)
{
	return ten_percent(state) + 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int usage(void)
{
	fputs("usage: workload-c --seconds S | --iterations N\n"
	      "Spends 70 %, 20 % and 10 % of its time in seventy_percent, twenty_percent and\n"
	      "ten_percent. An iteration is 1990000 turns of the same loop. S and N are above 0.\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	uint64_t state = 88172645463325252u, done = 0, iterations = UINT64_MAX;
	double end = 0;
	char *rest;

	if (argc != 3)
		return usage();
	errno = 0;
	if (!strcmp(argv[1], "--seconds")) {
		double seconds = strtod(argv[2], &rest);

		if (*rest || !(seconds > 0 && seconds < 1e9))
			return usage();
		end = now() + seconds;
	} else if (!strcmp(argv[1], "--iterations")) {
		iterations = strtoull(argv[2], &rest, 10);
		if (errno || *rest || *argv[2] == '-' || !iterations)
			return usage();
	} else {
		return usage();
	}

	while (done < iterations && (!end || now() < end)) {
		for (int round = 0; round < ROUNDS; round++)
			state = tidy(crunch(state));
		done++;
	}
	// Printing the state keeps the compiler from dropping the work.
	printf("workload-c: %llu iterations, state %016llx\n", (unsigned long long)done,
	       (unsigned long long)state);
	return 0;
}
