"""Merge the data of each host, and validate all hosts at once: what a run, a cluster, an IMEX domain have one of."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpunode.settings.cluster import node_name
from gpunode.settings.component import Component
from gpunode.settings.imex import address_of, twice
from gpunode.settings.kubernetes import LOCAL
from gpunode.settings.layers import Merge, given, layers_of, limit
from gpunode.settings.model import RETRY, Settings, component_models, settings_from
from gpunode.settings.problems import (
    CONTRADICTION,
    HOST_NAME,
    IMEX_DOMAIN,
    NODE_NAME,
    NOT_ALIKE,
    UNKNOWN_HOST,
    Problem,
    SettingsError,
    written,
)

if TYPE_CHECKING:
    from pyinfra.api import Host

_NODE_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_ADDRESS = re.compile(r"[\w:\[][\w.:%\[\]-]{0,252}")
_HOST_NAME = re.compile(rf"{_ADDRESS.pattern}|@\w+(/[\w./:@%+=,-]{{0,252}})?")
_NO_NAME = "is no name of a host: letters, digits and . _ - : % [ ] may be in it, and it begins with none of . - %"
# What each node has for itself.
_OWN: Mapping[str, Collection[str]] = {
    "kubernetes": {
        "enabled",
        "node_name",
        "node_labels",
        "drain",
        "kubelet",
        "extended_resources",
        "expected_resources",
        "device_plugins",
    },
    "device_plugin": {"method"},
    "gpu_operator": (),
    "gpushare": (),
}


def domains(
    hosts: Mapping[str, Settings], data: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Settings], list[Problem]]:
    """Return host -> settings, each with the nodes of its domain, and every mistake in the domains.

    + data: the hosts' own, of which ssh_hostname may be an address in the domain
    """
    found, problems = dict(hosts), []
    members: dict[str, dict[str, Settings]] = {}
    for host, settings in hosts.items():
        if settings.imex.enabled and settings.imex.nodes:
            if host not in settings.imex.nodes:
                message = "does not name this host, whose own address has to stand in the list, too"
                problems.append(
                    Problem("imex.nodes", written(dict(settings.imex.nodes)), message, host=host, code=IMEX_DOMAIN)
                )
        elif settings.imex.enabled:
            members.setdefault(str(settings.imex.domain), {})[host] = settings
    for domain, every in members.items():
        addresses = {host: address_of(host, settings.imex, data.get(host, {})) for host, settings in every.items()}
        # One whose settings are wrong is none of the hosts: then it is not known who else is in the domain.
        problems += _mistakes(domain, addresses, is_whole=len(hosts) == len(data))
        problems += _drivers(every)
        nodes = {host: address for host, address in sorted(addresses.items()) if address is not None}
        for host, settings in every.items():
            found[host] = _with_nodes(settings, nodes)
    return found, problems


def in_domain(settings: Settings, known: Settings) -> Settings:
    """Return settings with the nodes that are known of the host's domain."""
    return settings if settings.imex.nodes else _with_nodes(settings, known.imex.nodes)


def _with_nodes(settings: Settings, nodes: Mapping[str, str]) -> Settings:
    imex = settings.imex.model_copy(update={"nodes": dict(nodes)})
    return settings.model_copy(update={"imex": imex})


def _mistakes(domain: str, addresses: Mapping[str, str | None], *, is_whole: bool) -> Iterator[Problem]:
    if len(addresses) == 1 and is_whole:
        (host,) = addresses
        message = (
            f"has one node, {host}, whose GPUs need no IMEX: give the domain's other hosts the same imex.domain "
            "(group_data of their group), name every node in imex.nodes, or leave imex out"
        )
        yield Problem("imex.domain", written(domain), message, host=host, code=IMEX_DOMAIN)
    for host, address in addresses.items():
        if address is None:
            message = "is missing: neither the host's name nor its ssh_hostname is an address that other nodes reach"
            yield Problem("imex.address", written(None), message, host=host, code=IMEX_DOMAIN)
    for address, names in twice({host: address for host, address in addresses.items() if address is not None}):
        host = names.split(", ")[0]
        message = f"is the address of {names}: each node of {domain} needs one of its own"
        yield Problem("imex.address", written(address), message, host=host, code=IMEX_DOMAIN)


