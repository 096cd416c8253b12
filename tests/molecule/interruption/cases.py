"""One case: interrupt a run on a fresh node, clear the fault, run again, and compare with an undisturbed node."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, Run, command
from tests.molecule.interruption import faults, striker

Lived = TypeVar("Lived")
CONFIG = str(Path(__file__).with_name("config.py"))

# All that a run is to leave behind. Left out: what differs between any two machines (host key, machine-id), caches,
# the lab's own folder, and the node's lock, which names the process and the minute of the last run.
_STATE = r"""
export LC_ALL=C
echo "## packages"; dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\n'
echo "## unfinished packages"; dpkg --audit; ls /var/lib/dpkg/updates
echo "## asked for by hand"; apt-mark showmanual
echo "## files"
find /etc /usr/share/keyrings /var/lib/gpunode -type f ! -path '/etc/gpunode-lab/*' ! -path '/etc/ssh/ssh_host*' \
  ! -name machine-id ! -name ld.so.cache ! -name resolv.conf ! -name hosts ! -name hostname ! -name '*-' \
  ! -path '/var/lib/gpunode/transactions/*/*' ! -name '*.log' ! -name agent.lock -exec sha256sum {} + | sort -k 2
echo "## half-written files"; find /etc /usr /var /opt -xdev -name '*.gpunode-new*'
echo "## failed units"; systemctl list-units --state=failed --plain --no-legend
echo "## containerd"; systemctl is-active containerd; systemctl is-enabled containerd
containerd config dump | sha256sum
[ "$(date -d "$(systemctl show -p ActiveEnterTimestamp --value --timestamp=us+utc containerd)" +%s%6N)" -ge \
  "$(stat -c %.6Y /etc/containerd/config.toml | tr -d .)" ] && echo "started after its configuration was written"
echo "## module"; cat /sys/module/nvidia/version; ls /dev/nvidia0 /dev/nvidiactl
"""


@dataclass(frozen=True)
class Case:
    """Hold what is struck, where and when; `operation` is the index in the undisturbed run."""

    operation: int
    name: str
    moment: str
    fault: str

    def __str__(self) -> str:
        """Return the case as a test's name."""
        return f"{self.fault} {self.moment} {self.operation}: {self.name}"


@dataclass(frozen=True)
class Bench:
    """Hold a node and the inventory of it alone."""

    node: Node
    inventory: str

    def run(self, *options: str, **environment: str) -> Run:
        """Run the main job on this node."""
        return command("pyinfra", "-y", "--json", *options, self.inventory, "deploys/gpu_node.py", **environment)

    def state(self) -> str:
        """Return the node's state as text that is the same wherever the node is the same."""
        return lab_nodes.run(self.node, _STATE).stdout


def bench(node: Node, folder: Path) -> Bench:
    """Return a bench for `node`, its inventory in a folder of its own, named as the lab's for its group data."""
    own = folder / node.name
    own.mkdir()
    (own / "group_data").symlink_to(CHECKOUT / "inventories" / "group_data")
    (own / "lab.py").write_text(
        f"import runpy\n_found = runpy.run_path({str(CHECKOUT / 'inventories' / 'lab.py')!r})\n"
        f"nodes = [entry for entry in _found['nodes'] if entry[0] == {node.name!r}]\n"
    )
    return Bench(node, str(own / "lab.py"))


def undisturbed(bench: Bench) -> tuple[list[str], str]:
    """Return the operations' names in order, and the state in which they leave a fresh node."""
    lab_nodes.recreate(bench.node)
    run = bench.run()
    assert run.code == 0, run.printed
    names = [row["name"].split(" | ")[-1] for row in run.payload["results"]["operations"]]
    assert bench.run().operations("success") == {}
    return names, bench.state()


def lived(
    cases: Sequence[Lived], benches: Sequence[Bench], live: Callable[[Lived, Bench], str], log: Path
) -> dict[Lived, str]:
    """Live through all cases, as many at once as there are nodes, each on a node made anew; tell each to `log`."""
    free: queue.SimpleQueue[Bench] = queue.SimpleQueue()
    for one in benches:
        free.put(one)

    def contained(case: Lived) -> str:
        mine = free.get()
        try:
            verdict = live(case, mine)
        except Exception as error:
            verdict = f"the test itself failed: {type(error).__name__}: {error}"
        finally:
            free.put(mine)
        with log.open("a") as told:
            told.write(f"{case}: {verdict}\n")
        return verdict

    with ThreadPoolExecutor(len(benches)) as pool:
        return dict(zip(cases, pool.map(contained, cases), strict=True))


def _rebooted(node: Node, before: str) -> bool:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        now = lab_nodes.booted(node)
        up = lab_nodes.run(node, "systemctl is-system-running; systemctl is-active ssh").stdout.split()
        if now and now != before and up in (["running", "active"], ["degraded", "active"]):
            return True
        time.sleep(0.3)
    return False


def outcome(case: Case, bench: Bench, wanted: str) -> str:
    """Live through `case` on a fresh node; return `healed`, or what is not as after an undisturbed run."""
    lab_nodes.recreate(bench.node)
    before = lab_nodes.booted(bench.node)
    log = Path(bench.inventory).with_name("struck")
    log.unlink(missing_ok=True)
    asked = {"fault": case.fault, "operation": case.operation, "moment": case.moment}
    asked |= {"container": bench.node.container, "log": str(log)}
    struck = bench.run("--config", CONFIG, **{striker.VARIABLE: json.dumps(asked)})
    if not log.exists():
        return f"nothing was struck: exit {struck.code}: {struck.printed[-1500:]}"
    if "Traceback" in struck.printed:
        return f"the struck run ended in a traceback: {struck.printed[-3000:]}"
    if case.fault == "node rebooted" and not _rebooted(bench.node, before):
        return "the node did not come back"
    if case.fault == "disk full":
        faults.free(bench.node.container)
    return _healed(bench, wanted)


def _healed(bench: Bench, wanted: str) -> str:
    second = bench.run()
    if second.code:
        return f"the next run failed: {second.stderr[-3000:]}"
    drift = command("gpunode", "drift", "--json", bench.inventory)
    if drift.code:
        return f"the next run left drift: {drift.printed[-3000:]}"
    found = bench.state()
    if found != wanted:
        lines = set(found.splitlines()) ^ set(wanted.splitlines())
        return "the state differs: " + "; ".join(sorted(lines))[:2000]
    third = bench.run()
    if third.code or third.operations("success"):
        return f"the third run changed: {third.operations('success')}"
    return "healed"
