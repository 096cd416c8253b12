"""The container toolkit's packages: their version, what they replace, and what holds them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import MappingProxyType
from typing import Any

from gpunode.base import versions
from gpunode.base.comparison import RUN, finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.template import rendered
from gpunode.components.runtimes.toolkit.state import ContainerToolkit
from gpunode.packages.families import dnf, dnf5
from gpunode.packages.installed_packages import satisfies

_LOST = "its packages are there, and the program is gone or does not run"
_OTHER = "its packages are there, and the program is of another version: another one comes first on the PATH"
_CHANGED = "a package was changed without the others"
_FIND = "remove what `command -v nvidia-ctk` names on the node, if no package owns it, or set toolkit.version to it"
_MIGRATE = f"set toolkit.migrate = True and {RUN}"
_declared = partial(finding_message, "toolkit")
TOOLKIT = _declared(
    "nvidia-container-toolkit",
    "NVIDIA's container toolkit is not of the version that the settings ask for.",
    "Containers get GPUs by it. It is missing, of another version, or its program does not run.",
    causes=(_LOST, _OTHER),
    remedies=(RUN, _FIND),
)
PACKAGES = _declared(
    "packages",
    "The packages of the container toolkit are not of one version.",
    "They need each other at the same version, and one was changed without the others.",
    causes=(_CHANGED,),
)
RUNTIME = _declared(
    "nvidia-container-runtime",
    "The program nvidia-container-runtime does not run.",
    "Runtimes start GPU containers by it. Its package is there; the program is gone or does not run.",
    causes=(_LOST,),
)
LEGACY = _declared(
    "nvidia-docker2",
    "The old package nvidia-docker2 is installed.",
    "The container toolkit replaces it, and both write the same configuration.",
    cause="the container toolkit takes its place",
    remedies=(RUN, _MIGRATE),
)
HELD = _declared(
    "held packages",
    "The container toolkit's packages are not held as the settings ask.",
    "The next upgrade of the system would change them, or a hold is left over that keeps them from an update.",
)


def moves(actual: ContainerToolkit, version: str | None) -> bool:
    """Report whether packages come: one is missing, they differ in version, or are not of the desired one."""
    fits = all(satisfies(each, version) for each in actual.to_hold.values())
    return bool(actual.missing_packages) or len(actual.package_versions) > 1 or not fits


def lost(actual: ContainerToolkit) -> tuple[str, ...]:
    """Return the paths of the programs that are lost while their packages are installed, or were."""
    programs = {"nvidia-ctk": actual.version, "nvidia-container-runtime": actual.runtime_path}
    return tuple(f"/usr/bin/{name}" for name, found in programs.items() if found is None)


def decide_packages(
    version: str | None, migrate: bool, hold: bool, family: str, actual: ContainerToolkit
) -> Decision[Any]:
    """Return what is to be done about the packages; the arguments are fields of `Desired`."""
    coming = moves(actual, version)
    packages, held = tuple(_packages(version, actual, coming)), _held(family, hold, actual)
    old = ", ".join(f"{name} {each}" for name, each in actual.legacy.items())
    legacy = (LEGACY.compared(old, "none", False, remedy=RUN if migrate else _MIGRATE),) if old else ()
    again = tuple(item for item in bad(*packages) if item.cause == _LOST)
    steps = {
        f"install the NVIDIA container toolkit{f' {version}' if version else ''}": bad(*packages) if coming else (),
        "reinstall the packages of the container toolkit": again if lost(actual) and not coming else (),
        f"remove {old}": legacy if migrate else (),
        "hold its packages" if hold else "let go of its packages": bad(*held),
    }
    done = (Step[Any](action, settled, Disruption.nothing) for action, settled in steps.items() if settled)
    return Decision((*packages, *legacy, *held), tuple(done))


def _packages(version: str | None, actual: ContainerToolkit, coming: bool) -> Iterator[Finding]:
    """Judge the packages, and the programs that they bring."""
    cause = None if coming else _LOST
    good = actual.version is not None and (version is None or versions.in_branch(actual.version, version))
    why, remedy = (_OTHER, _FIND) if actual.version is not None and not coming else (cause, RUN)
    yield TOOLKIT.compared(actual.version, version or "any version", good, cause=why, remedy=remedy)
    packages = (*actual.package_versions, *(f"no {name}" for name in actual.missing_packages))
    # The program's own version is judged above.
    other = version if good and coming and len(packages) == 1 else None
    why = _CHANGED if len(packages) > 1 and actual.package_versions else None
    is_one = len(packages) == 1 and other is None
    yield PACKAGES.compared(", ".join(packages), other or "one version", is_one, cause=why)
    yield RUNTIME.compared(actual.runtime_path, "on the PATH", actual.runtime_path is not None, cause=cause)


def _held(family: str, hold: bool, actual: ContainerToolkit) -> tuple[Finding, ...]:
    good = is_held(family, actual, hold)
    if not hold:
        return () if good else (HELD.compared("by gpunode", "none", False),)
    loose = sorted(set(actual.to_hold) - set(actual.held))
    found = f"not {', '.join(loose)}" if loose else "all" if good else "otherwise than gpunode holds them"
    return (HELD.compared(found, "all", not loose and good),)


# Family -> the desired text of its versionlock's list.
_LOCKED = MappingProxyType({"dnf": dnf.locked, "dnf5": dnf5.locked})


def hold_text(family: str, actual: ContainerToolkit, hold: bool) -> str | None:
    """Return the desired text of the file that holds the packages; None: no such file.

    Entries of others in dnf's list stay. Raise ValueError for a list of dnf 5 that cannot be read.
    """
    keep = actual.to_hold if hold else {}
    if family in _LOCKED:
        return _LOCKED[family](actual.hold_text or "", keep, group="toolkit")
    return rendered("toolkit-preferences", packages=keep) if keep else None


def is_held(family: str, actual: ContainerToolkit, hold: bool) -> bool:
    """Report whether that file is as desired."""
    # Removing apt's file is the part of own files; without dnf's plugin nothing is known of its list.
    known = hold if family == "apt" else family in _LOCKED and actual.hold_text is not None
    try:
        return not known or hold_text(family, actual, hold) == actual.hold_text
    except ValueError:
        return False  # The operation reports what is wrong with the list.
