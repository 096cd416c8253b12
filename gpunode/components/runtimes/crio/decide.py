"""The decision about CRI-O: every comparison of actual with desired, its drop-in, and whether it needs a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpunode.base import versions
from gpunode.base.comparison import BY_HAND, DRIFT, by_hand
from gpunode.base.decision import Decision
from gpunode.base.disruption import Disruption
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.crio.editor import render
from gpunode.components.runtimes.crio.state import Crio, Merged, merged
from gpunode.components.runtimes.judge import Desired, RuntimeFindings, RuntimeJudge
from gpunode.components.runtimes.runtime import (
    NVIDIA_RUNTIME,
    RESTART_FORBIDDEN,
    Act,
    RuntimeChange,
    Runtimes,
    WrittenFile,
    change_by_answers,
    runtime_finding,
)
from gpunode.settings.runtimes import first_crio_with_cdi
from gpunode.system.service import missing_program

if TYPE_CHECKING:
    from gpunode.settings import Settings

# The file that nvidia-ctk writes: of two files with these keys, the later name counts.
NAME = "99-nvidia.toml"
INSTALL = "install CRI-O as your cluster does (https://github.com/cri-o/packaging), or set crio.enabled = False"
_SILENT = "CRI-O runs, but `crio status config` gives no answer"
_ABSENT = f"there is no CRI-O, and gpunode installs none. Remedy: {INSTALL}"
_OTHER = "crio.version is {rule}, and gpunode installs no CRI-O. Remedy: install that version, or set crio.version"
_OLD = "{version} is the first with CDI. Remedy: install that version or a newer one"
_CAUSES = (missing_program("crio.service", "{binary}"), _ABSENT, _OTHER, _OLD)
VERSION = runtime_finding("crio", "version", *_CAUSES, remedies=(BY_HAND,), classes=DRIFT)
FINDINGS = RuntimeFindings("crio", silent=_SILENT, absent=_ABSENT, version=VERSION)
# What `crio status config` answers -> the finding about it.
VALUES = {
    "default_runtime": runtime_finding("crio", "default runtime", RESTART_FORBIDDEN),
    "cgroup_manager": runtime_finding("crio", "cgroup driver", RESTART_FORBIDDEN),
    "runtimes.nvidia.runtime_path": runtime_finding("crio", "runtime nvidia", RESTART_FORBIDDEN),
}


def desired_of(settings: Settings) -> Desired:
    """Return the CRI-O that the settings describe: for the deploy, its operation, drift and plan."""
    own = settings.crio
    runtimes = Runtimes(own.default_runtime, own.systemd_cgroup, settings.toolkit.enabled or None)
    return Desired(runtimes, Disruption[settings.disruption.allow], own.version)


def judge_of(desired: Desired, actual: Crio) -> RuntimeJudge:
    """Return the judge of one node's CRI-O; where it does not run, its start disturbs no container."""
    containers, has_texts = actual.containers if actual.active else 0, actual.files is not None
    # gpunode installs no CRI-O.
    own = replace(desired, installs=False)
    return RuntimeJudge(FINDINGS, own, actual, actual.version, actual.binary, containers, has_texts)


def decide(desired: Desired, actual: Crio) -> Decision[RuntimeChange]:
    """Return the decision about CRI-O: its version, its configuration and its service."""
    judge, rule, first = judge_of(desired, actual), desired.version, first_crio_with_cdi()
    good = actual.version is not None and (
        versions.at_least(actual.version, first) if rule is None else versions.in_branch(actual.version, rule)
    )
    version = VERSION.compared(actual.version, rule or "any version with CDI", good)
    cause = judge.absent or (_OTHER.format(rule=rule) if rule else _OLD.format(version=first))
    return judge.component(decide_configuration(desired, actual), (by_hand(version, cause), None))


