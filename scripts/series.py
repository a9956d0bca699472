#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Makes the patch series of kernel/series; scripts/export-series calls it in the workshop.

Each file there is one patch. kernel/series/README describes the format.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


class Refused(Exception):
    """A rule that does not fit the tree, or a spec that cannot be read."""


def in_tree(text: str) -> str:
    """Leaves out what a file has for its home out of tree: the items with its `cfg`, and the `cfg`
    of their counterparts."""
    text = re.sub(r"^ *#\[cfg\(not\(RUST_PMU_OUT_OF_TREE\)\)\]\n", "", text, flags=re.M)
    lines, kept, i = text.splitlines(), [], 0
    while i < len(lines):
        if lines[i].strip() != "#[cfg(RUST_PMU_OUT_OF_TREE)]":
            kept.append(lines[i])
            i += 1
            continue
        # The item ends where a line of its own depth ends it.
        depth = re.match(" *", lines[i]).group()
        while not re.match(depth + r"(\S.*[;}]|[;})].*)$", lines[i]) or lines[i].endswith("{"):
            i += 1
        i += 1
        if kept and kept[-1] == "" and i < len(lines) and lines[i] == "":
            i += 1
    text = "".join(line + "\n" for line in kept)
    # A step of an initialiser that had nothing else in it.
    return re.sub(r"^ *_: \{\n *\},\n", "", text, flags=re.M)


