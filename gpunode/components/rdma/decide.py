"""The RDMA devices of a node, and whether the RDMA shared device plugin finds one for each of its resources.

It is a person's to mend: gpunode brings no driver of RDMA devices. The plugin itself says nothing of it to the cluster:
it offers 0 of such a resource, with a warning in its log, and pods wait.
source: Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, pkg/resources/resources_manager.go, pci_net_device.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base.comparison import BY_HAND, by_hand, finding_message
from gpunode.base.decision import Decision
from gpunode.base.findings import Finding
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.settings.rdma import RdmaResource, RdmaSharedDevicePluginSettings

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
    netdevs = list(_rows(lines, "netdev", 3))
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
            netdevs=tuple(sorted((row[1], _LINK_TYPES.get(row[2], row[2])) for row in netdevs if row[0] == name)),
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


COMPONENT = "rdma_shared_device_plugin"
# Of the PCI class alone that the plugin looks at: network controllers.
_NETWORK = "02"
_FEW = 5

_EXCLUSIVE = (
    "RDMA devices are each network namespace's own (netns mode exclusive), by which the plugin ends at once. Remedy: "
    "set `rdma system set netns shared`, and netns_mode=1 for ib_core at boot"
)
_LACKS = (
    "{name}: {lacks}, without which the plugin passes over a device. Remedy: load ib_umad, ib_uverbs and rdma_ucm, now "
    "and at boot"
)
_NONE_FITS = (
    "{name}: no RDMA device of the node fits {selectors}; it has {devices}. Remedy: change the selectors in "
    "rdma_shared_device_plugin.resources, set rdma_shared_device_plugin.enabled = False for this host, or load the "
    "devices' driver"
)
MODE = finding_message(
    COMPONENT,
    "RDMA network namespace mode",
    "RDMA devices are in another network namespace mode than the plugin needs.",
    "In the exclusive mode a device belongs to one network namespace, and pods cannot share it.",
    causes=(_EXCLUSIVE,),
    remedies=(BY_HAND,),
)
DEVICES = finding_message(
    COMPONENT,
    "RDMA devices of",
    "The node lacks RDMA devices that a resource is to offer.",
    "The plugin would offer fewer of them, or none, and report it nowhere.",
    name="rdma-devices",
    causes=(_LACKS, _NONE_FITS),
    remedies=(BY_HAND,),
)


def decide(desired: RdmaSharedDevicePluginSettings, actual: Rdma) -> Decision[None]:
    """Return whether each of the plugin's resources has a device on the node; there is no step that brings one."""
    if not desired.enabled:
        return Decision(())
    mode = MODE.compared("exclusive" if actual.exclusive else "shared", "shared", not actual.exclusive)
    findings = (by_hand(mode, _EXCLUSIVE), *(_resource(name, each, actual) for name, each in desired.resources.items()))
    refusal = "\n".join(f"{item.cause}. Remedy: {item.remedy}" for item in findings if item.cause is not None)
    return Decision(findings, (), refusal or None)


def _resource(name: str, resource: RdmaResource, actual: Rdma) -> Finding:
    fitting = tuple(matching(resource, actual))
    usable = [each for each in fitting if not lacks(each, actual)]
    said = ", ".join(each.name for each in usable[:_FEW]) + (" …" if len(usable) > _FEW else "")
    item = DEVICES.compared(said or None, said or "a device", bool(usable), of=name)
    return by_hand(item, _cause(name, resource, fitting, actual))


def matching(resource: RdmaResource, actual: Rdma) -> Iterator[RdmaDevice]:
    """Yield the devices that a resource's selectors take: by one entry of each selector that is given."""
    for each in actual.devices:
        has = {
            "vendors": each.vendor,
            "deviceIDs": each.device,
            "drivers": each.driver,
            "ifNames": each.interface,
            "linkTypes": each.link_type,
        }
        on_bus = bool(each.address) and each.pci_class.startswith(_NETWORK)
        if on_bus and all(has[name] in values for name, values in resource.selectors.items()):
            yield each


def lacks(device: RdmaDevice, actual: Rdma) -> str:
    """Return which of the character devices that the plugin gives to pods the node has not; empty: none is missing."""
    there = {"umad": device.umad, "uverbs": device.uverbs, "rdma_cm": actual.connection_manager}
    return ", ".join(name for name, has in there.items() if not has)


def _cause(name: str, resource: RdmaResource, fitting: tuple[RdmaDevice, ...], actual: Rdma) -> str:
    if fitting:
        missing = "; ".join(f"{each.name} has no {lacks(each, actual)}" for each in fitting[:_FEW])
        return _LACKS.format(name=name, lacks=missing)
    selectors = "; ".join(f"{key} {', '.join(map(str, values))}" for key, values in resource.selectors.items())
    there = "; ".join(map(str, actual.devices[:_FEW])) or "no RDMA device (nothing in /sys/class/infiniband)"
    return _NONE_FITS.format(name=name, selectors=selectors, devices=there)
