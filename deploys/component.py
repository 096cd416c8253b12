"""What every deploy of ours shares: it runs alone or within gpu_node.py, on accepted nodes only, and fails alone.

An exception that leaves a deploy body aborts every host of the run (pyinfra 3.10); here it becomes a failing operation
of the one host.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from pyinfra import host
from pyinfra.api import Host
from pyinfra.api.deploy import deploy
from pyinfra.context import ctx_host

from facts.node import Node
from gpunode.node import Node as NodeReading
from gpunode.preflight import cautions, refusals
from gpunode.reading import Unknown
from gpunode.settings import Settings, settings_from
from operations.refusal import refuse

# Only what the run itself does not change is read from it: system, architecture, GPUs.
_seen: WeakKeyDictionary[Host, NodeReading | None] = WeakKeyDictionary()


def accepted() -> bool:
    """Say whether this node can become what its settings ask; one that cannot gets one operation, the refusal."""
    current = ctx_host.get()
    if current in _seen:
        return _seen[current] is not None
    _seen[current] = None
    reading = host.get_fact(Node)
    if isinstance(reading, Unknown):
        refuse(name="Refuse this node", reasons=[f"preflight: {reading.reason}"])
        return False
    found = refusals(settings(), reading.operating_system, reading.pci.gpus, reading.driver)
    if found:
        refuse(name="Refuse this node", reasons=[str(item) for item in found])
        return False
    for item in cautions(settings(), reading.pci.gpus, reading.driver):
        host.log(f"caution: {item}")
    _seen[current] = reading
    return True


def settings() -> Settings:
    """Return this host's validated settings."""
    return settings_from(host.data.dict())


def node() -> NodeReading:
    """Return what the accepted node was at the start of the run; good for what a run does not change."""
    current = ctx_host.get()
    reading = _seen[current]
    if reading is None:
        raise RuntimeError(f"{host.name} was not accepted")
    return reading


def component(title: str) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Make a deploy of a function that names one component's operations."""

    def decorate(function: Callable[[], None]) -> Callable[..., Any]:
        @deploy(title)
        @wraps(function)
        def contained() -> None:
            try:
                if accepted():
                    function()
            except Exception as error:
                refuse(name=f"Give up on {title}", reasons=[f"{type(error).__name__}: {error}"])

        return contained

    return decorate
