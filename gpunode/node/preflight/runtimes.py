"""Can the desired container toolkit and runtimes be installed, and what they replace be removed?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.runtimes import unmanaged
from gpunode.components.runtimes.containerd.companions import is_runc_type
from gpunode.components.runtimes.containerd.decide import desired_of as containerd_of
from gpunode.components.runtimes.crio.decide import INSTALL
from gpunode.components.runtimes.packages import ORIGINS, docker_packages, removed_for, way_out
from gpunode.components.runtimes.runtime import isolates
from gpunode.components.runtimes.toolkit.configuration import runtime_mode
from gpunode.node.machine import Machine
from gpunode.packages.families.wording import wording
from gpunode.packages.installed_packages import satisfies
from gpunode.settings import Settings
from gpunode.settings.runtimes import first_crio_with_cdi

# The families whose packages of the toolkit gpunode can hold, and replace others by, in one transaction.
_HOLDING = ("apt", "dnf", "dnf5")
_MINIMUMS = "{source} (gpunode/data/minimums.yaml)"
_UPGRADE = "set toolkit.version to '{minimum}' or newer"

LEGACY = RefusalMessage(
    "toolkit-legacy",
    "The node has an old package that the container toolkit replaces.",
    reason="the node has {legacy}, which the container toolkit replaces",
    source="the node's list of installed packages",
    remedy="set toolkit.migrate = True to remove it (docker's daemon.json stays), or toolkit.enabled = False",
)
LEGACY_STAYS = RefusalMessage(
    "toolkit-legacy-stays",
    "The node has an old package in place of the container toolkit, which gpunode does not replace here.",
    reason="the node has {legacy}, which gpunode does not replace with {family}",
    source="the node's list of installed packages",
    remedy="remove it by hand, or set toolkit.enabled = False to leave it",
)
NOT_HELD = RefusalMessage(
    "toolkit-not-held",
    "gpunode cannot hold the toolkit's packages with this package manager.",
    reason="gpunode does not hold the toolkit's packages with {family}",
    source="gpunode/node/preflight/runtimes.py",
    remedy="set toolkit.hold = False",
)
HELD = RefusalMessage(
    "toolkit-held",
    "Packages of the container toolkit are to change, and the node holds them.",
    reason="toolkit.version is {desired}, and the node holds {held} (apt-mark hold)",
    source="dpkg's list of packages on the node",
    remedy="release them (`apt-mark unhold {names}` on the node), or set toolkit.version to the one that is held",
    detail="gpunode releases what it holds itself (toolkit.hold), and nothing that others hold.",
)
BELOW_MINIMUM = RefusalMessage(
    "toolkit-below-minimum",
    "The container toolkit is older than another component needs.",
    reason="toolkit.version is {desired}, and {needed_by} needs {minimum} or newer",
    source=_MINIMUMS,
    remedy=_UPGRADE,
)
CONTAINERD_TOO = CautionMessage(
    "containerd-too",
    "docker is enabled, and containerd is managed as well.",
    component="containerd",
    reason="docker.enabled does not replace containerd: containerd.enabled is True by default, and gpunode configures "
    "both, with '{default_runtime}' as containerd's default runtime",
    source="docs/settings.md, containerd",
    remedy="set containerd.enabled = False to leave containerd's configuration alone, or True if both are meant",
    detail="Any setting of containerd ends the caution. It is not given for a node of a Kubernetes cluster.",
)


def containerd_cautions(settings: Settings) -> Iterator[Caution]:
    """Warn where docker is enabled and no setting says whether containerd is."""
    desired = settings.containerd
    if settings.docker.enabled and not settings.kubernetes.enabled and not desired.model_fields_set:
        yield CONTAINERD_TOO(default_runtime=desired.default_runtime)


UNKNOWN_DEFAULT = RefusalMessage(
    "containerd-unknown-default",
    "The desired default runtime of containerd is not in its files.",
    reason="containerd.default_runtime is {default}, and the node's containerd has {names}",
    source="containerd config dump on the node",
    remedy="set containerd.default_runtime to one of them, or add the table of {default} to containerd's files",
)
ISOLATION_LOST = CautionMessage(
    "isolation-lost",
    "The default runtime isolates containers more than runc does, and another one takes its place.",
    component="{component}",
    reason="the default runtime {name} is {program}, which isolates containers more than runc; {effect}",
    source="the runtimes that {component} of the node has",
    remedy="{remedy}; a container then names the runtime nvidia where it needs a GPU",
    detail="Kata Containers and gVisor are such runtimes. Containers that name no runtime lose that isolation.",
)


def default_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a default runtime that containerd's files do not have; without a merged configuration it is not known."""
    default, runtimes = settings.containerd.default_runtime, machine.containerd.runtimes
    names = sorted({"runc", *(runtime.name for runtime in runtimes), *(["nvidia"] if settings.toolkit.enabled else [])})
    if settings.containerd.enabled and runtimes and default not in names:
        yield UNKNOWN_DEFAULT(default=default, names=", ".join(names))


