"""Runs that die at a random moment, with somebody at work between that and the next run: nothing of his is lost.

Three ways to die (the controller, the transaction's unit on the node, the node itself), and what happens then: somebody
edits files by hand, the clock steps by an hour, a second controller begins at once. Seeded: the same moments each time,
as far as a machine is as fast as the last time. Four of twenty by default, all with GPUNODE_TEST_ALL=1.

SIMULATED: GPUs; and the clock, which a container shares with its host: date(1) alone says another hour.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import ALL, CHECKOUT, command, report
from tests.molecule.interruption.cases import Bench, bench, lived

KILLS = 20
_SAMPLE = 2
_DEATHS = ("controller killed", "unit killed", "node rebooted")
_MEANWHILE = ("edited by hand", "clock an hour ahead", "clock an hour behind", "second controller")
# Configuration that is somebody's before gpunode comes. All of it is his; gpunode adds to the first two.
_THEIRS = ("/etc/containerd/config.toml", "/etc/nvidia-container-runtime/config.toml")
_FOREIGN = ("/etc/modprobe.d/site.conf", "/etc/apt/sources.list.d/site.sources", "/etc/sysctl.d/99-site.conf")
_PREPARED = """
set -e
mkdir -p /etc/containerd /etc/nvidia-container-runtime
printf '# kept by hand\\nversion = 2\\n[plugins."io.containerd.grpc.v1.cri"]\\n  sandbox_image = "pause:here"\\n' \\
  > /etc/containerd/config.toml
