"""What is to be done about a kubelet: every comparison with what is desired, and the step for the differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base.comparison import (
    AS_DESIRED,
    RESTART,
    RUN,
    by_hand,
    configuration,
    configuration_files,
    file_message,
    finding_message,
    pending,
    running_configuration,
    unrecorded,
)
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.kubelet.change import OURS, KubeletChange, change, is_in_file, path_of, wanted
from gpunode.settings.kubernetes import KubeletSettings
from gpunode.system.kubelet import Kubelet, unread

UNIT = "kubelet.service"

_NONE = "no kubelet runs on this node: join the node to its cluster, see `journalctl -u kubelet`, and run again"
_UNREAD = "a kubelet runs, and its configuration cannot be read: {files}"
_RESTORE = f"restore or correct what the cause names, see `journalctl -u kubelet`, and {RUN}"
_PODS = "{pods} pods run and disruption.allow is nothing"
_MOVED = "the kubelet was given a folder of drop-ins, where they belong"
SERVICE = finding_message(
    "kubelet",
    "service",
    "No kubelet runs on this node that could be configured.",
    "It is a caution: a node may be prepared before it joins its cluster.",
    causes=(_NONE,),
    remedies=("join the node to its cluster, and run again",),
    classes=(),
)
SETTING = finding_message(
    "kubelet",
    "kubelet's",
    "A setting of the kubelet is not as desired.",
    "GPUs need it, such as the policy of the CPU manager. The drop-in lacks it, or another file wins.",
    name="setting",
    classes=RESTART,
    causes=(_PODS, _UNREAD),
    remedies=(RUN, _RESTORE),
)
FILE = file_message("kubelet")
CONFIGURATION = configuration_files("kubelet")
RUNNING_CONFIGURATION = running_configuration("kubelet", "they were written after the kubelet started")


@dataclass(frozen=True)
class Desired:
    """Hold what a kubelet is to go by, and what a change may disturb."""

    settings: KubeletSettings
    allowed: Disruption = Disruption.restart


def decide(desired: Desired, actual: Kubelet) -> Decision[KubeletChange]:
    """Return what is to be done about the kubelet's configuration, and a kubelet that runs since before its files."""
    if actual.configuration is None:
        if not desired.settings.asks:
            return Decision(())
        if actual.running:
            return _unread(desired.settings, actual)
        # A node may be set up before it joins: that alone fails no run.
        return Decision((SERVICE.not_known(None, _NONE, SERVICE.remedies[0], of=UNIT),))
    said = tuple(_said(desired.settings, actual))
    if actual.files is None:
        if bad(*said):
            step: Step[KubeletChange] = Step("bring its settings to what is asked", bad(*said), Disruption.restart)
            return Decision(said, (step,))
        return Decision((*said, unrecorded(CONFIGURATION)) if desired.settings.asks else said)
    try:
        to_come = change(actual, desired.settings) if desired.settings.asks or _is_ours(actual) else None
    except ConfigurationRefused as refusal:
        reason = f"kubelet: {refusal}"
        item = configuration(CONFIGURATION, None, str(refusal))
        return Decision((*(by_hand(each, str(refusal)) for each in said), item), (), reason)
    return _with_step(desired, actual, (*said, *_of_files(desired.settings, actual, to_come)), to_come)


def _unread(settings: KubeletSettings, actual: Kubelet) -> Decision[KubeletChange]:
    """Return the decision about a kubelet that runs while one of its files is missing or cannot be parsed."""
    files = [(f"{path}{why}", text) for path, text in actual.files or () if (why := unread(text)) is not None]
    cause = _UNREAD.format(files=", ".join(path for path, _ in files) or "one of its files")
    desired = {"/".join(path): str(value) for path, value in wanted(settings).items()}
    items = tuple(SETTING.not_known(value, cause, _RESTORE, of=name) for name, value in desired.items())
    # Before it joins, systemd starts the kubelet again and again without its file: that fails no run.
    refusal = f"kubelet: {cause}; nothing was changed. Remedy: {_RESTORE}" if any(text for _, text in files) else None
    return Decision(items, (), refusal)


def _said(settings: KubeletSettings, actual: Kubelet) -> Iterator[Finding]:
    found = dict(actual.configuration.settings) if actual.configuration is not None else {}
    for path, value in wanted(settings).items():
        name = "/".join(path)
        good = found.get(name) == str(value)
        yield SETTING.compared(found.get(name), value, good, of=name, disruption=Disruption.restart)


def _of_files(settings: KubeletSettings, actual: Kubelet, to_come: KubeletChange | None) -> Iterator[Finding]:
    path = path_of(actual)
    if not settings.asks and to_come is None:
        return
    if to_come is not None and to_come.path and to_come.text is None:
        yield FILE.compared("there", "none", False, of=to_come.path, disruption=Disruption.restart)
    else:
        others = path if to_come is not None and to_come.path else None
        yield configuration(CONFIGURATION, others, disruption=Disruption.restart)
    if to_come is not None and to_come.cleared is not None:
        yield FILE.compared(
            "values of gpunode's",
            "none of gpunode's",
            False,
            of=to_come.cleared[0],
            cause=_MOVED,
            disruption=Disruption.restart,
        )
    yield RUNNING_CONFIGURATION.compared(
        "older than its files" if actual.stale else AS_DESIRED,
        AS_DESIRED,
        not actual.stale,
        of=UNIT,
        disruption=Disruption.restart,
    )


def _with_step(
    desired: Desired, actual: Kubelet, findings: tuple[Finding, ...], to_come: KubeletChange | None
) -> Decision[KubeletChange]:
    done = bad(*findings)
    if to_come is None or not done:
        return Decision(findings)
    waits = None
    # A kubelet that starts admits its pods again.
    if is_forbidden(Disruption.restart, desired.allowed, actual.pods):
        waits = _PODS.format(pods=actual.pods)
        findings = tuple(pending(item, waits) for item in findings)
        done = bad(*findings)
    what = "write its configuration" if to_come.path or to_come.cleared else "have it read its files"
    step = Step(
        f"{what} and restart it", done, Disruption.restart, waits, to_come, felt=to_come.felt and actual.pods > 0
    )
    return Decision(findings, (step,))


def _is_ours(actual: Kubelet) -> bool:
    """Say whether there is something of gpunode's, which goes where nothing is asked for any more."""
    files = dict(actual.files or ())
    own = actual.configuration.file if actual.configuration is not None else None
    by_drop_in = actual.config_dir is not None and files.get(path_of(actual) or "", "").startswith(OURS)
    return by_drop_in or is_in_file(files.get(own or "", ""))