def isolation_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn where the default runtime isolates more than runc and another one takes its place, or its name."""
    of_containerd = {
        each.name: each.binary if is_runc_type(each.type) else each.type for each in machine.containerd.runtimes
    }
    for component, desired, actual, programs in (
        ("containerd", settings.containerd, machine.containerd, of_containerd),
        ("docker", settings.docker, machine.docker, dict(machine.docker.runtimes)),
        ("crio", settings.crio, machine.crio, dict(machine.crio.runtimes)),
    ):
        name = actual.default_runtime or ""
        program, setting = programs.get(name), f"{component}.default_runtime"
        effect, remedy = f"{desired.default_runtime} takes its place", f"set {setting} = '{name}'"
        if renamed := component == "containerd" and name in ("runc", "nvidia"):
            effect = f"gpunode makes {name} a runtime of runc"
            remedy = f"rename that runtime, and set {setting} to the new name"
        if desired.enabled and isolates(program) and (renamed or desired.default_runtime != name):
            yield ISOLATION_LOST(component=component, name=name, program=program, effect=effect, remedy=remedy)


UNIT_NOT_KNOWN = RefusalMessage(
    "containerd-unit-not-configured",
    "containerd.unit names a program whose containerd gpunode cannot configure.",
    reason="containerd.unit is {unit}, and gpunode does not configure the runtime of {name}",
    source="gpunode/data/unmanaged_runtimes.yaml",
    remedy="leave containerd.unit out, and {remedy}",
)


def unit_refusals(settings: Settings) -> Iterator[Refusal]:
    """Refuse a unit of a program whose containerd has no file that gpunode could add to."""
    row = unmanaged.row_of(settings.containerd.unit) if settings.containerd.enabled else None
    if row is not None and not row.programs:
        unit = settings.containerd.unit
        yield UNIT_NOT_KNOWN(unit=unit, name=row.name, remedy=row.remedy.format(unit=unit))


OTHER_RUNTIME = CautionMessage(
    "other-runtime",
    "A program on the node runs a containerd or docker of its own, which gpunode does not configure.",
    component="{component}",
    reason="{name} ({unit}) {runs} with a container runtime of its own, which reads {config}; {effect}",
    source="the node's units and sockets; gpunode/data/unmanaged_runtimes.yaml",
    remedy="{remedy}. To end this caution, set {component}.enabled = False",
    remedies=tuple(row.remedy for row in unmanaged.rows()),
    detail="Programs such as k3s write the configuration of their containerd by themselves at each start. Where no "
    "setting of containerd is given, gpunode leaves containerd out on such a node.",
)


def unmanaged_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of programs that bring a container runtime of their own."""
    component = "containerd" if settings.containerd.enabled else "docker"
    effect = f"gpunode configures the unit {component}.service, which it does not use"
    if unmanaged.replaces_containerd(settings, machine.unmanaged):
        effect = "gpunode configures no containerd here"
    for each, row in unmanaged.in_use(settings, machine.unmanaged):
        yield OTHER_RUNTIME(
            component=component,
            name=each.name,
            unit=each.unit,
            runs="runs" if each.running else "is installed, and starts at boot",
            config=row.config,
            effect=effect,
            remedy=row.remedy.format(unit=each.unit),
        )