def _drivers(every: Mapping[str, Settings]) -> Iterator[Problem]:
    """Yield each host whose driver is to be another one than the first host's: IMEX refuses a peer of another one."""
    first, model = next(iter(every.items()))
    for host, settings in every.items():
        for name in ("version", "branch"):
            here, there = getattr(settings.driver, name), getattr(model.driver, name)
            if here != there:
                message = (
                    f"must be the same for all nodes of IMEX domain {settings.imex.domain}, whose daemons talk to none "
                    f"of another version; {first} has {written(there)}"
                )
                yield Problem(f"driver.{name}", written(here), message, host=host, code=NOT_ALIKE)
                break


def check_hosts(hosts: Mapping[str, Mapping[str, Any]], foreign: Collection[str] = ()) -> dict[str, Settings]:
    """Return host -> settings; raise one SettingsError that lists every mistake of every host.

    `hosts` maps a host's name to its data, `foreign` are the names in it that are pyinfra's own.
    """
    found: dict[str, Settings] = {}
    problems: list[Problem] = []
    # Thousands of hosts have a few sets of settings between them.
    known: dict[str, Settings] = {}
    for host, data in hosts.items():
        alike = repr({name: value for name, value in data.items() if name not in foreign})
        try:
            if alike not in known:
                known[alike] = settings_from(data, foreign)
            found[host] = known[alike]
        except SettingsError as error:
            problems += (replace(problem, host=host) for problem in error.problems)
        for key, name, allowed in (("host", host, _HOST_NAME), ("ssh_hostname", data.get("ssh_hostname"), _ADDRESS)):
            if isinstance(name, str) and allowed.fullmatch(name) is None:
                problems.append(Problem(key, written(name), _NO_NAME, code=HOST_NAME))
    found, of_domains = domains(found, hosts)
    problems += map(_set_for_some, (*of_domains, *_at_odds(found), *_disagreements(found)))
    if problems:
        raise SettingsError(problems)
    return found


def _set_for_some(problem: Problem) -> Problem:
    """Return what hosts must have alike with the way out, where --set gave it to those of --limit alone."""
    if not limit() or problem.key.partition(".")[0] not in given():
        return problem
    why = "--set gave it to the hosts of --limit alone: leave out --limit, or write it into the inventory for all"
    return replace(problem, message=f"{problem.message} ({why})")


def _at_odds(settings: Mapping[str, Settings]) -> Iterator[Problem]:
    """Return the hosts whose limit on parallel disruption is not the first host's: it is one for the whole run."""
    limits = {host: found.disruption.max_parallel for host, found in settings.items()}
    first = next(iter(limits.items()), None)
    for host, most in limits.items():
        if first is not None and most != first[1]:
            message = f"must be one number for all hosts of a run; {first[0]} has {first[1]}"
            yield Problem("disruption.max_parallel", str(most), message, host=host, code=NOT_ALIKE)


def _disagreements(hosts: Mapping[str, Settings]) -> Iterator[Problem]:
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
            yield Problem("kubernetes.node_name", written(name), message, host=host, code=NODE_NAME)
        elif _NODE_NAME.fullmatch(name) is None:
            message = "is missing: the host's name in the inventory is none that a node can have"
            yield Problem("kubernetes.node_name", written(name), message, host=host, code=NODE_NAME)
        names.setdefault(name, host)
        runner = settings.kubernetes.run_on
        if runner != LOCAL and runner not in hosts:
            message = "is no host of this inventory; name a control-plane host of it, or '@local'"
            yield Problem("kubernetes.run_on", written(runner), message, tuple(hosts)[:20], host, UNKNOWN_HOST)
        if settings.device_plugin.method == "gpushare":
            yield from _schedulers(host, settings, hosts)
        for component, own in _OWN.items():
            here, model = getattr(settings, component), getattr(nodes[first], component)
            yield from _differences(component, host, here, first, model, own, "of a cluster")
    yield from _of_plugins(nodes)


