"""What of the NVIDIA container toolkit is on a node."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpunode.base import tables, versions
from gpunode.base.messages import REMEDY
from gpunode.base.probe_output import CORRECT, decoded, number, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.template import rendered
from gpunode.components.runtimes.toolkit.cdi import CdiSpecification, read
from gpunode.packages.driver_packages.names import pairs
from gpunode.settings import Settings

# Their dependencies bind only the first two to one version: apt may move one alone.
PACKAGES = (
    "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1",
)  # fmt: skip
# The names of all packages of the toolkit, as awk takes a pattern.
NAMES = "^(nvidia-container-|libnvidia-container|nvidia-docker)"
# As Arch divides them.
PACMAN_PACKAGES = ("nvidia-container-toolkit", "libnvidia-container")
# The packages that the toolkit replaces.
LEGACY = ("nvidia-docker2", "nvidia-docker", "nvidia-container-runtime", "nvidia-container-runtime-hook")
_CAPABILITIES = "/proc/driver/nvidia/capabilities/"
# Device nodes, with their minor number where the name ends in it -> the driver's name in /proc/devices.
_DEVICES = {
    re.compile(r"/dev/nvidia(\d+)"): "nvidia",
    re.compile(r"/dev/nvidiactl"): "nvidia",
    re.compile(r"/dev/nvidia-uvm(?:-tools)?"): "nvidia-uvm",
    re.compile(r"/dev/nvidia-caps/nvidia-cap(\d+)"): "nvidia-caps",
}
_MINORS = {"/dev/nvidiactl": 255, "/dev/nvidia-uvm": 0, "/dev/nvidia-uvm-tools": 1}
_LARGEST = 1 << 20  # bytes of one specification
_CTK = re.compile(r"version (\d+\.\d+\.\d+\S*)")


@dataclass(frozen=True)
class ContainerToolkit(Reading):
    """The actual container toolkit of a node.

    packages: (name, version); version: as nvidia-ctk prints it; runtime_path: of nvidia-container-runtime
    names: of the packages of one version; held: those of them that are held
    hold_text: gpunode's file that holds them, or the whole list of dnf's versionlock; None without file or plugin
    locking_off: whether dnf's plugin versionlock is switched off
    cdi: the specifications that runtimes read; cdi_drafts: files that an interrupted run left next to them
    of_other_kind: files in the place of NVIDIA's specification that are of another kind
    cdi_refresh: the UnitFileState of nvidia-cdi-refresh, which renews one at cdi_output; None without that unit, where
    it passes over the driver, or where an older toolkit replaced its own
    unlinked: device nodes without a link in /dev/char; link_rule: whether gpunode's udev rule is there
    files: each program or path that config.toml names -> `x` a program, `e` anything else, `-` not there
    daemons: the units of container runtimes that the node has
    Where there is a specification: minors: (UUID of a GPU, number of its /dev/nvidia*)
    capabilities: (an instance, such as `gpu0/mig/gi1/ci0`, number of its /dev/nvidia-caps/nvidia-cap*)
    misnumbered: device nodes that are not the driver's
    """

    packages: tuple[tuple[str, str], ...]
    version: str | None
    runtime_path: str | None
    held: tuple[str, ...] = ()
    hold_text: str | None = None
    config_text: str | None = None
    cdi: tuple[CdiSpecification, ...] = ()
    cdi_drafts: tuple[str, ...] = ()
    cdi_refresh: str | None = None
    cdi_output: str | None = None
    unlinked: tuple[str, ...] = ()
    link_rule: bool = False
    names: tuple[str, ...] = PACKAGES
    locking_off: bool = False
    files: tuple[tuple[str, str], ...] = ()
    daemons: tuple[str, ...] = ()
    minors: tuple[tuple[str, int], ...] = ()
    capabilities: tuple[tuple[str, int], ...] = ()
    misnumbered: tuple[str, ...] = ()
    of_other_kind: tuple[str, ...] = ()

    @property
    def package_versions(self) -> tuple[str, ...]:
        """Return the upstream versions of the toolkit's installed packages, newest first; raise VersionError."""
        return tuple(sorted(set(map(versions.upstream, self.to_hold.values())), key=versions.parsed, reverse=True))

    @property
    def missing_packages(self) -> tuple[str, ...]:
        """Return the toolkit's packages that are not installed."""
        installed = dict(self.packages)
        return tuple(name for name in self.names if name not in installed)

    @property
    def to_hold(self) -> dict[str, str]:
        """Return name -> version of the toolkit's installed packages."""
        return {name: version for name, version in self.packages if name in self.names}

    @property
    def held_by_gpunode(self) -> frozenset[str]:
        """Return the packages that gpunode's file of apt holds."""
        lines = (self.hold_text or "").splitlines()
        return frozenset(line.removeprefix("Package: ") for line in lines if line.startswith("Package: "))

    @property
    def legacy(self) -> dict[str, str]:
        """Return name -> version of the installed packages that the toolkit replaces."""
        return {name: version for name, version in self.packages if name in LEGACY}

    def hooks_lacking(self, item: CdiSpecification) -> tuple[str, ...]:
        """Return the hooks that a specification names and the installed toolkit lacks: perhaps a newer one made it."""
        since, hooks = tables.toolkit().hooks, item.hooks if self.version else ()
        return tuple(hook for hook in hooks if hook in since and not versions.at_least(self.version or "", since[hook]))


