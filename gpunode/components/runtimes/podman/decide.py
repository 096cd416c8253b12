"""The decision about podman: every comparison of actual with desired, and the steps that remove the differences."""

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
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, runtime_finding
from gpunode.settings import Settings
from gpunode.settings.runtimes import podman_versions

PATH = "/etc/containers/containers.conf.d/50-gpunode.conf"
PATHS = (PATH,)
# Findings about the effect of the file, which replace a finding about the file itself.
TOLD = ("default-runtime", "configuration-files")


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return gpunode's drop-in, the same on every machine."""
    if not settings.podman.enabled:
        return {}
    name = settings.podman.default_runtime
    return {PATH: rendered("containers.conf", runtime=name, nvidia=NVIDIA_RUNTIME) if name else None}


# The runtimes whose program no other component installs.
_PROGRAMS = ("crun", "runc")

_NOT_INSTALLED = "podman.source is 'present', and podman is missing: install it"
_OLD = "podman {version} does not support CDI, by which containers get GPUs: {first} does"
_UNREADABLE_CDI = (
    "podman {version} cannot read CDI specifications of toolkit {toolkit} and newer (additionalGids). Remedy: set "
    "toolkit.version = '1.18.2', or have podman {first} or newer"
)
_NO_PROGRAM = "podman starts no container without {program}"
_NOT_READ = "podman reads none of its settings: {reasons}"
_OVERRIDDEN = "{file} is read after {path} and sets {runtime}"
_OTHER_PATHS = "{file} is read after {path} and sets the paths of the runtime nvidia to {paths}"
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
    "One of its files cannot be parsed, and no run edits it.",
    causes=(_NOT_READ,),
    remedies=(BY_HAND,),
    classes=(FindingClass.ERROR,),
)


@dataclass(frozen=True)
class Desired:
    """The desired podman of one node; version, default_runtime: None: any.

    installs: whether a run installs it
    program: the program of the default runtime; None where another component installs it
    """

    version: str | None = None
    default_runtime: str | None = None
    installs: bool = True
    program: str | None = None


def desired_of(settings: Settings) -> Desired:
    """Return the podman that the settings describe: for the deploy, preflight, drift and plan."""
    own, others = settings.podman, settings.containerd.enabled or settings.docker.enabled
    runtime = own.default_runtime
    # containerd and docker bring runc, and Docker's containerd.io conflicts with the package of that name.
    program = None if runtime not in _PROGRAMS or (runtime == "runc" and others) else runtime
    return Desired(own.version, runtime, own.source != "present", program)


def lacks(desired: Desired, actual: Podman) -> str | None:
    """Return the missing program of the default runtime, which is also the name of its package; else None."""
    name = desired.program
    return None if name is None or name in actual.programs or actual.paths(name) else name


def decide(desired: Desired, actual: Podman, toolkit: str | None) -> Decision[None]:
    """Return the decision about podman; it has no daemon, and reads its files at each start of a container.

    toolkit: the version of the installed toolkit, which makes the CDI specification
    """
    version, program, runtime = _version(desired, actual), tuple(_program(desired, actual)), _runtime(desired, actual)
    cdi = (_reads(actual.version, toolkit),) if actual.version and toolkit else ()
    steps: list[Step[None]] = []
    if bad(version) and not version.by_person:
        steps.append(Step("install podman", (version,), Disruption.nothing))
    if bad(*program) and desired.installs:
        steps.append(Step(f"install {desired.program}", bad(*program), Disruption.nothing))
    if bad(*runtime) and not _overridden(desired, actual):
        steps.append(Step(f"make {desired.default_runtime} its default runtime", bad(*runtime), Disruption.nothing))
    return Decision((version, *cdi, *program, *runtime), tuple(steps))


def _version(desired: Desired, actual: Podman) -> Finding:
    version, rule, first = actual.version, desired.version, podman_versions().first_with_cdi
    if version is None:
        item = VERSION.compared(None, rule or "any version", False)
        return item if desired.installs else by_hand(item, _NOT_INSTALLED)
    if rule is not None:
        return VERSION.compared(version, rule, versions.in_branch(version, rule))
    item = VERSION.compared(version, "any version with CDI", versions.at_least(version, first))
    return by_hand(item, _OLD.format(version=version, first=first))


def reads(podman: str, toolkit: str) -> bool:
    """Return whether a version of podman reads the CDI specifications that a version of the toolkit makes."""
    row = podman_versions()
    has_gids = versions.at_least(toolkit, row.first_toolkit_with_gids)
    return not has_gids or versions.at_least(podman, versions.major_minor(row.first_with_gids))


def _reads(version: str, toolkit: str) -> Finding:
    """Compare whether podman can read the specifications of this toolkit."""
    row, good = podman_versions(), reads(version, toolkit)
    cause = _UNREADABLE_CDI.format(version=version, toolkit=row.first_toolkit_with_gids, first=row.first_with_gids)
    return by_hand(CDI.compared("readable" if good else f"of toolkit {toolkit}", "readable", good), cause)


def _program(desired: Desired, actual: Podman) -> Iterator[Finding]:
    """Compare whether the program of the default runtime is installed."""
    if (program := desired.program) is None:
        return
    actual_program, cause = None if lacks(desired, actual) else "there", _NO_PROGRAM.format(program=program)
    item = PROGRAM.compared(actual_program, "there", actual_program is not None, of=program, cause=cause)
    yield item if desired.installs else by_hand(item, PROGRAM.causes[1].format(program=program))


def _overridden(desired: Desired, actual: Podman) -> str | None:
    """Return why the drop-in would change nothing; None where it does."""
    if actual.unreadable:
        return _NOT_READ.format(reasons="; ".join(actual.unreadable))
    if _is_later(actual.said_in) and actual.default_runtime != desired.default_runtime:
        return _OVERRIDDEN.format(file=actual.said_in, path=PATH, runtime=actual.default_runtime)
    file, paths = dict(actual.runtimes_in).get("nvidia"), actual.paths("nvidia")
    if desired.default_runtime == "nvidia" and _is_later(file) and paths[:1] != (NVIDIA_RUNTIME,):
        return _OTHER_PATHS.format(file=file, path=PATH, paths=", ".join(paths))
    return None


def _is_later(path: str | None) -> bool:
    """Return whether a file counts more than gpunode's: its folder is the last one, and the last name counts."""
    return path is not None and path.rpartition("/")[0] == PATH.rpartition("/")[0] and path > PATH


def _runtime(desired: Desired, actual: Podman) -> tuple[Finding, ...]:
    """Compare the default runtime; where a file cannot be read, report that too."""
    reason, name = _overridden(desired, actual), desired.default_runtime
    unread = (configuration(CONFIGURATION, None, reason),) if actual.unreadable else ()
    if name is None:
        return unread
    good = actual.default_runtime == name and (name != "nvidia" or actual.paths(name)[:1] == (NVIDIA_RUNTIME,))
    item = DEFAULT_RUNTIME.compared(actual.default_runtime, name, good)
    return (*unread, by_hand(item, reason) if reason else item)
