"""Settings of a node's part in an IMEX domain, and how the domain's nodes are found in an inventory."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gpunode.base.tables.reading import Row, table
from gpunode.settings.component import Component, matching, plain
from gpunode.settings.driver import DriverSettings, root_elsewhere


@dataclass(frozen=True)
class Known(Row):
    """Hold where IMEX' things are, and which of its words say that all is well."""

    unit: str
    nodes_file: str
    config_file: str
    channel_parameter: str
    channel_device: str
    up: str
    ready: str
    connected: str
    ready_seconds: str
    domain_seconds: str


known = table(Known, "imex.yaml")


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(plain(text)))
    except ValueError:
        raise ValueError("must be an IPv4 or IPv6 address, by which the domain's other nodes reach this one") from None


Address = Annotated[str, AfterValidator(_address)]
Domain = Annotated[
    str,
    matching(
        r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?", "a name such as 'rack1', of letters, digits, '_', '.', '-'"
    ),
]
Host = Annotated[str, matching(r"[A-Za-z0-9@_][A-Za-z0-9@_./:-]{0,252}", "a host's name")]


class ImexSettings(Component):
    """IMEX, by which GPUs of several machines map each other's memory over NVLink (GB200 NVL72 and its like): gpunode
    writes /etc/nvidia-imex/nodes_config.cfg and keeps nvidia-imex.service running; nvidia-imex comes with the driver,
    at its version. All hosts of the inventory with the same `domain` form it: set it in the group_data of their group.
    config.cfg stays as it is. A new list of nodes stops IMEX on all of them before it starts on any (docs/imex.md)."""

    enabled: bool = False
    """true: the host is a node of an IMEX domain; false: what gpunode wrote of one goes, and the service with it."""
    domain: Domain | None = None
    """Name of the domain, such as that of the inventory's group of one NVLink domain; required with `enabled`. It
    stands nowhere on the node."""
    address: Address | None = None
    """The host's address in the domain; not given: the host's `ssh_hostname`, or its name, where that is an address."""
    channel0: bool = False
    """true: the driver makes /dev/nvidia-caps-imex-channels/channel0 when it is loaded (NVreg_CreateImexChannel0=1, in
    effect at the next boot where it is loaded); all users then share one channel. false: channels are left to
    others."""
    nodes: dict[Host, Address] = Field(default_factory=dict, max_length=256)
    """Host -> address of every node of the domain, this one too, in the place of the inventory's hosts: for a domain of
    which the inventory has not all nodes."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a node without a domain, and a domain of one node, or with an address twice."""
        if not self.enabled:
            return
        if self.domain is None and not self.nodes:
            yield "domain", "is needed with imex.enabled: the name that all hosts of the NVLink domain share"
        if self.nodes:
            if len(self.nodes) == 1:
                yield "nodes", "is a domain of one node, whose GPUs need no IMEX; name every node, or leave imex out"
            yield from (("nodes", f"has {address} twice: of {hosts}") for address, hosts in twice(self.nodes))

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield a driver at another root, and a channel that no parameter of the driver's makes."""
        driver, root = others.get("driver"), root_elsewhere(others)
        if self.enabled and root is not None:
            yield "enabled", f"runs programs that need a driver at '/', and driver.root is {root!r}; leave it out"
        if not self.enabled or not self.channel0 or not isinstance(driver, DriverSettings):
            return
        name = known().channel_parameter
        if not driver.installs:
            yield "channel0", f"takes a driver of gpunode's: with another one set {name}=1 where its parameters stand"
        elif driver.module_parameters.get(name, "1") != "1":
            yield "channel0", f"is at odds with driver.module_parameters, whose {name} is another one; leave one out"


def twice(nodes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (address, the hosts that have it) of each address that several hosts have."""
    for address in sorted(set(nodes.values())):
        hosts = [host for host, own in nodes.items() if own == address]
        if len(hosts) > 1:
            yield address, ", ".join(hosts)


def address_of(host: str, settings: ImexSettings, data: Mapping[str, Any]) -> str | None:
    """Return a host's address in its domain; None where neither settings nor inventory say one.

    data: the host's, of which ssh_hostname is pyinfra's own
    """
    if settings.address is not None:
        return settings.address
    for text in (data.get("ssh_hostname"), host.rpartition("/")[2]):
        try:
            found = ipaddress.ip_address(str(text))
        except ValueError:
            continue
        # What reaches the machine from here alone, reaches it from no other node.
        if not found.is_loopback and not found.is_unspecified:
            return str(found)
    return None
