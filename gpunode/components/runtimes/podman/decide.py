"""What is to be done about podman: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base import versions
from gpunode.base.comparison import BY_HAND, DRIFT, by_hand, configuration, finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.template import rendered
from gpunode.components.runtimes.podman.state import Podman
from gpunode.components.runtimes.runtime import runtime_finding
from gpunode.settings import Settings
from gpunode.settings.runtimes import podman_versions

PATH = "/etc/containers/containers.conf.d/50-gpunode.conf"
PATHS = (PATH,)
# Findings about what the file does, beside which nothing is said of the file.
TOLD = ("default-runtime", "configuration-files")
# Where the toolkit's packages have it.
NVIDIA = "/usr/bin/nvidia-container-runtime"


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return the drop-in, which is the same on every machine."""
    if not settings.podman.enabled:
        return {}
    name = settings.podman.default_runtime
    return {PATH: rendered("containers.conf", runtime=name, nvidia=NVIDIA) if name else None}


# Those whose program is no other component's.
_PROGRAMS = ("crun", "runc")

_NOT_INSTALLED = "podman.source is 'present', and there is none: install it"
_OLD = "podman {version} knows no CDI, by which containers get GPUs: {first} does"
_UNREADABLE_CDI = (
    "podman {version} cannot read CDI specifications of toolkit {toolkit} and newer (additionalGids). Remedy: set "
    "toolkit.version = '1.18.2', or have podman {first} or newer"
)
_NO_PROGRAM = "podman starts no container without {program}"
_NOT_READ = "podman reads none of its settings: {reasons}"
_OVERRIDDEN = "{file} is read after {path} and says {runtime}"
_OTHER_PATHS = "{file} is read after {path} and says of runtime nvidia: {paths}"
VERSION = runtime_finding("podman", "version", _NOT_INSTALLED, _OLD, classes=DRIFT)
CDI = runtime_finding("podman", "CDI", _UNREADABLE_CDI, remedies=(BY_HAND,), classes=DRIFT)
DEFAULT_RUNTIME = runtime_finding("podman", "default runtime", _NOT_READ, _OVERRIDDEN, _OTHER_PATHS, classes=DRIFT)
PROGRAM = finding_message(
    "podman",
    "program of runtime",
    "The program of podman's runtime is missing.",
    "podman starts no container without it.",
    causes=(_NO_PROGRAM, f"{_NO_PROGRAM}, and podman.source is 'present': install it"),
)
CONFIGURATION = finding_message(
    "podman",
    "configuration files",
    "podman reads none of its settings.",
    "One of its files cannot be parsed. No run edits it.",
    causes=(_NOT_READ,),
    remedies=(BY_HAND,),
    classes=(FindingClass.ERROR,),
)


@dataclass(frozen=True)
class Desired:
    """Hold what podman is to be; version and default_runtime: None: any. `installs`: whether a run brings it.

    program: what the default runtime is run by, where no other component brings that; None where one does
    """

    version: str | None = None
    default_runtime: str | None = None
    installs: bool = True
    program: str | None = None


def desired_of(settings: Settings) -> Desired:
    """Return what the settings desire."""
    asked, others = settings.podman, settings.containerd.enabled or settings.docker.enabled
    runtime = asked.default_runtime
    # containerd and docker bring runc, and Docker's containerd.io conflicts with the package of that name.
    program = None if runtime not in _PROGRAMS or (runtime == "runc" and others) else runtime
    return Desired(asked.version, runtime, asked.source != "present", program)


def lacks(desired: Desired, actual: Podman) -> str | None:
    """Return the program that the default runtime lacks, which is its package's name, too; None where it is there."""
    name = desired.program
    return None if name is None or name in actual.programs or actual.paths(name) else name


