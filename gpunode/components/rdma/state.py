"""The RDMA devices of a node, by sysfs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError, Reading

_ID = re.compile(r"0x([0-9a-f]{4})", re.ASCII)
_CLASS = re.compile(r"0x([0-9a-f]{6})", re.ASCII)
# source: include/uapi/linux/if_arp.h; the words are netlink's (vishvananda/netlink, link_linux.go, encapType).
_LINK_TYPES = {"1": "ether", "32": "infiniband"}
_LONGEST = 200


@dataclass(frozen=True)
class Port:
    """Hold a port: its number, its state (`ACTIVE`, `DOWN`), its link layer (`InfiniBand`, `Ethernet`)."""

    number: int
    state: str
    link_layer: str


@dataclass(frozen=True)
class RdmaDevice:
    """Hold an RDMA device: its name, such as mlx5_0, and what it is on the bus; text is empty where nothing says it.

    address, vendor, device: of the PCI function, the last two as four hexadecimal digits; pci_class: six digits
    netdevs: (interface, link type: `ether`, `infiniband` or the kernel's number), by name
    umad, uverbs: whether the kernel made these character devices for it
    """

    name: str
    address: str = ""
    vendor: str = ""
    device: str = ""
    pci_class: str = ""
    driver: str = ""
    umad: bool = False
    uverbs: bool = False
    ports: tuple[Port, ...] = ()
    netdevs: tuple[tuple[str, str], ...] = ()

    @property
    def interface(self) -> str:
        """Return the interface by which the plugin knows the device: the first by name; empty where it has none."""
        return self.netdevs[0][0] if self.netdevs else ""

    @property
    def link_type(self) -> str:
        """Return the link type of that interface; empty where there is none."""
        return self.netdevs[0][1] if self.netdevs else ""

    def __str__(self) -> str:
        """Return `mlx5_0 (15b3:1017, mlx5_core, ib0 infiniband, port 1 ACTIVE)`."""
        ports = (f"port {port.number} {port.state}" for port in self.ports)
        known = [f"{self.vendor}:{self.device}" if self.vendor else "not on the PCI bus", self.driver]
        known.append(" ".join(filter(None, (self.interface, self.link_type))) or "no interface")
        return f"{self.name} ({', '.join(filter(None, (*known, *ports)))})"


@dataclass(frozen=True)
class Rdma(Reading):
    """Hold the RDMA devices of a node, by name.

    connection_manager: whether /dev/infiniband/rdma_cm is there
    exclusive: whether each network namespace has devices of its own, so that no pod is given the host's
    """

    devices: tuple[RdmaDevice, ...] = ()
    connection_manager: bool = False
    exclusive: bool = False


def parse_rdma(lines: list[str]) -> Rdma:
    """Parse what components/rdma/state.sh prints; raise ParseError."""
    devices: dict[str, RdmaDevice] = {}
    for name, address, vendor, device, pci_class, driver, umad, uverbs in _rows(lines, "device", 8):
        if name in devices:
            raise ParseError(f"the RDMA device {name[:80]!r} is there twice")
        devices[name] = RdmaDevice(
            name,
            address,
            _hexadecimal(_ID, vendor),
            _hexadecimal(_ID, device),
            _hexadecimal(_CLASS, pci_class),
            driver,
            umad == "yes",
            uverbs == "yes",
            ports=tuple(sorted(_ports(lines, name), key=lambda port: port.number)),
            netdevs=tuple(sorted(_netdevs(lines, name))),
        )
    strays = {
        row[0] for key, width in (("port", 4), ("netdev", 3)) for row in _rows(lines, key, width)
    } - devices.keys()
    if strays:
        raise ParseError(f"not an RDMA device: {min(strays)[:80]!r}")
    said = values(lines)
    every = tuple(devices[name] for name in sorted(devices))
    return Rdma(every, said.get("connection_manager") == "yes", said.get("shared") == "N")


def _rows(lines: list[str], key: str, width: int) -> Iterator[list[str]]:
    for text in repeated(lines, key):
        parts = text.split("\t")
        if len(parts) != width or not parts[0] or len(text) > _LONGEST:
            raise ParseError(f"not a line of an RDMA {key}: {text[:80]!r}")
        yield parts


def _hexadecimal(pattern: re.Pattern[str], text: str) -> str:
    if not text:
        return ""
    match = pattern.fullmatch(text)
    # A device of another bus (Hyper-V's) has numbers of another kind there: it is no PCI device.
    return "" if match is None else match[1]


def _ports(lines: list[str], device: str) -> Iterator[Port]:
    for name, number, state, layer in _rows(lines, "port", 4):
        if name == device:
            if not (number.isascii() and number.isdigit()):
                raise ParseError(f"not the number of a port: {number[:80]!r}")
            # `4: ACTIVE`
            yield Port(int(number), state.partition(": ")[2] or state, layer)


def _netdevs(lines: list[str], device: str) -> Iterator[tuple[str, str]]:
    for name, interface, kind in _rows(lines, "netdev", 3):
        if name == device:
            yield interface, _LINK_TYPES.get(kind, kind)
