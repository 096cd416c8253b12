"""`python -m tests.mutation [--group NAME] [--path FILE] [--sample NUMBER] [--workers NUMBER] [--without NAME] ...`

Without --sample: as many of each group as GPUNODE_TEST_MUTANTS says, `all` or a number; else a sample. A sample is the
same while the code is, and hardly another where a little of it changed. Exit status 1: more survived than may.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from tests.mutation.groups import GROUPS, Group
from tests.mutation.judging import Judged, Types, Workers
from tests.mutation.mutant import Mutant
from tests.run import temporary_folder

SAMPLE = 100


def main(arguments: list[str]) -> int:
    """Judge the mutants of each group, and print a table of them."""
    names = [group.name for group in GROUPS]
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--group", action="append", choices=names)
    parser.add_argument("--path", action="append", help="mutate only this file of the groups")
    parser.add_argument("--sample", default=os.environ.get("GPUNODE_TEST_MUTANTS") or str(SAMPLE))
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("--without", action="append", default=[], help="leave out tests/unit/test_NAME.py")
    parser.add_argument("--out", type=Path, help="write how each mutant ended to this file")
    asked = parser.parse_args(arguments)
    rows, bad = [], False
    out = asked.out.open("w") if asked.out else None
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name, closing(Types(Path(name) / "types")) as types:
        for each in GROUPS:
            group = replace(each, without=frozenset(asked.without))
            if asked.group and group.name not in asked.group:
                continue
            mutants = [each for each in group.mutants() if not asked.path or each.path in asked.path]
            if asked.path and not mutants:
                continue  # Without a file it would have no tests to run, and pytest would run all.
            chosen = sample(mutants, asked.sample)
            began = time.monotonic()
            found = judged(group, chosen, asked.workers, Path(name) / group.name, types, out)
            if found is None:
                return 1
            rows.append(row(group, len(mutants), found, time.monotonic() - began))
            # A group of which nothing is judged says nothing: its operators or its paths are others by now.
            bad = bad or (not found and not asked.path) or share(found) > group.most
            for one in found:
                if one.ended == "survived":
                    print(f"survived: {one.mutant}", flush=True)
    print(
        f"{'group':12} {'mutants':>8} {'judged':>7} {'killed':>7} {'types':>6} {'time':>5} {'survived':>9} {'share':>7}"
    )
    print("\n".join(rows))
    print("mutants: FAILED: more survived than may" if bad else "mutants: all is well")
    return 1 if bad else 0


def sample(mutants: list[Mutant], size: str) -> list[Mutant]:
    """Return `all` mutants, or so many of them."""
    return mutants if size == "all" else sorted(mutants, key=lambda each: each.order)[: int(size)]


def share(found: list[Judged]) -> float:
    """Return how many survived, in per cent."""
    return 100 * sum(each.ended == "survived" for each in found) / len(found) if found else 0.0


def row(group: Group, mutants: int, found: list[Judged], seconds: float) -> str:
    """Return a group's line of the table."""
    how = Counter(each.ended for each in found)
    return (
        f"{group.name:12} {mutants:8} {len(found):7} {how['killed']:7} {how['types']:6} {how['out of time']:5} "
        f"{how['survived']:9} {share(found):6.1f} % (at most {group.most:g} %, {seconds:.0f} s)"
    )


def judged(
    group: Group, mutants: list[Mutant], number: int, folder: Path, types: Types, out: TextIO | None
) -> list[Judged] | None:
    """Return how each mutant ended, in order; None where the tests fail without one."""
    workers = Workers(number, folder, group, {each.path: None for each in mutants})
    try:
        if workers.failed:
            print("\n".join(f"fails without a mutant: {test}" for test in workers.failed))
            return None
        found = []
        for each in workers.judge(mutants):
            found.append(each)
            if out:
                print(each.ended, each.seconds, each.how, each.mutant, each.by, sep="\t", file=out, flush=True)
    finally:
        workers.end()
    found = [
        replace(each, ended="types", by="mypy")
        if each.ended == "survived" and each.mutant.path.endswith(".py") and types.refuses(each.mutant)
        else each
        for each in found
    ]
    return sorted(found, key=lambda each: (each.mutant.path, each.mutant.line))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
