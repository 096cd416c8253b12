"""Can the node have the container toolkit that is asked for, and may what is there go?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, Refusal
from gpunode.node.machine import Machine
from gpunode.settings import Settings

_INSTALLED = "the node's list of installed packages"
_MINIMUMS = "gpunode/data/minimums.yaml"
# The families whose packages of the toolkit gpunode can hold, and replace others by, in one transaction.
_HOLDING = ("apt", "dnf")


def toolkit_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse to put the toolkit beside nvidia-docker2 unasked, a version below a minimum, a hold that nobody keeps."""
    desired, system = settings.toolkit, machine.operating_system
    if not desired.enabled:
        return
    actual = tables.distribution(system.id, system.version_id)
    family = actual.family if actual else None
    legacy = ", ".join(f"{name} {version}" for name, version in machine.toolkit.legacy.items())
    if legacy and not desired.migrate:
        yield Refusal(
            "toolkit",
            f"on the node is {legacy}, which the container toolkit takes the place of",
            _INSTALLED,
            "set toolkit.migrate = True to have it removed as the toolkit comes (docker's daemon.json stays), or "
            "toolkit.enabled = False to leave it",
        )
    elif legacy and family not in _HOLDING:
        yield Refusal(
            "toolkit",
            f"on the node is {legacy}, which gpunode does not replace with {family}",
            _INSTALLED,
            "remove it by hand, or set toolkit.enabled = False to leave it",
        )
    if desired.hold and family is not None and family not in _HOLDING:
        yield Refusal(
            "toolkit",
            f"gpunode does not hold the toolkit's packages with {family}",
            "gpunode/node/preflight/toolkit.py",
            "set toolkit.hold = False",
        )
    yield from _below_minimum(settings, machine, "minimum")


def lock_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a hold by dnf where somebody switched off what keeps it; its package comes first where it is not there."""
    holding = [
        name
        for name, holds in (
            ("driver", settings.driver.enabled and settings.driver.installs and settings.driver.hold),
            ("toolkit", settings.toolkit.enabled and settings.toolkit.hold),
        )
        if holds and machine.toolkit.locking_off
    ]
    if holding:
        named = " and ".join(f"{name}.hold" for name in holding)
        yield Refusal(
            holding[0],
            f"{named} is asked for, and the package manager's plugin versionlock, which alone keeps packages as they "
            "are, is switched off on the node",
            "/etc/dnf/plugins/versionlock.conf",
            f"set enabled = 1 there, or {' and '.join(f'{name}.hold = False' for name in holding)}",
        )


def toolkit_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell of a version with a known hole, and of a preset that the device plugin has to agree with."""
    desired = settings.toolkit
    if not desired.enabled:
        return
    for item in _below_minimum(settings, machine, "security"):
        yield Caution(item.component, item.reason, item.source, item.remedy)
    by_variable = desired.accept_nvidia_visible_devices_envvar_when_unprivileged is not False
    if not by_variable and not desired.accept_nvidia_visible_devices_as_volume_mounts and desired.cdi == "off":
        yield Caution(
            "toolkit",
            "unprivileged containers cannot get a GPU: neither NVIDIA_VISIBLE_DEVICES nor volume mounts count, and "
            "there is no CDI specification",
            "the toolkit's config.toml",
            "set toolkit.accept_nvidia_visible_devices_as_volume_mounts = True, or toolkit.cdi = 'generate'",
        )


def _below_minimum(settings: Settings, machine: Machine, kind: str) -> Iterator[Refusal]:
    """Yield the highest minimum of a kind that the version asked for does not reach."""
    desired = settings.toolkit.version
    rows = [
        row for row in tables.minimums()
        if row.component == "nvidia-container-toolkit" and row.kind == kind and row.minimum
        and (row.when != "tegra" or machine.operating_system.tegra)
    ]  # fmt: skip
    missed = [row for row in rows if desired and not versions.at_least(desired, row.minimum or "")]
    for row in sorted(missed, key=lambda row: versions.parsed(row.minimum or ""))[-1:]:
        yield Refusal(
            "toolkit",
            f"toolkit.version is {desired}, and {row.needed_by or row.kind} asks for {row.minimum} or newer",
            f"{row.source} ({_MINIMUMS})",
            f"set toolkit.version to '{row.minimum}' or newer",
        )
