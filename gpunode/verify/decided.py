"""The components that are decided once: for each, what the settings desire of it, and what is to be done about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gpunode.base.decision import Decision
from gpunode.containerd import decide as containerd
from gpunode.containerd.editor import Runtimes
from gpunode.cuda import decide as cuda
from gpunode.disturbance import Disturbance
from gpunode.docker import decide as docker
from gpunode.docker.editor import Daemon
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.toolkit import decide as toolkit


def _containerd(settings: Settings, node: Node) -> Decision[Any]:
    asked, allowed = settings.containerd, Disturbance[settings.disruption.allow]
    runtimes = Runtimes(asked.default_runtime, asked.systemd_cgroup, settings.toolkit.enabled, asked.cdi)
    desired = containerd.Desired(runtimes, asked.placement, allowed, asked.version, asked.kubernetes_sysctls)
    return containerd.decide(desired, node.containerd, node.sysctls)


def _docker(settings: Settings, node: Node) -> Decision[Any]:
    asked, allowed = settings.docker, Disturbance[settings.disruption.allow]
    daemon = Daemon(asked.default_runtime, asked.systemd_cgroup, settings.toolkit.enabled, asked.cdi)
    return docker.decide(docker.Desired(daemon, allowed, asked.version), node.docker)


def _cuda(settings: Settings, node: Node) -> Decision[Any]:
    return cuda.decide(cuda.desired_of(settings, node.operating_system), node.cuda)


def _toolkit(settings: Settings, node: Node) -> Decision[Any]:
    return toolkit.decide(toolkit.desired_of(settings, node.operating_system), node.toolkit, node.driver)


# Each by the name of its settings.
DECIDED: Mapping[str, Callable[[Settings, Node], Decision[Any]]] = MappingProxyType(
    {"cuda": _cuda, "toolkit": _toolkit, "containerd": _containerd, "docker": _docker}
)


def decisions(settings: Settings, node: Node) -> dict[str, Decision[Any]]:
    """Return component -> decision, of each that is enabled; settings resolved for the node's system."""
    return {name: decide(settings, node) for name, decide in DECIDED.items() if getattr(settings, name).enabled}


__all__ = ["DECIDED", "decisions"]
