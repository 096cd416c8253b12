"""At which version the driver's packages come: what the repositories offer, and the one version for all.

Debian updates the proprietary driver by its security archive, and not the open module, which is a source package of its
own. All of a driver has to be of one version, so that the open module brings the older one of everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpunode.base import versions
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.tables.sources import DriverSource
from gpunode.packages.driver_packages.names import GLOBS, driver_branch, is_package
from gpunode.packages.installed_packages import satisfies


@dataclass(frozen=True)
class ModuleBehind:
    """Hold a module's package, the newest version of it that there is, and the newer one of the rest (upstream's)."""

    package: str
    module: str
    rest: str

    def reason(self, source: DriverSource) -> str:
        """Return what is wrong, as a part of a sentence."""
        return (
            f"{source.name} has {self.package} at {self.module} and the rest of its driver at {self.rest}: all of it "
            "would come at the older version, without the security updates since"
        )

    def remedy(self, needs_open: bool = False) -> str:
        """Return the ways out; `needs_open`: a GPU of the node is driven by the open module alone."""
        proprietary = "" if needs_open else "set driver.flavour = 'proprietary', or "
        return (
            f"{proprietary}set driver.source = 'cuda-repository'; to have the older driver all the same, name it: "
            f"driver.version = '{self.module}'"
        )


def module_behind(
    source: DriverSource, desired: Mapping[str, str | None], available: Iterable[tuple[str, str]]
) -> ModuleBehind | None:
    """Return what is behind of a distribution's own driver; None where nothing is, or an exact version is asked for.

    + desired: package -> branch or version, as package_set returns it
    + available: (name, package version) of the archive; of what is not among them nothing is said
    """
    if source.origin is None:
        return None
    bound = {name for group in source.packages.values() for name, rule in group.items() if rule == "driver"}
    newest: dict[str, str] = {}
    modules = [name for name, rule in desired.items() if rule and name in bound and name.endswith("-dkms")]
    for module in modules:
        rule = desired[module] or ""
        if "." in rule:
            continue
        for name, version in available:
            upstream = versions.upstream(version)
            if name in bound and satisfies(version, rule) and _newer(upstream, newest.get(name)):
                newest[name] = upstream
        rest = max((each for name, each in newest.items() if name != module), key=versions.parsed, default=None)
        if module in newest and rest is not None and _newer(rest, newest[module]):
            return ModuleBehind(module, newest[module], rest)
    return None


def _newer(version: str, than: str | None) -> bool:
    return than is None or versions.parsed(version) > versions.parsed(than)


# Above any that NVIDIA's own pinning packages give (1000, 1001): in the transaction the version that is asked counts.
PRIORITY = 1100


class NotInstallable(Exception):
    """Say which package is not to be had as desired, and what there is."""


@dataclass(frozen=True)
class Offers(Reading):
    """Hold which versions the repositories have: (name, version), newest first."""

    available: tuple[tuple[str, str], ...]


def parse_offers(lines: list[str]) -> Offers:
    """Parse `available=NAME VERSION` lines; apt-cache must have told of its end."""
    if values(lines).get("apt") != "0":
        raise ParseError("apt-cache gave no answer")
    pairs = (line.partition(" ")[::2] for line in repeated(lines, "available"))
    return Offers(tuple((name, version) for name, version in pairs if version))


def chosen(
    desired: Mapping[str, str | None],
    installed: Mapping[str, str],
    available: Iterable[tuple[str, str]],
    along: Collection[str] = (),
) -> dict[str, str]:
    """Return name -> package version of everything wanted; those with a rule at one upstream version.

    It is the version that is installed already where any that has a rule fits (nothing moves further than it must),
    else the newest that every one of them has. `available` are (name, version) in apt's order, newest first; of
    `along`, names without a rule, the newest comes where the driver moves. Raise NotInstallable.
    """
    offered: dict[str, list[str]] = {}
    for name, version in available:
        offered.setdefault(name, []).append(version)
    for name, version in installed.items():
        if name in desired:
            offered.setdefault(name, []).append(version)
    bound = [name for name, rule in desired.items() if rule]
    upstream = _together(desired, bound, installed, offered)
    moves = any(name not in installed or not satisfies(installed[name], upstream) for name in bound)
    found: dict[str, str] = {}
    for name, rule in desired.items():
        if not rule and name in installed and not (moves and name in along):
            found[name] = installed[name]
            continue
        fitting = [item for item in offered.get(name, []) if not rule or satisfies(item, upstream)]
        if not fitting:
            actual = ", ".join(list(dict.fromkeys(offered.get(name, [])))[:20]) or "none"
            which = upstream if rule else "any version"
            raise NotInstallable(f"package {name} is not to be had at {which}; the repositories have {actual}")
        found[name] = fitting[0]
    for name, version in found.items():
        if not is_package(name, version):
            raise NotInstallable(f"the repository offers {name!r} at {version!r}, which is no package's version")
    return found


def come_along(
    others: Mapping[str, str],
    available: Iterable[tuple[str, str]],
    upstream: str,
    branch: str,
    *,
    moved: bool,
    clash: bool,
) -> dict[str, str | None]:
    """Return what else there is of the driver and does not stay as it is -> its version; None: it is to go.

    + others: name -> version; available: as `chosen` takes it; branch: the new driver's
    + moved: the driver comes from another source from now on
    + clash: a package of another branch, which the new one does not have, would keep files that are the new one's, too:
      dpkg refuses them, where rpm knows by Obsoletes what takes their place
    """
    offered: dict[str, str] = {}
    for name, version in available:
        if satisfies(version, upstream):
            offered.setdefault(name, version)
    # A library that stayed behind would be loaded with a module of another version.
    along = {name: offered.get(name) for name, version in sorted(others.items()) if driver_branch(version) is not None}
    if moved:
        return along
    return {
        name: version
        for name, version in along.items()
        if (version is None and clash and driver_branch(others[name]) != branch) or version not in (None, others[name])
    }


def _together(
    desired: Mapping[str, str | None],
    bound: Sequence[str],
    installed: Mapping[str, str],
    offered: Mapping[str, Sequence[str]],
) -> str:
    """Return the upstream version for all that have a rule; the rule itself where there is none to be found."""
    actual = [installed[name] for name in bound if name in installed and satisfies(installed[name], desired[name])]
    if actual:
        return max((versions.upstream(item) for item in actual), key=versions.parsed)
    common: set[str] | None = None
    for name in bound:
        fitting = {versions.upstream(item) for item in offered.get(name, []) if satisfies(item, desired[name])}
        common = fitting if common is None else common & fitting
    return max(common, key=versions.parsed) if common else str(desired[bound[0]] if bound else "")


def pin_text(upstream: str) -> str:
    """Return apt preferences that let every package of the driver come at one upstream version, for one command."""
    return f"Package: {' '.join(GLOBS)}\nPin: version {upstream}*\nPin-Priority: {PRIORITY}\n"
