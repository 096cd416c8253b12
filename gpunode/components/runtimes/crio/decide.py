"""What is to be done about CRI-O: comparisons with what is desired, its drop-in, and whether it needs a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpunode.base import versions
from gpunode.base.comparison import (
    BY_HAND,
    DRIFT,
    RUN,
    by_hand,
    configuration,
    configuration_files,
    pending,
    unrecorded,
)
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.toml_edit import ConfigurationRefused, Table, edited, filled, put, table_in
from gpunode.components.runtimes.crio.state import Crio, Merged, merged, runtimes_of
from gpunode.components.runtimes.runtime import (
    NVIDIA_RUNTIME,
    RESTART_FORBIDDEN,
    RuntimeChange,
    Runtimes,
    WrittenFile,
    blocked_reason,
    is_own_runtime,
    restart_of,
    runtime_finding,
)
from gpunode.components.runtimes.service import MEND_BOOT, MEND_SERVICE, masked_refusal, running_steps, service_findings
from gpunode.settings.runtimes import first_crio_with_cdi

if TYPE_CHECKING:
    from gpunode.settings import Settings

# nvidia-ctk's name for it: two files would contradict each other, and of two the later name counts.
NAME = "99-nvidia.toml"
_HEAD = "# Written by gpunode; what is added here stays.\n"


def render(text: str | None, beside: Merged, desired: Runtimes) -> str:
    """Return the text of the drop-in with what is desired; `beside` is what the other files come to.

    Raises ConfigurationRefused where the file cannot be edited.
    """

    def edit(document: Table) -> None:
        runtime = table_in(table_in(document, "crio", hidden=True), "runtime")
        put(runtime, "default_runtime", desired.default)
        put(runtime, "cgroup_manager", desired.manager)
        if not desired.systemd_cgroup:
            # CRI-O starts with no slice of systemd's then.
            put(runtime, "conmon_cgroup", "pod")
        if not desired.nvidia:
            if desired.nvidia is False and is_own_runtime(runtimes_of(runtime).get("nvidia", {}).get("runtime_path")):
                _remove(runtime, "nvidia")
            return
        runtimes = table_in(runtime, "runtimes", hidden=True)
        # The table takes the whole place of one in an earlier file.
        if "nvidia" not in runtimes:
            filled(table_in(runtimes, "nvidia"), beside.like())
        nvidia = table_in(runtimes, "nvidia")
        put(nvidia, "runtime_path", NVIDIA_RUNTIME)
        put(nvidia, "runtime_type", "oci")
        if nvidia.get("inherit_default_runtime"):
            put(nvidia, "inherit_default_runtime", False)

    return edited(text or _HEAD, edit)


def _remove(runtime: Table, name: str) -> None:
    """Remove a runtime, with the table of runtimes where it was the only one."""
    if len(runtime["runtimes"]) == 1:
        del runtime["runtimes"]
    else:
        del runtime["runtimes"][name]


def path_of(state: Crio) -> str:
    """Return the path of the drop-in: in the folder that this CRI-O reads."""
    return f"{state.folder}/{NAME}"


def wanted(desired: Runtimes) -> dict[str, str]:
    """Return what the daemon must say of itself, by the keys of its configuration."""
    found = {"default_runtime": desired.default, "cgroup_manager": desired.manager}
    if desired.nvidia:
        found["runtimes.nvidia.runtime_path"] = NVIDIA_RUNTIME
    return found


def effective(state: Crio) -> dict[str, str | None]:
    """Return what the daemon says of itself, by the keys of `wanted`."""
    return {
        "default_runtime": state.default_runtime,
        "cgroup_manager": state.cgroup_manager,
        "runtimes.nvidia.runtime_path": dict(state.runtimes).get("nvidia"),
    }


def change(state: Crio, desired: Runtimes) -> RuntimeChange | None:
    """Return what is to be changed, None where files and daemon are as desired; raise ConfigurationRefused.

    `state.files` must be known.
    """
    path, files = path_of(state), dict(state.files or ())
    beside = merged({name: text for name, text in files.items() if name != path}, state.root)
    if beside.unreadable:
        raise ConfigurationRefused(f"CRI-O starts with none of its files: {'; '.join(beside.unreadable)}")
    try:
        text = render(files.get(path), beside, desired)
    except ConfigurationRefused as refusal:
        raise ConfigurationRefused(f"{path}: {refusal}") from refusal
    after = merged({**files, path: text}, state.root)
    for key, value in wanted(desired).items():
        found, where = _said(after, key)
        if found != value:
            raise ConfigurationRefused(
                f"{where} is read after {path} and says {key} = {found!r}. Remedy: correct or remove that file"
            )
    said, writes = effective(state), text != files.get(path, "")
    differ = any(said[key] != value for key, value in wanted(desired).items())
    if not writes and (not differ or not state.active):
        return None
    if reason := _in_the_way(state, {*after.runtimes, *dict(state.runtimes)}, desired):
        raise ConfigurationRefused(reason)
    return RuntimeChange(
        (WrittenFile(path, text),) if writes else (),
        text if writes else None,
        tuple(f"{key}={value}" for key, value in wanted(desired).items()),
        "restart" if differ else "nothing",
        state.default_runtime or "",
    )


def _in_the_way(state: Crio, names: set[str], desired: Runtimes) -> str | None:
    """Return why no drop-in would help, with what to do; names: the runtimes that CRI-O knows."""
    if state.flags:
        return (
            f"crio is started with {', '.join(state.flags)}, which counts more than its files. Remedy: take the flag "
            "out of its unit (or of /etc/sysconfig/crio, /etc/default/crio)"
        )
    if state.answers and desired.default not in names:
        return (
            f"CRI-O knows no runtime {desired.default}, but {', '.join(sorted(names))}. Remedy: set "
            "crio.default_runtime to one of them, or write its table [crio.runtime.runtimes]"
        )
    return None


def _said(after: Merged, key: str) -> tuple[object, str | None]:
    """Return what files say of a key, and which file does."""
    if not key.startswith("runtimes."):
        return after.keys.get(key), after.said_in.get(key)
    _, name, option = key.split(".")
    return after.runtimes.get(name, {}).get(option), after.said_in.get(f"runtimes.{name}")


_SILENT = "CRI-O runs, but `crio status config` gives no answer"
INSTALL = "install CRI-O as your cluster does (https://github.com/cri-o/packaging), or set crio.enabled = False"

_MISSING = "{binary}, which the unit crio.service runs, is missing. Remedy: install it again, or correct the unit"
_ABSENT = f"there is no CRI-O, and gpunode installs none. Remedy: {INSTALL}"
_OTHER = "crio.version is {rule}, and gpunode installs no CRI-O. Remedy: install that version, or set crio.version"
_OLD = "{version} is the first with CDI. Remedy: install that version or a newer one"
SERVICE = runtime_finding("crio", "service", remedies=MEND_SERVICE, classes=DRIFT)
STARTS_AT_BOOT = runtime_finding("crio", "starts at boot", remedies=MEND_BOOT, classes=DRIFT)
VERSION = runtime_finding("crio", "version", _MISSING, _ABSENT, _OTHER, _OLD, remedies=(BY_HAND,), classes=DRIFT)
CONFIGURATION = configuration_files("crio")
_KEYS = {
    "default_runtime": runtime_finding("crio", "default runtime", RESTART_FORBIDDEN),
    "cgroup_manager": runtime_finding("crio", "cgroup driver", RESTART_FORBIDDEN),
    "runtimes.nvidia.runtime_path": runtime_finding("crio", "runtime nvidia", RESTART_FORBIDDEN),
}


@dataclass(frozen=True)
class Desired:
    """Hold what CRI-O is to be, and what a change of it may disturb; version: itself or its branch, None: any."""

    runtimes: Runtimes
    allowed: Disruption = Disruption.restart
    version: str | None = None


def desired_of(settings: Settings) -> Desired:
    """Return the CRI-O that the settings describe: for the deploy, its operation, drift and plan."""
    own = settings.crio
    runtimes = Runtimes(own.default_runtime, own.systemd_cgroup, settings.toolkit.enabled or None)
    return Desired(runtimes, Disruption[settings.disruption.allow], own.version)


def decide(desired: Desired, actual: Crio) -> Decision[RuntimeChange]:
    """Return what is to be done about CRI-O, by what its daemon answers; gpunode installs none."""
    runs, starts = service_findings("crio.service", actual, SERVICE, STARTS_AT_BOOT)
    own = decide_configuration(desired, actual)
    steps = [step for step in own.steps if step.settles]
    # Behind a change that is refused the run comes to nothing else.
    steps += running_steps(runs, starts, own.refusal)
    return Decision((_version(desired, actual), runs, starts, *own.findings), tuple(steps), own.refusal)


def decide_configuration(desired: Desired, actual: Crio) -> Decision[RuntimeChange]:
    """Return what is to be done about the configuration of a CRI-O that is there, by which its operation goes."""
    said, disruption = effective(actual), restart_of(actual)
    answers: tuple[Finding, ...] = tuple(
        _KEYS[key].not_known(value, _SILENT, f"look at `journalctl -u crio` on the node, and {RUN}")
        if actual.active and not actual.answers
        else _KEYS[key].compared(said[key], value, said[key] == value, disruption=disruption)
        for key, value in wanted(desired.runtimes).items()
    )
    to_come, refusal = _to_come(desired, actual)
    waits = blocked_reason(desired.allowed, actual.containers) if actual.active and bad(*answers) else None
    if to_come is not None and actual.masked and waits is None and refusal is None:
        refusal = masked_refusal("crio.service")
    files: tuple[Finding, ...] = ()
    if not bad(*answers) and (actual.answers or not actual.active):
        # For all that the daemon says: it starts by its files next.
        files = (configuration(CONFIGURATION, path_of(actual) if to_come is not None else None, refusal),)
        if actual.files is None and actual.version is not None:
            files = (unrecorded(CONFIGURATION),)
    if refusal is not None:
        return Decision((*(by_hand(item, refusal) for item in answers), *files), (), refusal)
    if waits is not None:
        answers = tuple(pending(item, waits) for item in answers)
    steps = _steps(answers, files, actual, to_come)
    return Decision((*answers, *files), tuple(replace(step, waits=waits) for step in steps))


def _version(desired: Desired, actual: Crio) -> Finding:
    rule, first = desired.version, first_crio_with_cdi()
    if actual.version is None:
        return by_hand(VERSION.compared(None, rule or "any version with CDI", False), _absent(actual))
    good = versions.at_least(actual.version, first) if rule is None else versions.in_branch(actual.version, rule)
    item = VERSION.compared(actual.version, rule or "any version with CDI", good)
    cause = _OTHER.format(rule=rule) if rule else _OLD.format(version=first)
    return by_hand(item, cause)


def _absent(actual: Crio) -> str:
    return _MISSING.format(binary=actual.binary) if actual.binary else _ABSENT


def _to_come(desired: Desired, actual: Crio) -> tuple[RuntimeChange | None, str | None]:
    """Return the change of file and daemon, None where there is none; and why a run cannot make it."""
    if actual.version is None:
        return None, _absent(actual)
    if actual.files is None:
        # Recorded facts have no text.
        return None, None
    try:
        to_come = change(actual, desired.runtimes)
    except ConfigurationRefused as refusal:
        return None, str(refusal)
    if actual.active and not actual.answers:
        return to_come, f"{_SILENT}; nothing was changed. Remedy: look at `journalctl -u crio` on the node, and {RUN}"
    return to_come, None


def _steps(
    answers: tuple[Finding, ...], files: tuple[Finding, ...], actual: Crio, to_come: RuntimeChange | None
) -> Iterator[Step[RuntimeChange]]:
    """Yield the one step that settles all of it: one transaction brings file and daemon to what is desired."""
    settled = (*bad(*answers), *bad(*files))
    if settled:
        restart = " and restart it" if actual.active else ""
        action = f"bring its runtimes to what is asked{restart}" if bad(*answers) else "write its configuration file"
        yield Step(action, settled, settled[0].disruption or Disruption.nothing, change=to_come)