def toolkit_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse nvidia-docker2 without toolkit.migrate, a version below a minimum, and a hold that is not possible."""
    desired, system = settings.toolkit, machine.operating_system
    if not desired.enabled:
        return
    distribution = tables.distribution(system.id, system.version_id)
    family = distribution.family if distribution else None
    legacy = ", ".join(f"{name} {version}" for name, version in machine.toolkit.legacy.items())
    if legacy and not desired.migrate:
        yield LEGACY(legacy=legacy)
    elif legacy and family not in _HOLDING:
        yield LEGACY_STAYS(legacy=legacy, family=family)
    if desired.hold and family is not None and family not in _HOLDING:
        yield NOT_HELD(family=family)
    actual = machine.toolkit
    others = {name for name in actual.held if name not in actual.held_by_gpunode} if family == "apt" else set()
    moving = {name: each for name, each in actual.to_hold.items() if not satisfies(each, desired.version)}
    if held := {name: each for name, each in moving.items() if name in others}:
        what = ", ".join(f"{name} {each}" for name, each in held.items())
        yield HELD(desired=desired.version, held=what, names=" ".join(held))
    yield from (BELOW_MINIMUM(**values) for values in _below_minimum(settings, machine, "minimum"))


KNOWN_HOLE = CautionMessage(
    "toolkit-with-known-hole",
    "The desired version of the container toolkit has a known security hole.",
    reason="toolkit.version is {desired}, which has a known security hole: {minimum} is the first without it",
    source=_MINIMUMS,
    remedy=_UPGRADE,
)
NO_WAY_IN = CautionMessage(
    "toolkit-no-way-in",
    reason="unprivileged containers cannot get a GPU: NVIDIA_VISIBLE_DEVICES, volume mounts and CDI are off",
    source="the toolkit's config.toml",
    remedy="set toolkit.accept_nvidia_visible_devices_as_volume_mounts = True, or toolkit.cdi = 'generate'",
)
ROOT_WITHOUT_DEVICES = CautionMessage(
    "toolkit-root-without-devices",
    "The driver's root has no devices, and the container toolkit looks for them in it.",
    reason="{root}/dev has no devices for the container toolkit: a container gets no GPU, or does not start",
    source="NVIDIA/nvidia-container-toolkit 1.20.0, internal/runtime/runtime.go and internal/lookup/root/root.go (mode "
    "auto; observed on an H100); NVIDIA/libnvidia-container, src/nvc_mount.c (mode legacy, not tried)",
    remedy="set toolkit.mode = 'cdi' and toolkit.cdi = 'generate', which takes the devices from /dev; or have what "
    "provides the driver mount /dev at {root}/dev",
)


def toolkit_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of a version with a known hole, and of settings by which containers get no GPU."""
    desired = settings.toolkit
    if not desired.enabled:
        return
    yield from (KNOWN_HOLE(**values) for values in _below_minimum(settings, machine, "security"))
    by_variable = desired.accept_nvidia_visible_devices_envvar_when_unprivileged is not False
    if not by_variable and not desired.accept_nvidia_visible_devices_as_volume_mounts and desired.cdi == "off":
        yield NO_WAY_IN()
    driver = machine.driver
    # A specification that gpunode makes takes the devices from /dev.
    by_specification = (desired.mode or runtime_mode(machine.toolkit.config_text)) == "cdi"
    if driver.is_elsewhere and driver.root_smi and not driver.root_devices and not by_specification:
        yield ROOT_WITHOUT_DEVICES(root=driver.root)


def _below_minimum(settings: Settings, machine: Machine, kind: str) -> Iterator[dict[str, str | None]]:
    """Yield the values of the highest minimum of a kind that the desired version does not reach."""
    desired, tegra = settings.toolkit.version, machine.operating_system.tegra
    rows = [row for row in tables.minimums() if (row.component, row.kind) == ("nvidia-container-toolkit", kind)]
    counting = [row for row in rows if row.minimum and (row.when != "tegra" or tegra)]
    missed = [row for row in counting if desired and not versions.at_least(desired, row.minimum or "")]
    for row in sorted(missed, key=lambda row: versions.parsed(row.minimum or ""))[-1:]:
        yield {"desired": desired, "needed_by": row.needed_by, "minimum": row.minimum, "source": row.source}