printf '# kept by hand\\ndisable-require = false\\n' > /etc/nvidia-container-runtime/config.toml
echo '# kept by hand' | tee /etc/modprobe.d/site.conf /etc/sysctl.d/99-site.conf > /etc/apt/sources.list.d/site.sources
"""
# The unit of a transaction that is under way, as a user kills a process that hangs.
_KILL_UNIT = "systemctl kill --signal=KILL 'gpunode-*.service' 2>/dev/null; pkill -KILL -x apt-get; true"
_CLOCK = """
cp -p /bin/date /usr/local/lib/date.real
cat > /usr/local/bin/date <<'END'
#!/bin/sh
case " $* " in *" -d"*|*" --date"*|*" -r"*|*" -s"*) exec /usr/local/lib/date.real "$@";; esac
exec /usr/local/lib/date.real -d "SHIFT hour" "$@"
END
chmod 755 /usr/local/bin/date
"""
_SECONDS = 600


@dataclass(frozen=True)
class Kill:
    """Hold when a run dies (as a share of a whole run's time), how, and what happens then."""

    number: int
    share: float
    death: str
    meanwhile: str

    def __str__(self) -> str:
        """Return it as a line of the report."""
        return f"{self.number}: {self.death} at {self.share:.2f} of the run, then {self.meanwhile}"


def kills(number: int) -> list[Kill]:
    """Return that many, drawn at random, the same each time; each death and each event is among four."""
    drawn = random.Random(2026)
    return [
        Kill(turn, drawn.uniform(0.1, 0.9), _DEATHS[turn % len(_DEATHS)], _MEANWHILE[turn % len(_MEANWHILE)])
        for turn in range(number)
    ]


def started(mine: Bench) -> subprocess.Popen[str]:
    """Begin the main job as a program of its own, which can be killed."""
    return subprocess.Popen(
        [Path(sys.executable).parent / "pyinfra", "-y", mine.inventory, "deploys/gpu_node.py"],
        cwd=CHECKOUT, env={**os.environ, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def on(node: Node, script: str) -> str:
    return lab_nodes.run(node, script, timeout=120).stdout


def digests(node: Node, *paths: str) -> dict[str, str]:
    """Return path -> SHA-256 of the files that are there."""
    lines = (line.split(None, 1) for line in on(node, f"sha256sum {' '.join(paths)} 2>/dev/null").splitlines())
    return {path: digest for digest, path in lines}


def died(kill: Kill, mine: Bench, seconds: float) -> None:
    """Let a run die, and what of it runs on the node come to its end."""
    run = started(mine)
    time.sleep(kill.share * seconds)
    if kill.death == "controller killed":
        os.killpg(run.pid, signal.SIGKILL)
    elif kill.death == "unit killed":
        on(mine.node, _KILL_UNIT)
    else:
        lab_nodes.reboot(mine.node)
    run.communicate(timeout=_SECONDS)


def edited(kill: Kill, node: Node) -> dict[str, str]:
    """Write a line of somebody's into each file that is his; return path -> digest."""
    for path in _THEIRS:
        on(node, f"[ ! -e {path} ] || echo '# written meanwhile, {kill.number}' >> {path}")
    return digests(node, *_THEIRS)


def lost(node: Node, left: dict[str, str], number: int) -> list[str]:
    """Return which of his edits are found nowhere: neither in the file nor, to the byte, as FILE.gpunode-lost."""
    found = []
    for path, digest in left.items():
        kept = digests(node, f"{path}.gpunode-lost*").values()
        if f"written meanwhile, {number}" not in on(node, f"cat {path}") and digest not in kept:
            found.append(f"{path}: what was written into it meanwhile")
    return found


def outcome(kill: Kill, mine: Bench, seconds: float) -> str:
    """Live through one on a fresh node; return `healed`, or what is wrong."""
    lab_nodes.recreate(mine.node)
    on(mine.node, _PREPARED)
    before = digests(mine.node, *_FOREIGN)
    assert len(before) == len(_FOREIGN), before
    died(kill, mine, seconds)
    left: dict[str, str] = {}
    second: subprocess.Popen[str] | None = None
    if kill.meanwhile == "edited by hand":
        left = edited(kill, mine.node)
    elif kill.meanwhile == "second controller":
        second = started(mine)
    else:
        on(mine.node, _CLOCK.replace("SHIFT", "+1" if kill.meanwhile.endswith("ahead") else "-1"))
    run = mine.run()
    if second is not None:
        # Of two at once each does its work, or says who else is at work.
        said, _ = second.communicate(timeout=_SECONDS)
        if "Traceback" in said + run.printed:
            return f"a traceback: {(said + run.printed)[-3000:]}"
        run = mine.run()
    if run.code:
        return f"the next run failed: {run.printed[-3000:]}"
    drift = command("gpunode", "drift", "--json", mine.inventory)
    if drift.code:
        return f"the next run left drift: {drift.printed[-3000:]}"
    again = mine.run()
    if again.code or again.operations("success"):
        return f"the run after it changed: {again.operations('success')}"
    gone = [path for path, digest in before.items() if digests(mine.node, path).get(path) != digest]
    gone += [path for path in _THEIRS if "# kept by hand" not in on(mine.node, f"cat {path} {path}.gpunode-lost*")]
    gone += lost(mine.node, left, kill.number)
    return f"lost: {', '.join(gone)}" if gone else "healed"


@pytest.mark.node
@pytest.mark.simulated
def test_after_a_death_at_a_random_moment_nothing_of_a_user_s_is_lost(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (tmp_path / "kills").mkdir()
    benches = [bench(node, tmp_path / "kills") for node in nodes]
    lab_nodes.recreate(benches[0].node)
    on(benches[0].node, _PREPARED)
    begun = time.monotonic()
    undisturbed = started(benches[0])
    said, _ = undisturbed.communicate(timeout=_SECONDS)
    seconds = time.monotonic() - begun
    assert undisturbed.returncode == 0, said
    log = report("kills.txt")
    drawn = kills(KILLS if ALL else _SAMPLE)
    results = lived(drawn, benches, lambda kill, mine: outcome(kill, mine, seconds), log)
    assert {str(kill): verdict for kill, verdict in results.items() if verdict != "healed"} == {}, log.read_text()
