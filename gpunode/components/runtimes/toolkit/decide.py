"""What is to be done about the container toolkit: every comparison with what is desired, and the steps to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.comparison import RUN, by_hand, finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.driver.state import DriverState
from gpunode.components.mig.state import Mig
from gpunode.components.runtimes.toolkit.configuration import (
    CGROUPS,
    MODE,
    PATH,
    RUNTIMES,
    Keys,
    desired_keys,
    differences,
    faults,
    others_root,
    render,
    written_keys,
)
from gpunode.components.runtimes.toolkit.packages import decide_packages, moves
from gpunode.components.runtimes.toolkit.specification import Specification, decide_specification
from gpunode.components.runtimes.toolkit.state import ContainerToolkit
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


_MEND = f"correct {PATH} by hand, or move it away and {RUN}"
_FAULT = "by this value no container starts, or none gets a GPU"
_CORRECT = f"correct {PATH} by hand; without the line the toolkit takes its default"
_SET_CGROUPS = (
    f"set toolkit.no_cgroups = False, or True where rootless runtimes alone start containers with GPUs, and {RUN}"
)
CONFIGURATION = finding_message(
    "toolkit",
    "config.toml",
    "The container toolkit's config.toml is not as the settings ask.",
    "It decides how containers get GPUs, and whether unprivileged containers may request any of them. "
    "nvidia-container-runtime reads it at each start of a container, and ends at a value that it does not take.",
    causes=(_FAULT,),
    remedies=(RUN, _MEND, _CORRECT, _SET_CGROUPS),
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
    configuration: Keys = field(default_factory=dict)
    cdi: bool = False
    device_links: bool = True
    boots: bool = False
    family: str = "apt"


# The text that config.toml is to have, the specification, or the devices that are to get a link.
Change = str | Specification | tuple[str, ...]


def desired_of(settings: Settings, system: OperatingSystem, program: str | None = None) -> Desired:
    """Return what the settings desire.

    settings: resolved for the node's operating system; program: that its containerd's runtime nvidia calls in
    place of the PATH's runc
    """
    desired, distribution = settings.toolkit, tables.distribution(system.id, system.version_id)
    return Desired(
        desired.version,
        desired.migrate,
        desired.hold,
        desired_keys(
            desired,
            settings.driver.root if settings.driver.enabled else None,
            (program,) if program and settings.containerd.enabled else (),
        ),
        desired.cdi == "generate",
        desired.device_links,
        settings.disruption.allow == "reboot",
        distribution.family if distribution else "apt",
    )


def decide(desired: Desired, actual: ContainerToolkit, driver: DriverState, mig: Mig | None = None) -> Decision[Change]:
    """Return what is to be done about the packages, config.toml, CDI specifications and links of devices."""
    coming = moves(actual, desired.version)
    packages = decide_packages(desired.version, desired.migrate, desired.hold, desired.family, actual)
    steps: list[Step[Change]] = [*packages.steps]
    rest = (
        decide_configuration(desired.configuration, actual, coming),
        decide_specification(desired.cdi, actual, driver, mig, boots=desired.boots),
        decide_links(actual) if desired.device_links else Decision[Change](()),
    )
    refusal = None
    for each in rest:
        # After a refusal a run does nothing more.
        refusal = refusal or each.refusal
        steps += [replace(step, waits=refusal or step.waits) for step in each.steps]
    written = written_keys(actual, desired.configuration, None if coming else actual.version)
    values = judge_values(written, actual, coming)
    findings = (*packages.findings, *values, *(item for each in rest for item in each.findings))
    return Decision(findings, tuple(steps), refusal)


def decide_configuration(settings: Keys, actual: ContainerToolkit, coming: bool) -> Decision[Change]:
    """Return what is to be done about config.toml.

    coming: whether another version of the toolkit comes first, whose modes are not known
    """
    text, settings = actual.config_text, written_keys(actual, settings, None if coming else actual.version)
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
    cause = _FAULT if None in (settings.get(MODE, ""), settings.get(RUNTIMES, "")) else None
    item = CONFIGURATION.compared(found, desired, not items and not unknown, cause=cause)
    if unknown:
        refusal = (
            f"toolkit.mode {mode!r} is known from the container toolkit {first} on, and {actual.version} is installed; "
            f"nothing was changed. Remedy: set toolkit.version to {first} or newer, or toolkit.mode = 'auto'"
        )
        return Decision((by_hand(item, refusal),), (), refusal)
    if new == (text or ""):
        return Decision((item,))
    return Decision((item,), (Step("write config.toml", bad(item), Disruption.nothing, change=new),))


def judge_values(written: Keys, actual: ContainerToolkit, coming: bool = False) -> Iterator[Finding]:
    """Yield the values of config.toml that keep containers from their start or from GPUs, and that no run mends.

    written: the keys that a run writes
    """
    try:
        for each in faults(actual, written, None if coming else actual.version):
            remedy = _SET_CGROUPS if each.key == ".".join(CGROUPS) else _CORRECT
            yield CONFIGURATION.compared(each.actual, each.desired, False, of=each.key, cause=_FAULT, remedy=remedy)
    except ConfigurationRefused as error:
        if not written:
            yield by_hand(CONFIGURATION.compared("unreadable", "as TOML", False), f"{PATH}: {error}")