HOLD_WITHOUT_LOCK = RefusalMessage(
    "hold-without-lock",
    "Packages are to be held, and the package manager's plugin for that is switched off.",
    component="{first}",
    reason="{named} is set, and the plugin versionlock of dnf, which holds packages, is switched off on the node",
    source="/etc/dnf/plugins/versionlock.conf",
    remedy="set enabled = 1 in that file, or {loose}",
)


def lock_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a hold by dnf where its plugin is switched off; a run installs the plugin where it is missing."""
    driver, toolkit = settings.driver, settings.toolkit
    holds = {"driver": driver.enabled and driver.installs and driver.hold, "toolkit": toolkit.enabled and toolkit.hold}
    holding = [name for name, held in holds.items() if held and machine.toolkit.locking_off]
    if holding:
        loose = " and ".join(f"{name}.hold = False" for name in holding)
        yield HOLD_WITHOUT_LOCK(first=holding[0], named=loose.replace(" = False", ""), loose=loose)


CRIO_ABSENT = RefusalMessage(
    "crio-absent",
    reason="the node has no CRI-O, and gpunode installs none",
    source="the unit crio.service, and the PATH, of this node",
    remedy=INSTALL,
)
CRIO_ANOTHER = RefusalMessage(
    "crio-another",
    "The node's CRI-O is not the desired version.",
    reason="the node has CRI-O {actual}, and crio.version is {desired}: gpunode installs none",
    source="crio --version on the node",
    remedy="install that version as your cluster does, or leave crio.version out",
)
CRIO_TOO_OLD = RefusalMessage(
    "crio-too-old",
    "The node's CRI-O is too old for CDI, by which containers get GPUs.",
    reason="the node has CRI-O {actual}, and {first} is the first with CDI, by which containers get GPUs",
    source="gpunode/data/crio.yaml",
    remedy="install {first} or newer as your cluster does, or set crio.enabled = False",
)


def crio_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without the desired CRI-O: gpunode installs none."""
    desired, actual, first = settings.crio.version, machine.crio.version, first_crio_with_cdi()
    if not settings.crio.enabled:
        return
    if actual is None:
        yield CRIO_ABSENT()
    elif desired is not None and not versions.in_branch(actual, desired):
        yield CRIO_ANOTHER(actual=actual, desired=desired)
    elif not versions.at_least(actual, versions.major_minor(first)):
        yield CRIO_TOO_OLD(actual=actual, first=first)


RUNTIME_REMOVES = RefusalMessage(
    "runtime-removes",
    "Installing a container runtime would remove packages that no setting removes.",
    component="{runtime}",
    reason="{names} of {origin} would remove installed packages that no setting removes: {lost}",
    source="Conflicts of containerd.io, docker-ce and docker.io (gpunode/data/runtimes.yaml), and what is installed",
    remedy="{way_out}; or remove these packages by hand (`{remove}`), and run again",
)


def runtime_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a runtime for which another one's packages would be removed, with the containers that these run."""
    system = tables.distribution(machine.operating_system.id, machine.operating_system.version_id)
    if system is None:
        return
    installed = machine.runtime_packages.names
    for runtime, desired, names in (
        ("containerd", settings.containerd, containerd_of(settings).packages),
        ("docker", settings.docker, docker_packages(settings.docker.source, system)),
    ):
        lost = removed_for(names, installed, system.family) if desired.enabled else ()
        if lost:
            yield RUNTIME_REMOVES(
                runtime=runtime,
                names=" and ".join(names),
                origin=ORIGINS[desired.source],
                lost=", ".join(lost),
                way_out=way_out(runtime, desired.source, system),
                remove=f"{wording(machine.operating_system).remove} {' '.join(lost)}",
            )
