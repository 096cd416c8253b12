"""The three nodes, and what the tests ask of them."""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpunode.components.runtimes.containerd.effective import effective_runtimes
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, LAB, Run, command, inventory_with
from tests.molecule.containerd.binaries import install

CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-gpunode.toml"
VERSIONS = {"gpu-1": "1.6", "gpu-2": "1.7", "gpu-3": "2"}
_SERVES = """
for i in $(seq 60); do
  state=$($ctr plugins ls 2>/dev/null | awk '($2=="cri"&&$1~/grpc/)||($2=="runtime"&&$1~/cri/){print $NF}' | sort -u)
  [ "$state" = ok ] && break; sleep 0.5
done; echo "$state"
"""


@dataclass(frozen=True)
class Machine:
    """Hold a node and the version that its unit runs."""

    node: Node
    version: str

    @property
    def folder(self) -> str:
        """Where the unit's binaries are."""
        return "/usr/bin" if self.version == "1.6" else "/opt/other"

    def out(self, script: str) -> str:
        """Run a script in the node, which must succeed; return what it printed."""
        done = lab_nodes.run(self.node, script, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_with(self, text: str | None, script: str = ":") -> None:
        """Put a file in place of all that is there, and start the daemon anew with it, by hand."""
        write = f"rm -f {CONFIG}" if text is None else f"echo {_encoded(text)} | base64 -d > {CONFIG}"
        self.out(
            "rm -rf /var/lib/gpunode/transactions/containerd* /etc/containerd/conf.d; mkdir -p /etc/containerd; "
            f"{write}; {script}; systemctl reset-failed containerd; systemctl restart containerd"
        )
        assert self.serves() == "ok"

    def serves(self) -> str:
        """Return the state of the CRI plugin."""
        return self.out(f"ctr={self.folder}/ctr; {_SERVES}").strip()

    def text(self, path: str = CONFIG) -> str:
        """Return a file."""
        return self.out(f"cat {path}")

    def fact(self, bench: Bench) -> dict[str, Any]:
        """Return what the fact says of it."""
        (found,) = _answers(json.loads(bench.facts(self.node.name).stdout))
        return dict(found)

    def merged(self) -> dict[str, Any]:
        """Return what the unit's containerd makes of its files."""
        return tomllib.loads(self._dump())

    def runtimes(self) -> tuple[str | None, dict[str, tuple[bool, str | None]]]:
        """Return the effective default and each runtime's SystemdCgroup and binary."""
        default, found = effective_runtimes(self._dump())
        return default, {runtime.name: (runtime.systemd_cgroup, runtime.binary) for runtime in found}

    def started(self) -> str:
        """Return which process the daemon is, and since when."""
        return self.out("systemctl show containerd -p ActiveState,MainPID,ExecMainStartTimestampMonotonic")

    def _dump(self) -> str:
        return self.out(f"{self.folder}/containerd --config {CONFIG} config dump 2>/dev/null")


def _answers(payload: Any) -> list[Any]:
    """Return the fact's answers, wherever pyinfra puts them."""
    if isinstance(payload, dict):
        return [payload] if "drop_ins" in payload else [item for value in payload.values() for item in _answers(value)]
    return [item for value in payload for item in _answers(value)] if isinstance(payload, list) else []


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "''"


@dataclass(frozen=True)
class Bench:
    """Run containerd's deploy with settings."""

    folder: Path

    def inventory(self, *only: str, allow: str = "restart", **containerd: object) -> str:
        """Return the path of an inventory of some nodes (all, where none is named) with settings of containerd."""
        asked = {
            "driver": {"enabled": False},
            "cuda": {"enabled": False},
            "disruption": {"allow": allow},
            "containerd": {"source": "present", **containerd},
        }
        data: dict[str, dict[str, object]] = {name: dict(asked) for name in VERSIONS}
        path = Path(inventory_with(self.folder, data))
        if only:
            path.write_text(path.read_text() + f"nodes = [row for row in nodes if row[0] in {only!r}]\n")
        named = path.rename(self.folder / "lab.py")
        if not (self.folder / "group_data").exists():
            (self.folder / "group_data").symlink_to(CHECKOUT / "inventories" / "group_data")
        return str(named)

    def run(self, *only: str, allow: str = "restart", **containerd: object) -> Run:
        """Run the main job's containerd part."""
        path = self.inventory(*only, allow=allow, **containerd)
        return command("pyinfra", "-y", "--json", path, "deploys.containerd.containerd")

    def facts(self, *only: str) -> Run:
        """Read the fact."""
        return command("pyinfra", "--json", self.inventory(*only), "fact", "facts.runtimes.Containerd")


@pytest.fixture(scope="session")
def machines() -> tuple[Machine, ...]:
    """Return the nodes, each with its containerd and NVIDIA's runtime."""
    found = tuple(Machine(node, VERSIONS[node.name]) for node in lab_nodes.nodes(LAB))
    each(found, _prepare)
    return found


def each(machines: tuple[Machine, ...], do: Callable[[Machine], object]) -> None:
    """Do something on all nodes at once."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(do, machines))


def _prepare(machine: Machine) -> None:
    install(machine.node, machine.version)
    machine.out("ln -sf /usr/sbin/runc /usr/bin/nvidia-container-runtime")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