class Series:
    """The files that the series touches, in a small git repository of their own."""

    def __init__(self, tree: Path, checkout: Path, repo: Path, author: str):
        self.tree, self.checkout, self.repo = tree, checkout, repo
        name, mail = re.fullmatch(r"(.+) <(.+)>", author).groups()
        self.author = author
        # Fixed dates: the same input gives the same series.
        self.env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null")
        for who in ("AUTHOR", "COMMITTER"):
            self.env[f"GIT_{who}_NAME"], self.env[f"GIT_{who}_EMAIL"] = name, mail
            self.env[f"GIT_{who}_DATE"] = "2026-01-01T00:00:00Z"

    def git(self, *args: str, data: str = "") -> None:
        subprocess.run(["git", "-C", self.repo, *args], input=data, text=True, check=True, env=self.env)

    def fetch(self, path: str) -> Path:
        """The working copy of an existing file of the tree."""
        copy = self.repo / path
        if not copy.exists():
            raise Refused(f"{path} is not in the kernel source")
        return copy

    # ---- the rules

    def copy(self, args: list[str], _block: list[str]) -> None:
        """copy FROM TO: a file of ours, or the Rust files of a folder."""
        source, target = self.checkout / args[0], self.repo / args[1]
        if not source.exists():
            raise Refused(f"{args[0]} does not exist")
        files = [source] if source.is_file() else sorted(source.rglob("*.rs"))
        for file in files:
            to = target if source.is_file() else target / file.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(in_tree(file.read_text()))

    def new(self, args: list[str], block: list[str]) -> None:
        """new FILE: the block is the file."""
        file = self.repo / args[0]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(line + "\n" for line in block))

    def insert(self, args: list[str], block: list[str], offset: int) -> None:
        file = self.fetch(args[0])
        lines = file.read_text().splitlines()
        anchor = " ".join(args[1:])
        at = [i for i, line in enumerate(lines) if line == anchor]
        if len(at) != 1:
            raise Refused(f"{args[0]} has {len(at)} lines '{anchor}', one is needed")
        text = block
        if len(args) > 1 and text and text[0].startswith("@"):
            text = (self.checkout / text[0][1:]).read_text().splitlines()
            # The file's own licence line stays at home.
            text = [line for line in text if "SPDX-License-Identifier" not in line]
        lines[at[0] + offset : at[0] + offset] = text
        file.write_text("".join(line + "\n" for line in lines))

    def after(self, args: list[str], block: list[str]) -> None:
        """after FILE LINE: the block, or with @FILE that file of ours, behind a line."""
        self.insert(args, block, 1)

    def before(self, args: list[str], block: list[str]) -> None:
        """before FILE LINE: the same in front of it."""
        self.insert(args, block, 0)

    def export(self, args: list[str], _block: list[str]) -> None:
        """export FILE SYMBOL: EXPORT_SYMBOL_GPL behind the function's or variable's definition."""
        path, symbol = args
        file = self.fetch(path)
        lines = file.read_text().splitlines()
        if any(re.match(rf"EXPORT\w*\({symbol}[,)]", line) for line in lines):
            raise Refused(f"{path} exports {symbol} already")
        name = re.escape(symbol)
        for i, line in enumerate(lines):
            if line.endswith(";") and re.match(rf"(DEFINE_PER_CPU\w*\(.*, |[a-z].*[ *]){name}\)?( = .*)?;$", line):
                end = i
                break
            # A definition begins in the first column; its type may be on the line before.
            if re.match(rf"([a-z_].*[ *])?{name}\(", line) and not line.startswith("return"):
                rest = iter(range(i, len(lines)))
                end = next((j for j in rest if lines[j].endswith(";") or lines[j].startswith("{")), len(lines))
                if end == len(lines) or lines[end].endswith(";"):
                    continue  # a declaration, or a one-line inline
                end = next(j for j in range(end, len(lines)) if lines[j] == "}")
                break
        else:
            raise Refused(f"{path} does not define {symbol}")
        lines.insert(end + 1, f"EXPORT_SYMBOL_GPL({symbol});")
        file.write_text("".join(line + "\n" for line in lines))

    # ---- a spec

    def read(self, spec: Path) -> tuple[str, list[tuple[str, list[str], list[str]]]]:
        """Splits a spec into its commit message and its rules."""
        text = spec.read_text()
        if "\n---\n" not in text:
            raise Refused("no line '---' between message and rules")
        message, body = text.split("\n---\n", 1)
        message = "\n".join(line for line in message.splitlines() if not line.startswith("#")).strip()
        rules: list[tuple[str, list[str], list[str]]] = []
        for line in body.splitlines():
            if line.startswith("|"):
                if not rules:
                    raise Refused(f"'{line}' belongs to no rule")
                rules[-1][2].append(line[1:])
            elif line.strip() and not line.startswith("#"):
                # The anchor keeps its blanks, a tab before a word among them.
                word, _, rest = line.partition(" ")
                first, _, second = rest.partition(" ")
                rules.append((word, [first, second] if second else [first], []))
        known = {"copy": 2, "new": 1, "after": 2, "before": 2, "export": 2}
        for word, args, _ in rules:
            if known.get(word) != len(args):
                raise Refused(f"'{word} {' '.join(args)}' is no rule: see kernel/series/README")
        return message, rules

    def touched(self, rules) -> list[str]:
        """The existing files that the rules change."""
        return [args[0] for word, args, _ in rules if word in ("after", "before", "export")]

    def make(self, specs: list[Path], out: Path) -> None:
        parsed = []
        for spec in specs:
            try:
                parsed.append((spec, *self.read(spec)))
            except Refused as why:
                raise Refused(f"{spec.name}: {why}") from None
        self.git("init", "-q")
        for _, _, rules in parsed:
            for path in self.touched(rules):
                if (self.tree / path).exists() and not (self.repo / path).exists():
                    (self.repo / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(self.tree / path, self.repo / path)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "pristine")
        self.git("tag", "pristine")
        for spec, message, rules in parsed:
            try:
                for word, args, block in rules:
                    getattr(self, word)(args, block)
            except Refused as why:
                raise Refused(f"{spec.name}: {why}") from None
            self.git("add", "-A")
            self.git("commit", "-q", "-F", "-", data=f"{message}\n\nSigned-off-by: {self.author}\n")
        self.git("format-patch", "-q", "--zero-commit", "--no-signature", "--abbrev=12", "-o", str(out), "pristine")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--author", required=True)
    parser.add_argument("tree", type=Path)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()

    specs = sorted((args.checkout / "kernel/series").glob("[0-9]*"))
    new = args.out.with_name(args.out.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as repo:
        try:
            Series(args.tree, args.checkout, Path(repo), args.author).make(specs, new)
        except Refused as why:
            print(f"kernel/series/{why}", file=sys.stderr)
            shutil.rmtree(new)
            return 1
    shutil.rmtree(args.out, ignore_errors=True)
    new.rename(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