def parse_toolkit(lines: list[str]) -> ContainerToolkit:
    """Parse the toolkit probe's lines (gpunode/components/runtimes/toolkit/state.sh)."""
    found = values(lines)
    match = _CTK.search(found.get("ctk", ""))
    listed = ((device, each.partition(":")) for each, device in _words(lines, "number"))
    numbers = {device: (number(major), number(minor)) for device, (major, _, minor) in listed}
    specifications = dict(_specifications(lines, numbers))
    refreshes = match is None or versions.at_least(versions.major_minor(match[1]), tables.toolkit().refresh_since)
    return ContainerToolkit(
        packages=tuple(sorted(pairs(repeated(lines, "package")))),
        version=match[1] if match else None,
        runtime_path=found.get("runtime"),
        held=tuple(sorted(repeated(lines, "held"))),
        hold_text=decoded(found, "hold_text") or ("" if found.get("locking") == "yes" else None),
        locking_off=found.get("locking") == "off",
        config_text=decoded(found, "config"),
        cdi=tuple(item for item in specifications.values() if item is not None),
        of_other_kind=tuple(path for path, item in specifications.items() if item is None),
        cdi_drafts=tuple(repeated(lines, "draft")),
        cdi_refresh=found.get("refresh") if refreshes else None,
        cdi_output=found.get("refresh_output") if refreshes else None,
        unlinked=tuple(repeated(lines, "unlinked")),
        link_rule=found.get("link_rule") == "yes",
        files=tuple((line[2:], line[:1]) for line in repeated(lines, "file")),
        daemons=tuple(repeated(lines, "daemon")),
        minors=tuple((uuid, number(each)) for uuid, each in _words(lines, "minor")),
        capabilities=tuple(
            (file.removeprefix(_CAPABILITIES).removesuffix("/access"), number(each))
            for file, each in _words(lines, "capability")
        ),
        misnumbered=tuple(_misnumbered(numbers, {name: number(each) for each, name in _words(lines, "major")})),
        names=PACMAN_PACKAGES if found.get("names") == "arch" else PACKAGES,
    )


def _words(lines: list[str], key: str) -> Iterator[tuple[str, str]]:
    for line in repeated(lines, key):
        first, separator, second = line.partition(" ")
        if not separator:
            raise ParseError(f"not two words: {key}={line[:80]!r}")
        yield first, second


def _specifications(
    lines: list[str], numbers: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[str, CdiSpecification | None]]:
    gone = repeated(lines, "gone")
    for path, packed in _words(lines, "cdi"):
        try:
            text = base64.b64decode(packed, validate=True)
            if text.startswith(b"\x1f\x8b"):
                text = zlib.decompressobj(wbits=31).decompress(text, _LARGEST + 1)
        except (ValueError, zlib.error) as error:
            raise ParseError(f"{path} did not arrive: {error}") from error
        if len(text) > _LARGEST:
            raise ParseError(f"{path} cannot be read, or is larger than {_LARGEST >> 20} MiB{REMEDY}{CORRECT}")
        yield path, read(path, text.decode("utf-8", errors="replace"), gone, numbers)


def _misnumbered(numbers: Mapping[str, tuple[int, int]], majors: Mapping[str, int]) -> Iterator[str]:
    """Yield the device nodes that the kernel gives to another driver, or to another device of this one."""
    for device, actual in numbers.items():
        for pattern, name in _DEVICES.items():
            if not (match := pattern.fullmatch(device)) or name not in majors:
                continue
            if actual != (majors[name], int(match[1]) if match.groups() else _MINORS[device]):
                yield f"{device} is {actual[0]}:{actual[1]}, where {name} has the major number {majors[name]}"


LINK_RULE = "/etc/udev/rules.d/71-gpunode-nvidia-dev-char.rules"
PATHS = (LINK_RULE,)


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return the udev rule that links NVIDIA's devices in /dev/char."""
    if not settings.toolkit.enabled:
        return {}
    return {LINK_RULE: rendered("nvidia-dev-char.rules") if settings.toolkit.device_links else None}
