"""Settings of Mellanox's RDMA shared device plugin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from gpunode.settings.chart import HOST
from gpunode.settings.component import Component, DnsLabel, matching
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.other_plugins import ResourceCount, of_others

PinnedImage = Annotated[
    str,
    matching(
        rf"{HOST}(/[a-z0-9][a-z0-9._-]*)+(?=[:@])(:(?!latest(@|$))[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
        "an image with its tag or digest, such as 'registry.example.org/rdma-plugin:v1.5.3'; the tag 'latest' pins "
        "nothing",
    ),
]


# The plugin's own name for a resource has no dash and no dot (pkg/resources/resources_manager.go, validResourceName),
# and Kubernetes takes no '_' at its ends.
_ResourceName = Annotated[
    str,
    AfterValidator(of_others),
    matching(
        r"[^/]+/[A-Za-z0-9]([A-Za-z0-9_]{0,61}[A-Za-z0-9])?",
        "PREFIX/NAME such as 'rdma/hca_shared_devices_a': the plugin takes letters, digits and '_' for the name",
    ),
]
_PciId = Annotated[str, matching(r"[0-9a-f]{4}", "four hexadecimal digits in lower case, such as '15b3'")]
_Driver = Annotated[str, matching(r"[A-Za-z0-9_-]{1,64}", "a kernel driver such as 'mlx5_core'")]
_Interface = Annotated[str, matching(r"(?!\.{1,2}$)[^\s/:]{1,15}", "a network interface such as 'ib0'")]
_LinkType = Annotated[str, matching(r"ether|infiniband", "'ether' or 'infiniband'")]


class RdmaResource(Component):
    """One resource of the RDMA shared device plugin: which devices it gives to pods, and to how many at once."""

    count: ResourceCount = 1000
    """How many pods may share the devices on a node (the plugin's rdmaHcaMax)."""
    vendors: list[_PciId] = Field(default_factory=list, max_length=50)
    """PCI vendors, such as `15b3`. A device has to fit every selector that is given, by one of its entries."""
    device_ids: list[_PciId] = Field(default_factory=list, max_length=50)
    """PCI device ids, such as `1017`."""
    drivers: list[_Driver] = Field(default_factory=list, max_length=50)
    """Kernel drivers of the PCI device, such as `mlx5_core`."""
    if_names: list[_Interface] = Field(default_factory=list, max_length=50)
    """Network interfaces, such as `ib0`; of a device with several the plugin knows the first by name alone."""
    link_types: list[_LinkType] = Field(default_factory=list, max_length=2)
    """Link types of the interface: `ether` (RoCE) or `infiniband`."""

    @property
    def selectors(self) -> dict[str, list[str]]:
        """Return the selectors that are given, by the names that the plugin's own configuration has for them."""
        every = {
            "vendors": self.vendors,
            "deviceIDs": self.device_ids,
            "drivers": self.drivers,
            "ifNames": self.if_names,
            "linkTypes": self.link_types,
        }
        return {name: values for name, values in every.items() if values}


class RdmaSharedDevicePluginSettings(Component):
    """Mellanox's RDMA shared device plugin (k8s-rdma-shared-dev-plugin), by which pods share RDMA devices: rolled out
    to the nodes where it is enabled, which gpunode labels for it. But for `enabled` all nodes with it must have the
    same. Needs `kubernetes.enabled`. See docs/how-to/other-device-plugins.md."""

    enabled: bool = False
    """true: the node gets the plugin, and its RDMA devices are judged by the selectors."""
    image: PinnedImage | None = None
    """Image of the plugin, with a tag or a digest: `ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.3`; required with
    `enabled`."""
    namespace: DnsLabel = "kube-system"
    """Namespace of its DaemonSet and ConfigMap; made where there is none, and never removed."""
    resources: dict[_ResourceName, RdmaResource] = Field(default_factory=dict, max_length=50)
    """What the plugin offers, by the resource's name: `{'rdma/hca_a': {'vendors': ['15b3'], 'count': 64}}`; required
    with `enabled`. The verdict waits for the count of each."""
    update_seconds: int = Field(60, ge=0, le=86400)
    """Seconds after which the plugin looks for devices anew (its periodicUpdateInterval); 0: never."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what the plugin would refuse: no image, no resource, a name twice, a resource without a selector."""
        if not self.enabled:
            return
        if self.image is None:
            yield "image", "is missing: name the plugin's image, with its tag or digest"
        if not self.resources:
            yield "resources", "is missing: the plugin ends at once where it has nothing to offer"
        names: dict[str, str] = {}
        for name, resource in self.resources.items():
            short = name.partition("/")[2]
            if short in names:
                message = f"has {names[short]} and {name}: the plugin takes a name once, with whatever prefix"
                yield "resources", message
            names.setdefault(short, name)
            if not resource.selectors:
                yield "resources", f"has {name} without a selector: give it vendors, device_ids, drivers or if_names"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield what it cannot stand beside: no cluster, and the same resource from somebody else."""
        kubernetes = others.get("kubernetes")
        if not self.enabled or not isinstance(kubernetes, KubernetesSettings):
            return
        if not kubernetes.enabled:
            yield "enabled", "needs kubernetes.enabled = True: the plugin runs as pods of the node's cluster"
        for name in sorted(self.resources.keys() & {*kubernetes.extended_resources, *kubernetes.expected}):
            yield "resources", f"has {name}, which the settings kubernetes have, too: leave it out there"
