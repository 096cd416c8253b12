"""Has workers judge mutants, and mypy those that no test noticed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.groups import CHECKOUT, Group
from tests.mutation.mutant import Mutant
from tests.type_check import linked

# What is copied: the source, and what tests read.
_PARTS = (
    "gpunode", "facts", "operations", "deploys", "templates", "lab", "inventories", "docs", "tests", "config.py",
    "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "uv.lock", "LICENSE",
)  # fmt: skip
# A mutant is run as root: it may write to the copy, and where everybody may, and to nothing else.
_ONLY_THERE = """
for folder in /tmp /var/tmp "$1"; do mount --bind "$folder" "$folder" || exit; done
mount -o remount,bind,ro / || exit
cd "$1/tree" && shift && exec "$@"
"""


@dataclass(frozen=True)
class Judged:
    """Hold how a mutant ended: `killed`, `survived`, `out of time`, or `types`, which mypy alone refuses."""

    mutant: Mutant
    ended: str
    by: str
    how: str
    seconds: float


class Workers:
    """Hold processes that judge mutants of a group, each in a copy of the checkout of its own."""

    def __init__(self, number: int, folder: Path, group: Group, paths: Iterable[str]) -> None:
        self._group = group
        self._tests = list(dict.fromkeys(test for path in paths for test in group.tests(path)))
        with ThreadPoolExecutor(number) as pool:
            self._processes = list(pool.map(lambda one: _started(folder / str(one)), range(number)))
            self.failed = sorted({test for found in pool.map(self._begin, self._processes) for test in found})

    def _begin(self, process: subprocess.Popen[str]) -> list[str]:
        asked = {"do": "begin", "group": self._group.name, "tests": self._tests}
        return list(_answer(process, asked)["failed"])

    def judge(self, mutants: Iterable[Mutant], anew: bool = False) -> Iterator[Judged]:
        """Yield how each mutant ends, as they end."""
        todo, lock = iter(mutants), threading.Lock()
        # None: a worker has nothing more to do.
        found: list[Judged | None] = []
        ready = threading.Semaphore(0)

        def work(process: subprocess.Popen[str]) -> None:
            try:
                while True:
                    with lock:
                        mutant = next(todo, None)
                    if mutant is None:
                        return
                    text = mutant.make()
                    if text is None:
                        continue
                    asked = {"do": "judge", "group": self._group.name, "path": mutant.path, "text": text,
                             "texts": mutant.texts, "tests": self._group.tests(mutant.path), "anew": anew}  # fmt: skip
                    answer = _answer(process, asked)
                    found.append(Judged(mutant, answer["ended"], answer["by"], answer["how"], answer["seconds"]))
                    ready.release()
            finally:
                found.append(None)
                ready.release()

        with ThreadPoolExecutor(len(self._processes)) as pool:
            running = [pool.submit(work, process) for process in self._processes]
            left = len(running)
            at = 0
            while left:
                ready.acquire()
                one = found[at]
                at += 1
                if one is None:
                    left -= 1
                else:
                    yield one
            for each in running:
                each.result()

    def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait(timeout=60)


def _answer(process: subprocess.Popen[str], asked: Mapping[str, object]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    print(json.dumps(asked), file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a worker has died: {process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def copied(folder: Path) -> Path:
    """Return a copy of the checkout below a folder, `tree`."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    for part in _PARTS:
        source = CHECKOUT / part
        if source.is_dir():
            shutil.copytree(source, tree / part)
        elif source.exists():
            shutil.copy2(source, tree / part)
    return tree


def _started(folder: Path) -> subprocess.Popen[str]:
    tree = copied(folder)
    home = folder / "home"
    home.mkdir()
    environment = {
        **os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home),
        "GPUNODE_TEST_EXAMPLES": "25", "GPUNODE_TEST_ALL": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    line = [sys.executable, "-m", "tests.mutation.worker", str(folder)]
    if os.geteuid() == 0:
        line = ["unshare", "--mount", "sh", "-c", _ONLY_THERE, "sh", str(folder), *line]
    return subprocess.Popen(line, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class Types:
    """Hold mypy's daemon on a copy of the checkout, begun when it is first asked; `make lint` refuses what it does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun = False

    def _run(self, *words: str) -> int:
        line = [sys.executable, "-m", "mypy.dmypy", "--status-file", str(self._folder / "dmypy.json"), *words]
        return subprocess.run(line, cwd=self._folder / "linked", capture_output=True, check=False).returncode

    def _begin(self) -> None:
        tree = copied(self._folder)
        folder = linked(tree, self._folder / "linked")
        if (CHECKOUT / ".mypy_cache").is_dir():
            shutil.copytree(CHECKOUT / ".mypy_cache", folder / ".mypy_cache")
        self._begun = True
        if self._run("run", "--", "--config-file", str(tree / "pyproject.toml"), "gpunode"):
            raise RuntimeError("mypy finds fault without a mutant, or cannot run: see make lint")

    def refuses(self, mutant: Mutant) -> bool:
        """Say whether mypy finds fault with a mutant; raise RuntimeError where it does without one."""
        if not self._begun:
            self._begin()
        path = self._folder / "tree" / mutant.path
        before = path.read_text()
        path.write_text(mutant.make() or before)
        found = self._run("recheck")
        path.write_text(before)
        if found not in (0, 1):
            raise RuntimeError("mypy's daemon has ended")
        return found == 1

    def close(self) -> None:
        """End the daemon."""
        if self._begun:
            self._run("stop")
