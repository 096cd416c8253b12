"""`gpunode rollout` on SIMULATED nodes: no machine is asked, and pyinfra is a small program of ours. Run as a program.

In its folder: nodes.json (node -> class that a reading finds), failing.json (nodes that stay as they are), runs (which
nodes each run was limited to, a line a run), hang (while it is there, a run does not end).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.cli.plan import Plans
from gpunode.fleet.nodes import Watch, unwatched
from gpunode.node.plan import Plan, PlannedStep

# A program of its own, as pyinfra is; --limit by pyinfra's own rules for a host that is no group.
PYINFRA = """#!{python} -IS
import fnmatch, json, os, pathlib, sys, time
folder = pathlib.Path({folder!r})
arguments = sys.argv[1:]
print("SIMULATED pyinfra", *arguments, file=sys.stderr, flush=True)
limits = [value for option, value in zip(arguments, arguments[1:]) if option == "--limit"]
known = json.loads((folder / "nodes.json").read_text())
nodes = [name for name in known if any(fnmatch.fnmatch(name, limit) for limit in limits)]
with (folder / "runs").open("a") as runs:
    runs.write(" ".join(nodes) + "\\n")
while (folder / "hang").exists():
    time.sleep(0.05)
failing = set(json.loads((folder / "failing.json").read_text())) & set(nodes)
if "crash" in failing or (failing and len(failing) == len(nodes)):
    sys.exit(1)
known.update({{name: "ok" for name in nodes if name not in failing}})
(folder / "nodes.json").write_text(json.dumps(known))
if "GPUNODE_EVENTS" in os.environ and (folder / "ended.json").exists():
    hosts = [each for each in json.loads((folder / "ended.json").read_text()) if each["name"] in nodes]
    with open(os.environ["GPUNODE_EVENTS"], "a") as told:
        told.write(json.dumps({{"kind": "ended", "hosts": hosts}}) + "\\n")
print(json.dumps({{"plan": [], "results": {{"failed_hosts": sorted(failing)}}}}))
sys.exit(1 if failing else 0)
"""


class Lab:
    """Hold a folder with an inventory of simulated nodes, gpu-1 to gpu-N, none of them as desired."""

    def __init__(self, folder: Path, nodes: int = 4, inventory: str = "fleet.py") -> None:
        self.folder, self.inventory = folder, folder / inventory
        self.inventory.parent.mkdir(exist_ok=True)
        (folder / "bin").mkdir()
        (folder / "deploys").mkdir()
        (folder / "deploys" / "gpu_node.py").touch()
        # As sys.executable, no pyinfra is beside it.
        (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (folder / "python").chmod(0o755)
        program = folder / "bin" / "pyinfra"
        program.write_text(PYINFRA.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self.ask({f"gpu-{number}": {} for number in range(1, nodes + 1)})
        self.find({f"gpu-{number}": FindingClass.DRIFT for number in range(1, nodes + 1)})
        self.fail()

    def ask(self, hosts: dict[str, dict[str, object]]) -> None:
        """Write the inventory."""
        self.inventory.write_text(f"gpu_nodes = {list(hosts.items())!r}\n")

    def find(self, classes: dict[str, FindingClass]) -> None:
        """Say what a reading finds, for nodes not named as before."""
        path = self.folder / "nodes.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, **{name: each.value for name, each in classes.items()}}))

    def fail(self, *nodes: str) -> None:
        """Say on which nodes a run fails, from now on."""
        (self.folder / "failing.json").write_text(json.dumps(nodes))

    def hang(self, hangs: bool = True) -> None:
        """Say whether runs end."""
        if hangs:
            (self.folder / "hang").touch()
        else:
            (self.folder / "hang").unlink(missing_ok=True)

    @property
    def runs(self) -> list[list[str]]:
        """Return which nodes each run was limited to."""
        path = self.folder / "runs"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def inspect(
        self,
        inventory_path: Path,
        watch: Watch = unwatched,
        seconds: float = 1,
        processes: int | None = None,
        only: Collection[str] | None = None,
        limit: Collection[str] = (),
    ) -> tuple[NodeReport, ...]:
        """Stand in for gpunode.fleet.drift.inspect."""
        found = json.loads((self.folder / "nodes.json").read_text())
        those = [name for name in found if not limit or any(fnmatch(name, each) for each in limit)]
        return tuple(
            NodeReport(
                name,
                (
                    Finding(
                        "driver",
                        FindingClass(each),
                        "loaded module",
                        "570",
                        "580",
                        remedy="run",
                        code="driver.loaded-module",
                    ),
                ),
            )
            for name, each in found.items()
            if name in (those if only is None else only)
        )

    def plans(self, inventory: Path, limit: Collection[str], scheduler: str | None = None) -> Plans:
        """Stand in for gpunode.cli.plan.live_plans: each node can be changed."""
        can = Plan((), (), (PlannedStep("driver", "load the kernel module", None, None, Disruption.nothing),))
        return {name: can for name in json.loads((self.folder / "nodes.json").read_text())}


if __name__ == "__main__":
    from gpunode import cli
    from gpunode.cli import plan
    from gpunode.fleet import drift

    lab = Lab.__new__(Lab)
    lab.folder = Path.cwd()
    drift.inspect = lab.inspect
    plan.live_plans = lab.plans
    # The pyinfra on the PATH is taken where none stands beside this.
    sys.executable = str(lab.folder / "python")
    cli.main()
