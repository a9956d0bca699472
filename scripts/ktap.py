#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# Python, since it drives the kernel's own parser, tools/testing/kunit/kunit_parser, as a library.
"""Usage: scripts/ktap.py KUNIT <STREAM (in the workshop, called by scripts/ktap)

Reads test results in (K)TAP from stdin, one stream or several in a row, with the parser of the
kernel's own tools, which are in the folder KUNIT (tools/testing/kunit of a kernel's source). Prints
a line for each test: pass, fail or skip; its name, with the names of its suites; the reason. Tabs
are between them.
"""

import itertools
import re
import sys


def leaves(test, names):
    """Yields each test that has no tests below it, with its full name."""
    names = names + [test.name or "unnamed"]
    if not test.subtests:
        yield test, ".".join(names)
    for below in test.subtests:
        yield from leaves(below, names)


def reason(log):
    """What the diagnostic lines say, in one line."""
    lines = (re.sub(r"^[\s#]+", "", line).strip() for line in log)
    return "; ".join(line for line in lines if line)[:500]


def explained(stream, name):
    """The diagnostic lines after that of a test that failed."""
    failed = re.compile(r"\s*not ok \d+ (- )?" + re.escape(name.rsplit(".", 1)[-1]) + r"(\s|$)")
    after = itertools.dropwhile(lambda line: not failed.match(line), stream)
    next(after, None)
    return list(itertools.takewhile(lambda line: line.lstrip().startswith("#"), after))


def results(stream, parser, printer):
    """Yields result, name and reason of each test in a stream."""
    status = parser.TestStatus
    root = parser.parse_run_tests(stream, printer)
    found = [leaf for top in root.subtests for leaf in leaves(top, [])]
    if not found:
        yield "fail", "none", "no results: " + reason(stream[-5:])
    for test, name in found:
        if test.status == status.SUCCESS:
            yield "pass", name, ""
        elif test.status == status.SKIPPED:
            yield "skip", name, test.skip_reason
        else:
            # TAP has what explains a failure after its line, KTAP before it, as the parser expects.
            tap = any(line.startswith("TAP version") for line in stream)
            told = reason(explained(stream, name) if tap else test.log)
            if test.status == status.TEST_CRASHED:
                told = "; ".join(["it ended without a result"] + ([told] if told else []))
            yield "fail", name, told


def main():
    """The command line."""
    if len(sys.argv) != 2 or sys.argv[1] == "--help":
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(0 if "--help" in sys.argv else 2)
    sys.dont_write_bytecode = True
    sys.path.insert(0, sys.argv[1])
    import kunit_parser
    import kunit_printer

    streams = [[]]
    for line in sys.stdin.buffer.read().decode(errors="replace").splitlines():
        if re.match(r"K?TAP version", line) and streams[-1]:
            streams.append([])
        streams[-1].append(line)
    for stream in streams:
        for result in results(stream, kunit_parser, kunit_printer.null_printer):
            print("\t".join(field.replace("\t", " ") for field in result))


if __name__ == "__main__":
    main()
