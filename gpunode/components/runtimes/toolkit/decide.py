"""What is to be done about the container toolkit: every comparison with what is desired, and the steps to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.comparison import RUN, by_hand, finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.template import rendered
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.driver.state import DriverState
from gpunode.components.mig.state import Mig
from gpunode.components.runtimes.toolkit.configuration import (
    MODE,
    PATH,
    Asked,
    asked_of,
    differences,
    faults,
    judged_of,
    others_root,
    render,
)
from gpunode.components.runtimes.toolkit.specification import Specification, decide_specification
from gpunode.components.runtimes.toolkit.state import ContainerToolkit
from gpunode.packages.families import dnf, dnf5
from gpunode.packages.installed_packages import satisfies
from gpunode.settings import Settings
from gpunode.system.operating_system import OperatingSystem

DEVICE_LINKS = finding_message(
    "toolkit",
    "device links",
    "The links in /dev/char to NVIDIA's devices are missing.",
    "With systemd's cgroups a container that runs loses its GPUs at the next `systemctl daemon-reload` without them.",
    cause="a container loses its GPUs at the next `systemctl daemon-reload`",
)


def decide_links(actual: ContainerToolkit) -> Decision[Any]:
    """Return what is to be done about links in /dev/char; their udev rule is an own file.

    A change is the devices that are to get a link.
    """
    lacking = [f"none for {', '.join(actual.unlinked)}"] if actual.unlinked else []
    if not actual.link_rule:
        lacking.append("no udev rule")
    item = DEVICE_LINKS.compared(
        "; ".join(lacking) or "all", "one in /dev/char for each device, and a udev rule", not lacking
    )
    action = "link NVIDIA's devices in /dev/char, now and whenever the driver is loaded"
    change = actual.unlinked or None
    return Decision((item,), (Step(action, (item,), Disruption.nothing, change=change),) if lacking else ())


_LOST = "its packages are there, and the program is gone or does not run"
_OTHER = "its packages are there, and the program is of another version: another one comes first on the PATH"
_CHANGED = "a package was changed without the others"
_FIND = "remove what `command -v nvidia-ctk` names on the node, if no package owns it, or set toolkit.version to it"
_MEND = f"correct {PATH} by hand, or move it away and {RUN}"
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
_FAULT = "by this value no container starts, or none gets a GPU"
_CORRECT = f"correct {PATH} by hand; without the line the toolkit takes its default"
CONFIGURATION = _declared(
    "config.toml",
    "The container toolkit's config.toml is not as the settings ask.",
    "It decides how containers get GPUs, and whether unprivileged containers may request any of them. "
    "nvidia-container-runtime reads it at each start of a container, and ends at a value that it does not take.",
    causes=(_FAULT,),
    remedies=(RUN, _MEND, _CORRECT),
)


@dataclass(frozen=True)
class Desired:
    """Hold what the toolkit is to be.

    version: itself or its branch, None: any; migrate: whether what it took the place of goes
    hold: whether its packages are kept still; configuration: key of config.toml -> value
    cdi: whether there is to be a CDI specification; device_links: whether devices have their links in /dev/char
    boots: whether a run boots the node into the driver on its disk before it comes to this
    family: the node's package manager
    """

    version: str | None = None
    migrate: bool = False
    hold: bool = False
    configuration: Asked = field(default_factory=dict)
    cdi: bool = False
    device_links: bool = True
    boots: bool = False
    family: str = "apt"


# The text that config.toml is to have, the specification, or the devices that are to get a link.
Change = str | Specification | tuple[str, ...]


def desired_of(settings: Settings, system: OperatingSystem) -> Desired:
    """Return what the settings desire, which are resolved for the node's operating system."""
    desired, distribution = settings.toolkit, tables.distribution(system.id, system.version_id)
    return Desired(
        desired.version,
        desired.migrate,
        desired.hold,
        asked_of(desired, settings.driver.root if settings.driver.enabled else None),
        desired.cdi == "generate",
        desired.device_links,
        settings.disruption.allow == "reboot",
        distribution.family if distribution else "apt",
    )