def decide(desired: Desired, actual: Podman, toolkit: str | None) -> Decision[None]:
    """Return what is to be done about podman. It has no daemon: each `podman run` reads its files anew.

    toolkit: the version of the toolkit that is there, which makes the CDI specification
    """
    version = _version(desired, actual)
    reads = tuple(_reads(actual, toolkit))
    files = tuple(_files(desired, actual))
    program = tuple(_program(desired, actual))
    steps: list[Step[None]] = []
    if bad(version) and not version.by_person:
        steps.append(Step("install podman", (version,), Disruption.nothing))
    if bad(*program) and desired.installs:
        steps.append(Step(f"install {desired.program}", bad(*program), Disruption.nothing))
    if bad(*files) and not _in_the_way(desired, actual):
        steps.append(Step(f"make {desired.default_runtime} its default runtime", bad(*files), Disruption.nothing))
    return Decision((version, *reads, *program, *files), tuple(steps))


def _version(desired: Desired, actual: Podman) -> Finding:
    rule = desired.version
    if actual.version is None:
        item = VERSION.compared(None, rule or "any version", False)
        return item if desired.installs else by_hand(item, _NOT_INSTALLED)
    if rule is not None:
        return VERSION.compared(actual.version, rule, versions.in_branch(actual.version, rule))
    first = podman_versions().first_with_cdi
    good = versions.at_least(actual.version, first)
    item = VERSION.compared(actual.version, "any version with CDI", good)
    return by_hand(item, _OLD.format(version=actual.version, first=first))


def _reads(actual: Podman, toolkit: str | None) -> Iterator[Finding]:
    """Judge whether podman can read what this toolkit writes."""
    if actual.version is None or toolkit is None:
        return
    row = podman_versions()
    writes = versions.at_least(toolkit, row.first_toolkit_with_gids)
    good = versions.at_least(actual.version, row.first_with_gids) or not writes
    item = CDI.compared("readable" if good else f"of toolkit {toolkit}", "readable", good)
    cause = _UNREADABLE_CDI.format(
        version=actual.version, toolkit=row.first_toolkit_with_gids, first=row.first_with_gids
    )
    yield by_hand(item, cause)


def _program(desired: Desired, actual: Podman) -> Iterator[Finding]:
    """Judge whether the default runtime's program is there: without it, no container of podman's starts."""
    if desired.program is None:
        return
    missing = lacks(desired, actual)
    program, actual_program = desired.program, None if missing else "there"
    item = PROGRAM.compared(actual_program, "there", not missing, of=program, cause=_NO_PROGRAM.format(program=program))
    yield item if desired.installs else by_hand(item, PROGRAM.causes[1].format(program=program))


def _in_the_way(desired: Desired, actual: Podman) -> str | None:
    """Return why the drop-in would not help; None where it does."""
    if actual.unreadable:
        return _NOT_READ.format(reasons="; ".join(actual.unreadable))
    if _is_later(actual.said_in) and actual.default_runtime != desired.default_runtime:
        return _OVERRIDDEN.format(file=actual.said_in, path=PATH, runtime=actual.default_runtime)
    where = dict(actual.runtimes_in).get("nvidia")
    if desired.default_runtime == "nvidia" and _is_later(where) and actual.paths("nvidia")[:1] != (NVIDIA,):
        return _OTHER_PATHS.format(file=where, path=PATH, paths=", ".join(actual.paths("nvidia")))
    return None


def _is_later(path: str | None) -> bool:
    """Say whether a file counts more than gpunode's: of one folder the last name does, of folders this one."""
    return path is not None and path.rpartition("/")[0] == PATH.rpartition("/")[0] and path > PATH


def _files(desired: Desired, actual: Podman) -> Iterator[Finding]:
    reason = _in_the_way(desired, actual)
    if actual.unreadable:
        yield configuration(CONFIGURATION, None, reason)
    if desired.default_runtime is None:
        return
    paths = actual.paths("nvidia")
    good = actual.default_runtime == desired.default_runtime and (
        desired.default_runtime != "nvidia" or paths[:1] == (NVIDIA,)
    )
    item = DEFAULT_RUNTIME.compared(actual.default_runtime, desired.default_runtime, good)
    yield by_hand(item, reason) if reason else item
