"""Settings of a cluster's nodes, for tests/cases: what is refused of them, and the values that a chart gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpunode.kubernetes.dcgm_exporter import exporter
from gpunode.kubernetes.device_plugin.desired_cluster import desired_cluster
from gpunode.kubernetes.device_plugin.methods import extender, schedulers, wanted_objects
from gpunode.kubernetes.gpu_operator import operator
from gpunode.settings import Problem, Settings, SettingsError, check_hosts
from tests.support.messages import unnamed


def in_cluster(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Settings]:
    """Return the settings of hosts that are nodes of a cluster unless their data says otherwise."""
    return check_hosts(
        {name: {**data, "kubernetes": {"enabled": True, **data.get("kubernetes", {})}} for name, data in hosts.items()}
    )


def _problems(hosts: Mapping[str, Mapping[str, Any]]) -> tuple[Problem, ...]:
    try:
        in_cluster(hosts)
    except SettingsError as error:
        return error.problems
    return ()


def refused(data: dict[str, Any], names: Sequence[str] = ()) -> list[str]:
    """Return the keys of a node that are refused, and behind them what no message names of `names`."""
    found = _problems({"gpu-1": data})
    return [*(each.key for each in found), *unnamed("\n".join(map(str, found)), *names)]


def refused_of(hosts: dict[str, dict[str, Any]]) -> list[tuple[str | None, str]]:
    """Return host and key of each setting that is refused."""
    return [(each.host, each.key) for each in _problems(hosts)]


def chart_values(component: str, data: dict[str, Any], names: Sequence[str]) -> dict[str, Any] | None:
    """Return some of the values that the chart of a component gets; None where it is not asked for."""
    hosts = in_cluster({"gpu-1": data})
    charts: dict[str, Callable[[Mapping[str, Settings]], Any]] = {
        "device_plugin": desired_cluster,
        "gpu_operator": operator,
        "dcgm_exporter_chart": exporter,
    }
    found = charts[component](hosts)
    return None if found is None else {name: found.values.get(name) for name in names}


def own_objects(hosts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return gpunode's own objects, KIND/NAME -> document, without the digest of each."""
    found = wanted_objects(in_cluster(hosts))
    for each in found:
        each["metadata"].pop("annotations", None)
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def scheduler(hosts: dict[str, dict[str, Any]]) -> tuple[str | None, tuple[str, ...]]:
    """Return the address of gpushare's extender, and the hosts whose scheduler is to know of it."""
    found = in_cluster(hosts)
    asked = extender(found)
    return None if asked is None else asked.address, schedulers(found)
