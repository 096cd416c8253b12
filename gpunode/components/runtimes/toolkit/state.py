"""What of the NVIDIA container toolkit is on a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpunode.base import tables, versions
from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.template import rendered
from gpunode.packages.driver_packages.names import DEB_VERSION, NAME
from gpunode.settings import Settings

# They belong together, but their dependencies bind only the first two to one version: apt may move one alone.
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# What belongs to it by its name, as awk takes it.
NAMES = "^(nvidia-container-|libnvidia-container|nvidia-docker)"
# As Arch divides them.
PACMAN_PACKAGES = ("nvidia-container-toolkit", "libnvidia-container")
# What the toolkit took the place of: docker's wrapper, and the runtime as a package of its own.
LEGACY = ("nvidia-docker2", "nvidia-docker", "nvidia-container-runtime", "nvidia-container-runtime-hook")
_CTK = re.compile(r"version (\d+\.\d+\.\d+\S*)")


@dataclass(frozen=True)
class CdiSpecification(Reading):
    """Hold a CDI specification of nvidia.com/gpu: where it is, of which driver its libraries are, and whether ours.

    `hooks` are those that it names and that not every toolkit has. `library` is where it has libcuda from, on the node.
    """

    path: str
    driver_version: str | None
    ours: bool = False
    hooks: tuple[str, ...] = ()
    library: str | None = None

    def is_below(self, root: str) -> bool:
        """Say whether its libraries stand below that root; where none is told, nothing speaks against it."""
        if self.library is None:
            return True
        # At / they are where the distributions have libraries; /run/nvidia/driver is below / as well.
        return self.library.startswith(("/usr/", "/lib") if root == "/" else f"{root}/")


@dataclass(frozen=True)
class ContainerToolkit(Reading):
    """Hold packages (name, version), the version that nvidia-ctk prints and the runtime's path.

    `held` are the toolkit's packages that are kept still; `hold_text` is our file that says so, with dnf versionlock's
    whole list; None without the file, or without that plugin. `config_text` is config.toml, `cdi` the specifications
    that runtimes read, `cdi_drafts` files that a run of gpunode's left beside them, `cdi_refresh` how the toolkit's own
    unit that renews one starts (systemd's UnitFileState), None without such a unit, where it passes over the driver,
    and where a newer toolkit has left it behind; `cdi_output` is where that unit writes. `unlinked` are device nodes
    without a link in /dev/char, `link_rule` says whether our udev rule makes these links. `names` are those of the
    packages that belong together. `locking_off`: dnf's plugin versionlock is there, and somebody has switched it off.
    `files`: each program or path that config.toml names -> `x` where it is a program, `e` where it is anything else,
    `-` where it is not there; `daemons` are the units of container runtimes that the node has.
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

    @property
    def package_versions(self) -> tuple[str, ...]:
        """Return the versions at which the toolkit's packages are installed, newest first, each once, without revision.

        Raise VersionError where a package's version is none.
        """
        installed = dict(self.packages)
        found = {versions.upstream(installed[name]) for name in self.names if name in installed}
        return tuple(sorted(found, key=versions.parsed, reverse=True))

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
        """Return name -> version of the installed packages that the toolkit took the place of."""
        return {name: version for name, version in self.packages if name in LEGACY}

    def stale_cdi(self, driver_version: str, root: str = "/") -> tuple[CdiSpecification, ...]:
        """Return the specifications that are not of this driver below `root`, or that a newer toolkit made."""
        return tuple(
            item
            for item in self.cdi
            if item.driver_version != driver_version or self.hooks_lacking(item) or not item.is_below(root)
        )

    def hooks_lacking(self, item: CdiSpecification) -> tuple[str, ...]:
        """Return the hooks that a specification names and the installed toolkit lacks: perhaps a newer one made it."""
        since, version = tables.toolkit().hooks, self.version
        if version is None:
            return ()
        return tuple(hook for hook in item.hooks if hook in since and not versions.at_least(version, since[hook]))


def parse_toolkit(lines: list[str]) -> ContainerToolkit:
    """Parse the toolkit probe's lines (gpunode/components/runtimes/toolkit/state.sh)."""
    found = values(lines)
    packages = [_package(line) for line in repeated(lines, "package")]
    match = _CTK.search(found.get("ctk", ""))
    libraries = dict(line.split(" ", 1) for line in repeated(lines, "cdi_library") if " " in line)
    refreshes = match is None or versions.at_least(versions.major_minor(match[1]), tables.toolkit().refresh_since)
    return ContainerToolkit(
        packages=tuple(sorted(packages)),
        version=match[1] if match else None,
        runtime_path=found.get("runtime"),
        held=tuple(sorted(repeated(lines, "held"))),
        hold_text=decoded(found, "hold_text") or ("" if found.get("locking") == "yes" else None),
        locking_off=found.get("locking") == "off",
        config_text=decoded(found, "config"),
        cdi=tuple(_specification(line, libraries) for line in repeated(lines, "cdi")),
        cdi_drafts=tuple(repeated(lines, "draft")),
        cdi_refresh=found.get("refresh") if refreshes else None,
        cdi_output=found.get("refresh_output") if refreshes else None,
        unlinked=tuple(repeated(lines, "unlinked")),
        link_rule=found.get("link_rule") == "yes",
        files=tuple((line[2:], line[:1]) for line in repeated(lines, "file")),
        daemons=tuple(repeated(lines, "daemon")),
        names=PACMAN_PACKAGES if found.get("names") == "arch" else PACKAGES,
    )


def _package(line: str) -> tuple[str, str]:
    name, _, version = line.partition(" ")
    if NAME.fullmatch(name) is None or DEB_VERSION.fullmatch(version) is None:
        raise ParseError(f"not a package: {line[:80]!r}")
    return name, version


def _specification(line: str, libraries: Mapping[str, str]) -> CdiSpecification:
    words = line.split(" ")
    if len(words) not in (3, 4):
        raise ParseError(f"not a CDI specification: {line[:80]!r}")
    path, version, ours, *hooks = words
    names = tuple(hooks[0].split(",")) if hooks else ()
    return CdiSpecification(path, None if version == "-" else version, ours == "ours", names, libraries.get(path))


LINK_RULE = "/etc/udev/rules.d/71-gpunode-nvidia-dev-char.rules"
PATHS = (LINK_RULE,)


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return the udev rule that links NVIDIA's devices in /dev/char."""
    if not settings.toolkit.enabled:
        return {}
    return {LINK_RULE: rendered("nvidia-dev-char.rules") if settings.toolkit.device_links else None}
