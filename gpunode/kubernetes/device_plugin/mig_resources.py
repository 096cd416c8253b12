"""What NVIDIA's device plugin registers of a node's GPUs and MIG devices, by its version and its MIG strategy.

Its answers, recorded by running it, are in tests/recorded/device_plugin.yaml.
source: NVIDIA/k8s-device-plugin, internal/rm (rm.go, device_map.go) and api/config/v1/resources.go, v0.15.0 to v0.20.0
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpunode.base.versions import VersionError, at_least
from gpunode.settings.sharing import WHOLE_GPU

# Since then a resource's pattern has to match the whole name of a profile; before, a part of it was enough.
_WHOLE_NAMES_SINCE = "0.20.0"
_PLAIN = re.compile(r"(?:\d+c\.)?(\d+g\.\d+gb)")
_PARTS_OF_INSTANCE = re.compile(r"\d+c\.")
_VENDOR = "nvidia.com/"
# Of a DGX Station; source: NVIDIA/go-nvlib, pkg/nvlib/device/api.go, as the plugin and feature discovery use it.
_DISPLAYS = ("DGX Display", "NVIDIA DGX Display")


@dataclass(frozen=True)
class Divided:
    """What a node's GPUs are divided into.

    gpus: all GPUs; whole: those with MIG off; empty: those in MIG mode that have no MIG device
    devices: (product, profile) -> how many MIG devices
    """

    gpus: int = 0
    whole: int = 0
    empty: int = 0
    devices: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def profiles(self) -> dict[str, int]:
        """Return profile -> how many MIG devices, of all products."""
        counted: dict[str, int] = {}
        for (_, profile), count in self.devices.items():
            counted[profile] = counted.get(profile, 0) + count
        return counted


@dataclass(frozen=True)
class Registered:
    """What the plugin registers: resource -> how many; ends: why it ends at its start, and registers nothing."""

    resources: Mapping[str, int] = field(default_factory=dict)
    ends: str | None = None


def registered(strategy: str, divided: Divided, version: str) -> Registered:
    """Return what the plugin registers before anything is shared.

    + strategy: sharing.mig_strategy
    + version: of the plugin
    """
    if strategy == "none":
        return Registered({WHOLE_GPU: divided.gpus})
    if strategy == "single" and divided.whole < divided.gpus:
        return _single(divided)
    resources = {WHOLE_GPU: divided.whole}
    for profile, count in divided.profiles.items():
        name = mig_resource(profile, version)
        if name is None:
            return Registered(ends=f"MIG profile '{profile}' does not match any resource patterns")
        resources[name] = resources.get(name, 0) + count
    return Registered(resources)


def _single(divided: Divided) -> Registered:
    """Return the MIG devices as GPUs; the plugin ends unless all GPUs are divided, and into devices of one type."""
    if divided.empty:
        return Registered(ends="a GPU in MIG mode has no MIG devices configured")
    if len(divided.devices) > 1:
        return Registered(ends="more than one MIG device type present on node")
    if divided.whole:
        return Registered(ends="all devices on the node must be configured with the same migEnabled value")
    return Registered({WHOLE_GPU: sum(divided.devices.values())})


def mig_resource(profile: str, version: str) -> str | None:
    """Return the resource of a MIG profile with the strategy `mixed`; None where the plugin has none, and ends.

    `1g.10gb+me` is `nvidia.com/mig-1g.10gb.me`, and `1c.3g.40gb` has none; before 0.20.0 both counted under the plain
    name.
    """
    if _matches_whole_names(version):
        return None if _PARTS_OF_INSTANCE.match(profile) else f"{_VENDOR}mig-{label_name(profile)}"
    plain = _PLAIN.match(profile)
    return f"{_VENDOR}mig-{plain[1] if plain else profile}"


def is_display(name: str) -> bool:
    """Say whether a GPU is one for a display alone, which the plugin and feature discovery leave out."""
    return name in _DISPLAYS


def label_name(profile: str) -> str:
    """Return a MIG profile as GPU feature discovery has it in names and values of labels: `1g.10gb.me`."""
    return profile.replace("+", ".")


def _matches_whole_names(version: str) -> bool:
    try:
        return at_least(version, _WHOLE_NAMES_SINCE)
    except VersionError:
        # A tag of a person's own, such as a build by its commit.
        return True