def moves(actual: ContainerToolkit, version: str | None) -> bool:
    """Say whether packages come: one is missing, they are not at one version, or not at the one that is desired."""
    fits = all(satisfies(each, version) for each in actual.to_hold.values())
    return bool(actual.missing_packages) or len(actual.package_versions) > 1 or not fits


def lost(actual: ContainerToolkit) -> tuple[str, ...]:
    """Return the paths of the programs that are lost while their packages are installed, or were."""
    programs = {"nvidia-ctk": actual.version, "nvidia-container-runtime": actual.runtime_path}
    return tuple(f"/usr/bin/{name}" for name, found in programs.items() if found is None)


def decide(desired: Desired, actual: ContainerToolkit, driver: DriverState, mig: Mig | None = None) -> Decision[Change]:
    """Return what is to be done about the packages, config.toml, CDI specifications and links of devices."""
    coming = moves(actual, desired.version)
    packages = tuple(_packages(desired, actual, coming))
    legacy, held = _legacy(desired, actual), _held(desired, actual)
    steps: list[Step[Change]] = []
    if coming and bad(*packages):
        version = f" {desired.version}" if desired.version else ""
        steps.append(Step(f"install the NVIDIA container toolkit{version}", bad(*packages), Disruption.nothing))
    elif lost(actual):
        again = tuple(item for item in bad(*packages) if item.cause == _LOST)
        steps.append(Step("reinstall the packages of the container toolkit", again, Disruption.nothing))
    if legacy and desired.migrate:
        steps.append(Step(f"remove {legacy[0].actual}", legacy, Disruption.nothing))
    if bad(*held):
        action = "hold its packages" if desired.hold else "let go of its packages"
        steps.append(Step(action, bad(*held), Disruption.nothing))
    rest = (
        decide_configuration(desired.configuration, actual, coming),
        decide_specification(desired.cdi, actual, driver, mig, boots=desired.boots),
        decide_links(actual) if desired.device_links else Decision[Change](()),
    )
    refusal = None
    for each in rest:
        # Behind what is refused the run comes to nothing else.
        refusal = refusal or each.refusal
        steps += [replace(step, waits=refusal or step.waits) for step in each.steps]
    values = judge_values(desired.configuration, actual, coming)
    findings = (*packages, *legacy, *held, *values, *(item for each in rest for item in each.findings))
    return Decision(findings, tuple(steps), refusal)


def _packages(desired: Desired, actual: ContainerToolkit, coming: bool) -> Iterator[Finding]:
    """Judge the packages, and the programs that they bring."""
    version, cause = desired.version, None if coming else _LOST
    good = actual.version is not None and (version is None or versions.in_branch(actual.version, version))
    why, remedy = (_OTHER, _FIND) if actual.version is not None and not coming else (cause, RUN)
    yield TOOLKIT.compared(actual.version, version or "any version", good, cause=why, remedy=remedy)
    packages = (*actual.package_versions, *(f"no {name}" for name in actual.missing_packages))
    # One version that is not the program's is told here; one that is, above.
    other = version if good and coming and len(packages) == 1 else None
    is_mixed, named = len(packages) > 1, ", ".join(packages)
    why = _CHANGED if is_mixed and actual.package_versions else None
    yield PACKAGES.compared(named, other or "one version", not is_mixed and bool(packages) and other is None, cause=why)
    path = actual.runtime_path
    yield RUNTIME.compared(path, "on the PATH", path is not None, cause=cause)


def _legacy(desired: Desired, actual: ContainerToolkit) -> tuple[Finding, ...]:
    if not actual.legacy:
        return ()
    found = ", ".join(f"{name} {version}" for name, version in actual.legacy.items())
    return (LEGACY.compared(found, "none", False, remedy=RUN if desired.migrate else _MIGRATE),)


def _held(desired: Desired, actual: ContainerToolkit) -> tuple[Finding, ...]:
    good = is_held(desired.family, actual, desired.hold)
    if not desired.hold:
        return () if good else (HELD.compared("by gpunode", "none", False),)
    loose = sorted(set(actual.to_hold) - set(actual.held))
    found = f"not {', '.join(loose)}" if loose else "all" if good else "otherwise than gpunode holds them"
    return (HELD.compared(found, "all", not loose and good),)


