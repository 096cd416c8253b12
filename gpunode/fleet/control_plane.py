"""How whoever reads an inventory's nodes, and changes none, asks their cluster: where `kubernetes.run_on` says.

Operations ask by operations/control_plane.py, within their run; this drives pyinfra as gpunode.fleet.nodes does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpunode.fleet.inventory import load_inventory
from gpunode.fleet.nodes import connected
from gpunode.kubernetes.helm.session import Run
from gpunode.kubernetes.run_on import here, over_ssh
from gpunode.settings.kubernetes import LOCAL, KubernetesSettings


@contextmanager
def reached(inventory: Path, kubernetes: KubernetesSettings) -> Iterator[Run]:
    """Give what runs helm and kubectl on this machine, or on a host of the inventory that is connected to meanwhile."""
    if kubernetes.run_on == LOCAL:
        yield here
        return
    hosts = load_inventory(inventory)
    with connected(hosts, [kubernetes.run_on]):
        actual = hosts.get_host(kubernetes.run_on)
        yield lambda command: over_ssh(kubernetes.run_on, actual, command)
