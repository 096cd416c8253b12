"""The test of a node by containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.components.smoke import InContainer
from gpunode.components.smoke import Smoke as Reading
from gpunode.facts.smoke import Smoke
from gpunode.operations.failure import OperationRefused, node_operation, require


@node_operation
def containers(reload: bool) -> Iterator[Any]:
    """Start containers on the node, fail where they do not see its GPUs as they should, and remove them again.

    A dry run starts none.

    + reload: whether systemd may be reloaded while other containers run: those that were started without links in
      /dev/char lose their GPUs by it
    """
    if host.state is None or not host.state.is_executing:
        host.noop("containers are started when the run is executed")
        return
    reading = require(host.get_fact(Smoke, reload=reload), "what containers see")
    if reading.problems:
        raise OperationRefused("\n".join(f"smoke test: {problem}" for problem in reading.problems))
    if reading.reloaded is None:
        host.log("smoke test: other containers run and disruption.allow is nothing: systemd was not reloaded")
    for note in reading.notes:
        host.log(f"smoke test: {note}")
    host.noop(
        f"a container by {reading.by} sees {', '.join(reading.devices)}{_of_driver(reading)}; one that does not ask "
        "sees none"
    )
    yield from ()


def _of_driver(reading: Reading) -> str:
    """Return what the container that asks had of the driver, for people."""
    seen = InContainer() if reading.asking is None else reading.asking.driver
    devices = [f"MIG {profile}" for gpu in seen.gpus for profile, _ in gpu.mig]
    listed = [f"{len(seen.gpus)} GPUs", *devices] if seen.gpus else []
    lists = [f"nvidia-smi lists {', '.join(listed)}"] if listed else []
    return "".join(f"; {each} there" for each in (*lists, *(f"{file} is" for file in seen.linked[:1])))