def _differences(
    key: str, host: str, here: Component, first: str, model: Component, own: Collection[str], whose: str
) -> Iterator[Problem]:
    """Yield each setting below a key, but for its own ones, in which a host differs from the first of some nodes."""
    for field in type(here).model_fields:
        value, there = getattr(here, field), getattr(model, field)
        if field not in own and value != there:
            message = f"must be the same for all nodes {whose}; {first} has {written(there)}"
            yield Problem(f"{key}.{field}", written(value), message, host=host, code=NOT_ALIKE)


def _of_plugins(nodes: Mapping[str, Settings]) -> Iterator[Problem]:
    """Yield where nodes that have the same device plugin of others, or DCGM's exporter, are to have others of it."""
    firsts: dict[str, tuple[str, Component]] = {}
    for host, settings in nodes.items():
        parts: dict[str, Component] = {
            f"kubernetes.device_plugins.{name}": each for name, each in settings.kubernetes.device_plugins.items()
        }
        if settings.rdma_shared_device_plugin.enabled:
            parts["rdma_shared_device_plugin"] = settings.rdma_shared_device_plugin
        if settings.dcgm_exporter_chart.enabled:
            parts["dcgm_exporter_chart"] = settings.dcgm_exporter_chart
        for key, part in parts.items():
            first, model = firsts.setdefault(key, (host, part))
            # What a plugin offers may be another count on each node.
            own = () if key == "rdma_shared_device_plugin" else ("resources",)
            yield from _differences(key, host, part, first, model, own, "that have it")


def _schedulers(host: str, settings: Settings, hosts: Mapping[str, Settings]) -> Iterator[Problem]:
    desired = settings.gpushare.schedulers
    if settings.gpushare.scheduler == "patch" and not desired and settings.kubernetes.run_on == LOCAL:
        message = (
            "is missing: name the control-plane hosts, whose kube-scheduler is to ask the extender, or set "
            "gpushare.scheduler to 'theirs'"
        )
        yield Problem("gpushare.schedulers", written(desired), message, host=host, code=CONTRADICTION)
    for name in desired:
        if name not in hosts:
            message = f"has {written(name)} in it, which is no host of this inventory"
            yield Problem("gpushare.schedulers", written(desired), message, tuple(hosts)[:20], host, UNKNOWN_HOST)


@dataclass(frozen=True)
class HostData:
    """Hold a host's data, and the keys (`driver.branch`) of lower layers that a mapping with REPLACE has dropped."""

    data: dict[str, Any]
    dropped: tuple[str, ...] = ()


def merged(layers: Sequence[Mapping[str, Any]], plain: Mapping[str, Any]) -> HostData:
    """Return a host's data.

    + layers: the lowest first
    + plain: the data as pyinfra has them, for all that is no component's
    """
    merge, data = Merge(), dict(plain)
    for name in component_models():
        if (value := merge.component(name, layers)) is not None:
            data[name] = value
    if str(plain.get(RETRY, "")).lower() in ("1", "true", "yes"):
        data["disruption"] = merge.of(data.get("disruption"), {"retry": True}, ("disruption",))
    return HostData(data, tuple(sorted(merge.dropped)))


def overridden(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of no inventory with those of --set on top, key by key."""
    merge, components = Merge(), component_models()
    above = {name: merge.of(data.get(name), value, (name,)) for name, value in given().items() if name in components}
    return {**data, **above}


def data_of(host: Host) -> HostData:
    """Return the data of a host of pyinfra's."""
    return merged(layers_of(host), host.data.dict())