def decide_configuration(settings: Asked, actual: ContainerToolkit, coming: bool) -> Decision[Change]:
    """Return what is to be done about config.toml, by which its operation goes.

    coming: whether another version of the toolkit comes first, of whose modes nothing is known
    """
    if not settings:
        return Decision(())
    text = actual.config_text
    settings = judged_of(text, settings)
    if not settings:
        return Decision(())
    try:
        items, new = differences(text, settings), render(text, settings)
    except ConfigurationRefused as error:
        item = CONFIGURATION.compared("unreadable", "as desired", False)
        return Decision((by_hand(item, f"{PATH}: {error}"),), (), f"{PATH}: {error}")
    if (root := others_root(text, settings)) is not None:
        refusal = (
            f"{PATH} has nvidia-container-cli.root {root!r}, which gpunode did not write; nothing was changed"
            f". Remedy: set driver.root = {root!r} (with driver.source = 'present') where the driver is there, or take "
            "the line out"
        )
        item = CONFIGURATION.compared(f"nvidia-container-cli.root {root!r}", "the driver at '/'", False)
        return Decision((by_hand(item, refusal),), (), refusal)
    mode = str(settings.get(MODE) or "")
    first = tables.toolkit().modes.get(mode)
    unknown = bool(first and actual.version and not coming and not versions.at_least(actual.version, first))
    found = "; ".join(f"{item.key} {item.actual}" for item in items) or (f"mode {mode}" if unknown else "as desired")
    desired = "; ".join(f"{item.key} {item.desired}" for item in items) or "as desired"
    item = CONFIGURATION.compared(found, desired, not items and not unknown)
    if unknown:
        refusal = (
            f"toolkit.mode {mode!r} is known from the container toolkit {first} on, and {actual.version} is installed; "
            f"nothing was changed. Remedy: set toolkit.version to {first} or newer, or toolkit.mode = 'auto'"
        )
        return Decision((by_hand(item, refusal),), (), refusal)
    if new == (text or ""):
        return Decision((item,))
    return Decision((item,), (Step("write config.toml", bad(item), Disruption.nothing, change=new),))


def judge_values(settings: Asked, actual: ContainerToolkit, coming: bool = False) -> Iterator[Finding]:
    """Yield what of config.toml keeps containers from their start, whatever is desired; `settings` is written."""
    settings = judged_of(actual.config_text, settings)
    try:
        for each in faults(actual, settings, None if coming else actual.version):
            sides = each.actual, each.desired
            yield CONFIGURATION.compared(*sides, False, of=each.key, cause=_FAULT, remedy=_CORRECT)
    except ConfigurationRefused as error:
        if not settings:
            yield by_hand(CONFIGURATION.compared("unreadable", "as TOML", False), f"{PATH}: {error}")


# Family -> what its versionlock's list is to say.
_LOCKED = MappingProxyType({"dnf": dnf.locked, "dnf5": dnf5.locked})


def hold_text(family: str, actual: ContainerToolkit, hold: bool) -> str | None:
    """Return the text of the file that holds what is installed, or nothing of gpunode's; None: there is no such file.

    dnf's list is everybody's: what others have in it stays. Raises ValueError for a list of dnf 5 that cannot be read.
    """
    keep = actual.to_hold if hold else {}
    if family in _LOCKED:
        return _LOCKED[family](actual.hold_text or "", keep, group="toolkit")
    return rendered("toolkit-preferences", packages=keep) if keep else None


def is_held(family: str, actual: ContainerToolkit, hold: bool) -> bool:
    """Say whether that file is as it should be.

    apt's that is to go is an own file like others; of dnf's, without its plugin, nothing is known.
    """
    if family not in ("apt", *_LOCKED) or (family == "apt" and not hold):
        return True
    if family in _LOCKED and actual.hold_text is None:
        return True
    try:
        return hold_text(family, actual, hold) == actual.hold_text
    except ValueError:
        # Its operation says what is wrong with the list.
        return False
