"""Which hosts of an inventory form an IMEX domain, and what keeps them from being one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpunode.settings.imex import address_of, twice
from gpunode.settings.model import Settings
from gpunode.settings.problems import IMEX_DOMAIN, NOT_ALIKE, Problem, written


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
