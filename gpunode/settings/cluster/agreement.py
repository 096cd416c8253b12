"""What the nodes of one run must have in common, since a cluster has one of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from gpunode.settings.cluster import node_name
from gpunode.settings.kubernetes import LOCAL
from gpunode.settings.model import Settings
from gpunode.settings.problems import Problem, written

_NODE_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
# What each node has for itself.
_OWN: Mapping[str, Collection[str]] = {
    "kubernetes": {"enabled", "node_name", "drain"}, "device_plugin": {"method"}, "gpu_operator": (), "gpushare": (),
}  # fmt: skip


def disagreements(hosts: Mapping[str, Settings]) -> Iterator[Problem]:
    """Yield every setting in which a node of a cluster differs from the first one, and names that are none or twice."""
    nodes = {host: settings for host, settings in hosts.items() if settings.kubernetes.enabled}
    first = next(iter(nodes), None)
    if first is None:
        return
    names: dict[str, str] = {}
    for host, settings in nodes.items():
        name = node_name(host, settings)
        if name in names:
            message = f"is the name of {names[name]}, too; a cluster has one node of each name"
            yield Problem("kubernetes.node_name", written(name), message, host=host)
        elif _NODE_NAME.fullmatch(name) is None:
            message = "is missing: the host's name in the inventory is none that a node can have"
            yield Problem("kubernetes.node_name", written(name), message, host=host)
        names.setdefault(name, host)
        runner = settings.kubernetes.run_on
        if runner != LOCAL and runner not in hosts:
            message = "is no host of this inventory; name a control-plane host of it, or '@local'"
            yield Problem("kubernetes.run_on", written(runner), message, tuple(hosts)[:20], host)
        if settings.device_plugin.method == "gpushare":
            yield from _schedulers(host, settings, hosts)
        yield from _differences(host, settings, first, nodes[first])


def _differences(host: str, settings: Settings, first: str, model: Settings) -> Iterator[Problem]:
    for component, own in _OWN.items():
        here, actual = getattr(settings, component), getattr(model, component)
        for field in type(here).model_fields:
            if field not in own and getattr(here, field) != getattr(actual, field):
                message = f"must be the same for all nodes of a cluster; {first} has {written(getattr(actual, field))}"
                yield Problem(f"{component}.{field}", written(getattr(here, field)), message, host=host)


def _schedulers(host: str, settings: Settings, hosts: Mapping[str, Settings]) -> Iterator[Problem]:
    desired = settings.gpushare.schedulers
    if settings.gpushare.scheduler == "patch" and not desired and settings.kubernetes.run_on == LOCAL:
        message = (
            "is missing: name the control-plane hosts, whose kube-scheduler is to ask the extender, or set "
            "gpushare.scheduler to 'theirs'"
        )
        yield Problem("gpushare.schedulers", written(desired), message, host=host)
    for name in desired:
        if name not in hosts:
            message = f"has {written(name)} in it, which is no host of this inventory"
            yield Problem("gpushare.schedulers", written(desired), message, tuple(hosts)[:20], host)
