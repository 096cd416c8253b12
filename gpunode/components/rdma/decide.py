"""Would the RDMA shared device plugin find a device for each of its resources on this node?

It is a person's to mend: gpunode brings no driver of RDMA devices. The plugin itself says nothing of it to the cluster:
it offers 0 of such a resource, with a warning in its log, and pods wait.
source: Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, pkg/resources/resources_manager.go, pci_net_device.go
"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.comparison import BY_HAND, by_hand, finding_message
from gpunode.base.decision import Decision
from gpunode.base.findings import Finding
from gpunode.components.rdma.state import Rdma, RdmaDevice
from gpunode.settings.rdma import RdmaResource, RdmaSharedDevicePluginSettings

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
