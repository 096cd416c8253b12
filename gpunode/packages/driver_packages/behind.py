"""Is the kernel module of a distribution's own driver behind the rest of that driver?

Debian updates the proprietary driver by its security archive, and not the open module, which is a source package of its
own. All of a driver has to be of one version, so that the open module brings the older one of everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpunode.base import versions
from gpunode.base.tables.sources import DriverSource
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