def decide_configuration(desired: Desired, actual: Crio) -> Decision[RuntimeChange]:
    """Return the decision about the configuration of an installed CRI-O, which its operation carries out."""
    return judge_of(desired, actual).by_answers(
        VALUES,
        desired_values(desired.runtimes),
        actual_values(actual),
        actual.answers,
        needed_act(actual, desired.runtimes),
        lambda: needed_change(actual, desired.runtimes),
        is_forecast=actual.version is None or actual.files is None,
    )


def path_of(state: Crio) -> str:
    """Return the path of the drop-in: in the folder that this CRI-O reads."""
    return f"{state.folder}/{NAME}"


def desired_values(desired: Runtimes) -> dict[str, str]:
    """Return the values that the daemon must answer, by the keys of its configuration."""
    values = {"default_runtime": desired.default, "cgroup_manager": desired.manager}
    if desired.nvidia:
        values["runtimes.nvidia.runtime_path"] = NVIDIA_RUNTIME
    return values


def actual_values(state: Crio) -> dict[str, str | None]:
    """Return the values that the daemon answers, by the keys of `desired_values`."""
    return {
        "default_runtime": state.default_runtime,
        "cgroup_manager": state.cgroup_manager,
        "runtimes.nvidia.runtime_path": dict(state.runtimes).get("nvidia"),
    }


def needed_act(state: Crio, desired: Runtimes) -> Act:
    """Return what brings the daemon to the desired values."""
    actual = actual_values(state)
    return "restart" if any(actual[key] != value for key, value in desired_values(desired).items()) else "nothing"


def needed_change(state: Crio, desired: Runtimes) -> RuntimeChange | None:
    """Return the change that files or daemon need; None where they are as desired.

    Raise ConfigurationRefused where no drop-in brings the desired values. `state.files` must be known.
    """
    path, files, values = path_of(state), dict(state.files or ()), desired_values(desired)
    others = merged({name: text for name, text in files.items() if name != path}, state.root)
    if others.unreadable:
        raise ConfigurationRefused(f"CRI-O does not start with these files: {'; '.join(others.unreadable)}")
    try:
        text = render(files.get(path), others, desired)
    except ConfigurationRefused as refusal:
        raise ConfigurationRefused(f"{path}: {refusal}") from refusal
    after = merged({**files, path: text}, state.root)
    for key, value in values.items():
        merged_value, file = _merged_value(after, key)
        if merged_value != value:
            raise ConfigurationRefused(
                f"{file} is read after {path} and sets {key} = {merged_value!r}. Remedy: correct or remove that file"
            )
    act, written = needed_act(state, desired), WrittenFile(path, text)
    change = change_by_answers(written, files.get(path, ""), values, actual_values(state), act, state.active)
    if change is not None:
        _check(state, {*after.runtimes, *dict(state.runtimes)}, desired)
    return change


def _check(state: Crio, runtimes: set[str], desired: Runtimes) -> None:
    """Raise ConfigurationRefused where no drop-in would help; runtimes: the names that CRI-O knows."""
    if state.flags:
        raise ConfigurationRefused(
            f"crio is started with {', '.join(state.flags)}, which counts more than its files. Remedy: take the flag "
            "out of its unit (or of /etc/sysconfig/crio, /etc/default/crio)"
        )
    # A build of CRI-O has one of these two without a file.
    names = runtimes if state.answers else {*runtimes, "runc", "crun"}
    if desired.default not in names:
        raise ConfigurationRefused(
            f"CRI-O knows no runtime {desired.default}, but {', '.join(sorted(names))}. Remedy: set "
            "crio.default_runtime to one of them, or write its table [crio.runtime.runtimes]"
        )


def _merged_value(after: Merged, key: str) -> tuple[object, str | None]:
    """Return the merged value of a key, and the file that sets it."""
    if not key.startswith("runtimes."):
        return after.keys.get(key), after.said_in.get(key)
    _, name, option = key.split(".")
    return after.runtimes.get(name, {}).get(option), after.said_in.get(f"runtimes.{name}")
