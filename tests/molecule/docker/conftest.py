"""The two nodes, and what the tests ask of them: Debian's docker, and a newer one from Docker's own repository."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cache import cache_dir
from gpunode.lab.docker_repository import build_docker_repository
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, LAB, Run, command, inventory_with

CONFIG = "/etc/docker/daemon.json"
CONFIGURE = "Configure docker: default runtime nvidia"
OVERRIDE = "/etc/systemd/system/docker.service.d/50-fault.conf"
# Debian's own, and the one that the lab's repository in Docker's shape has.
DEBIAN, DOCKER = "20.10", "26.1"
VERSIONS = {"gpu-1": DEBIAN, "gpu-2": DOCKER}
TINY = "$(tar c -C /srv/gpunode-lab/rootfs . | docker import - tiny)"


@dataclass(frozen=True)
class Machine:
    """Hold a node and the version of its docker."""

    node: Node
    version: str

    def out(self, script: str) -> str:
        """Run a script in the node, which must succeed; return what it printed."""
        done = lab_nodes.run(self.node, script, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def start_with(self, text: str | None) -> None:
        """Put a file in place of what is there, and start the daemon anew, by hand."""
        self.out("rm -f /var/lib/gpunode/transactions/docker.json; mkdir -p /etc/docker")
        self.write(text)
        # With an empty file docker 20.10 does not start.
        self.out("systemctl reset-failed docker; systemctl restart docker || ! [ -s /etc/docker/daemon.json ]")

    def write(self, text: str | None) -> None:
        """Put a file in place of what is there."""
        encoded = base64.b64encode((text or "").encode()).decode() or "''"
        self.out(f"rm -f {CONFIG}" if text is None else f"echo {encoded} | base64 -d > {CONFIG}")

    def text(self) -> str:
        """Return the file."""
        return self.out(f"cat {CONFIG}")

    def info(self) -> dict[str, Any]:
        """Return what the daemon says of itself."""
        found: dict[str, Any] = json.loads(self.out("docker info --format '{{json .}}'"))
        return found

    def started(self) -> str:
        """Return which process the daemon is, and since when."""
        return self.out("systemctl show docker -p ActiveState,MainPID,ExecMainStartTimestampMonotonic")


@dataclass(frozen=True)
class Bench:
    """Run the main job, or docker's part of it, with settings of docker."""

    folder: Path

    def inventory(
        self, *only: str, allow: str = "restart", containerd: object = "docker-repository", **docker: object
    ) -> str:
        """Return the path of an inventory of some nodes (all, where none is named) with settings of docker.

        + containerd: its source where docker is Docker's
        """
        data: dict[str, dict[str, object]] = {}
        for name in VERSIONS:
            own: dict[str, object] = {"enabled": True, **docker}
            data[name] = {"cuda": {"enabled": False}, "disruption": {"allow": allow}, "docker": own}
            if VERSIONS[name] == DOCKER:
                data[name] |= {"containerd": {"source": containerd}}
                if "source" not in docker:
                    own |= {"source": "docker-repository", "version": "26.1.5", "cdi": True}
        path = Path(inventory_with(self.folder, data))
        more = f"http://127.0.0.1:8900/{build_docker_repository(cache_dir())}"
        text = path.read_text() + (
            "for _name, _data in nodes:\n"
            "    _there = _data['repositories']\n"
            f"    _data['repositories'] = {{**_there, 'docker': {{**_there['docker'], 'url': {more!r}}}}}\n"
        )
        path.write_text(text + (f"nodes = [row for row in nodes if row[0] in {only!r}]\n" if only else ""))
        named = path.rename(self.folder / "lab.py")
        if not (self.folder / "group_data").exists():
            (self.folder / "group_data").symlink_to(CHECKOUT / "inventories" / "group_data")
        return str(named)

    def job(self, deploy: str = "deploys/gpu_node.py") -> Run:
        """Run a deploy by each node's own source of docker."""
        return command("pyinfra", "-y", "--json", self.inventory(), deploy)

    def run(self, *only: Machine, allow: str = "restart", **docker: object) -> Run:
        """Run docker's part alone, with the docker that is there."""
        path = self.inventory(*(machine.node.name for machine in only), allow=allow, source="present", **docker)
        return command("pyinfra", "-y", "--json", path, "deploys.docker.docker")


def each(machines: tuple[Machine, ...], do: Callable[[Machine], object]) -> None:
    """Do something on all nodes at once."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(do, machines))


@pytest.fixture(scope="session")
def machines() -> tuple[Machine, ...]:
    """Return the nodes."""
    return tuple(Machine(node, VERSIONS[node.name]) for node in lab_nodes.nodes(LAB))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
