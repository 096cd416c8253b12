"""The decision about CRI-O: every comparison of actual with desired, its drop-in, and whether it needs a restart."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpunode.base import versions
from gpunode.base.comparison import BY_HAND, DRIFT, by_hand
from gpunode.base.decision import Decision
from gpunode.base.disruption import Disruption
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.crio.editor import render
from gpunode.components.runtimes.crio.state import Crio, merged
from gpunode.components.runtimes.judge import Desired, RuntimeFindings, RuntimeJudge
from gpunode.components.runtimes.runtime import (
    NVIDIA_RUNTIME,
    RESTART_FORBIDDEN,
    Answers,
    RuntimeChange,
    Runtimes,
    WrittenFile,
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
NVIDIA_PATH = "runtimes.nvidia.runtime_path"
# What `crio status config` answers -> the finding about it.
VALUES = {
    "default_runtime": runtime_finding("crio", "default runtime", RESTART_FORBIDDEN),
    "cgroup_manager": runtime_finding("crio", "cgroup driver", RESTART_FORBIDDEN),
    NVIDIA_PATH: runtime_finding("crio", "runtime nvidia", RESTART_FORBIDDEN),
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
    answers, change = answers_of(actual, desired.runtimes), partial(needed_change, actual, desired.runtimes)
    is_forecast = actual.version is None or actual.files is None
    return judge_of(desired, actual).by_answers(VALUES, answers, change, is_forecast)


def path_of(state: Crio) -> str:
    """Return the path of the drop-in: in the folder that this CRI-O reads."""
    return f"{state.folder}/{NAME}"


def answers_of(actual: Crio, desired: Runtimes) -> Answers:
    """Return what the daemon answers, and must answer, by the keys of its configuration."""
    values = {
        "default_runtime": (desired.default, actual.default_runtime),
        "cgroup_manager": (desired.manager, actual.cgroup_manager),
        NVIDIA_PATH: (NVIDIA_RUNTIME if desired.nvidia else None, dict(actual.runtimes).get("nvidia")),
    }
    return Answers(values, actual.active)


def needed_change(state: Crio, desired: Runtimes) -> RuntimeChange | None:
    """Return the change that files or daemon need; None where they are as desired.

    Raise ConfigurationRefused where no drop-in brings the desired values. `state.files` must be known.
    """
    path, files, answers = path_of(state), dict(state.files or ()), answers_of(state, desired)
    others = merged({name: text for name, text in files.items() if name != path}, state.root)
    if others.unreadable:
        raise ConfigurationRefused(f"CRI-O does not start with these files: {'; '.join(others.unreadable)}")
    try:
        text = render(files.get(path), others, desired)
    except ConfigurationRefused as refusal:
        raise ConfigurationRefused(f"{path}: {refusal}") from refusal
    after = merged({**files, path: text}, state.root)
    merged_values = {**after.keys, NVIDIA_PATH: after.runtimes.get("nvidia", {}).get("runtime_path")}
    for key, (value, _) in answers.managed.items():
        if merged_values.get(key) != value:
            file = after.said_in.get(key.removesuffix(".runtime_path"))
            raise ConfigurationRefused(
                f"{file} is read after {path} and sets {key} = {merged_values.get(key)!r}. Remedy: correct or remove "
                "that file"
            )
    change = answers.change(WrittenFile(path, text), files.get(path, ""), answers.act)
    if change is not None and state.flags:
        raise ConfigurationRefused(
            f"crio is started with {', '.join(state.flags)}, which counts more than its files. Remedy: take the flag "
            "out of its unit (or of /etc/sysconfig/crio, /etc/default/crio)"
        )
    runtimes = {*after.runtimes, *dict(state.runtimes)}
    # A build of CRI-O has one of these two without a file.
    names = runtimes if state.default_runtime is not None else {*runtimes, "runc", "crun"}
    if change is not None and desired.default not in names:
        raise ConfigurationRefused(
            f"CRI-O knows no runtime {desired.default}, but {', '.join(sorted(names))}. Remedy: set "
            "crio.default_runtime to one of them, or write its table [crio.runtime.runtimes]"
        )
    return change
