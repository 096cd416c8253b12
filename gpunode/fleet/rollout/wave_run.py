"""A wave's run: pyinfra on the wave's nodes alone, its output in files beside the journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpunode.fleet.rollout.gate import RunResult
from gpunode.fleet.rollout.journal import JournalError
from gpunode.fleet.rollout.place import name_holder, run_lock
from gpunode.fleet.rollout.progress import Wave
from gpunode.fleet.run import child
from gpunode.fleet.run.child import Files, Watch, command
from gpunode.fleet.run.ends import how_it_ended
from gpunode.kubernetes.drain import WAVE


@dataclass(frozen=True)
class WaveRunner:
    """Run waves of one inventory.

    folder: of the inventory's rollouts, where the lock is; files: where this rollout's logs go; watch: how far a wave
    is
    """

    pyinfra: str
    inventory: str
    groups: Collection[str]
    folder: Path
    files: Path
    tell: Callable[[str], None]
    watch: Watch = child.unwatched

    def run(self, wave: Wave) -> RunResult:
        """Run the main job on the wave's nodes, to its end; raise JournalError where nothing can be written."""
        log, output = log_of(self.files, wave.number), self.files / f"wave-{wave.number}.json"
        files = Files(log, output, self.files / f"wave-{wave.number}.events")
        words = command(self.pyinfra, self.inventory, wave.nodes, self.groups)
        what = f"a wave of `gpunode rollout {self.inventory}`"
        with run_lock(self.folder, self.tell, what) as lock:
            try:
                code, _ = child.run(
                    words,
                    files,
                    lock,
                    len(wave.nodes),
                    {WAVE: str(len(wave.nodes))},
                    self.watch,
                    partial(name_holder, lock, what=what),
                )
            except OSError as error:
                raise JournalError(f"{error.filename or self.pyinfra}: {error.strerror}") from None
        return result(wave.nodes, code, output.read_bytes(), str(log))


def log_of(files: Path, number: int) -> Path:
    """Return the file that gets what pyinfra logs of a wave."""
    return files / f"wave-{number}.log"


def result(nodes: Sequence[str], code: int, printed: bytes, log: str) -> RunResult:
    """Return on which of the wave's nodes the run failed, by pyinfra's exit code and JSON.

    pyinfra prints none where no host was left, or anything else ended it: then no node counts as done, whatever it
    exits. By SIGINT it exits 0.
    """
    try:
        failed = frozenset(json.loads(printed)["results"]["failed_hosts"])
    except (ValueError, KeyError, TypeError):
        return RunResult(frozenset(nodes), f"the run was cut off, {how_it_ended(code)} without its results: {log}")
    if code == 0 and not failed:
        return RunResult()
    # It failed, and on none of ours that it would name.
    return RunResult(failed & set(nodes) or frozenset(nodes), f"the run failed on it: {log}")
