"""Runs on a lab node: what probes start, and how long they compute. Python's standard library and strace alone."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

_STARTS = ("clone", "clone3", "fork", "vfork")


def counted(trace: str) -> tuple[int, int]:
    """Return programs and processes started, from what `strace -f` wrote of calls that succeeded.

    The first program is the shell that was given the probe: it counts as neither.
    """
    called = []
    for line in trace.splitlines():
        # A call that another process's came between is told twice: "unfinished", then "<... clone resumed>".
        if " = " in line and "<unfinished" not in line:
            _, _, call = line.partition(" ")
            called.append(call.strip().removeprefix("<... ").split("(")[0].split()[0])
    return called.count("execve") - 1, sum(called.count(name) for name in _STARTS)


def started(probe: str) -> tuple[int, int]:
    """Return programs and processes that a probe starts."""
    trace = Path("/run/gpunode-bench.trace")
    _run(["strace", "-f", "-qq", "-z", "-e", f"trace=execve,{','.join(_STARTS)}", "-o", str(trace), "sh", "-c", probe])
    return counted(trace.read_text(errors="replace"))


def processor_ms(probe: str) -> float:
    """Return a probe's processor time (user and system, of the shell and of all that it waited for)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(["sh", "-c", probe])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000, 2)


def _run(command: list[str]) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def main(folder: Path, rounds: int) -> None:
    """Measure every probe in a folder, in turns, after one turn that does not count; print JSON."""
    probes = {path.stem: path.read_text() for path in sorted(folder.glob("*.sh"))}
    counts = {name: started(probe) for name, probe in probes.items()}
    taken: dict[str, list[float]] = {name: [] for name in probes}
    for turn in range(rounds + 1):
        for name, probe in probes.items():
            milliseconds = processor_ms(probe)
            if turn:
                taken[name].append(milliseconds)
    print(json.dumps({name: {"started": counts[name], "processor_ms": taken[name]} for name in probes}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
