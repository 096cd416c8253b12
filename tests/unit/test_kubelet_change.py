"""The kubelet's settings: what becomes of its drop-in or file, when it is restarted, and what cannot be asked of it."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.base.yaml_edit import changed, edited
from gpunode.components.kubelet.change import KubeletChange, drop_in, in_file, wanted
from gpunode.components.kubelet.decide import Desired, decide
from gpunode.settings.kubernetes import KubeletSettings
from gpunode.system.kubelet import Kubelet, parse_kubelet
from tests.support.kubelet import FILE, FOLDER, KUBEADM, asked, running, with_folder
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

OWN = f"{FOLDER}/90-gpunode.conf"
ASKED: dict[str, Any] = {"system_reserved": {"cpu": "500m"}, "max_pods": 64, "cpu_manager_policy": "static"}


def change_of(values: dict[str, Any], state: Kubelet) -> KubeletChange:
    """Return the change of the one step that is decided on."""
    (step,) = decide(Desired(asked(**values)), state).steps
    assert step.change is not None
    return step.change


def after(state: Kubelet, path: str, text: str | None) -> Kubelet:
    """Return the kubelet as a restart by the changed file makes it."""
    files = {name: said for name, said in state.files or () if name != path}
    if text is not None:
        files[path] = text
    flags = [f"--{name}={value}" for name, value in state.flags]
    flags += [f"--config-dir={state.config_dir}"] if state.config_dir else []
    return running(
        *flags, file=files.pop(FILE), drop_ins=dict(sorted(files.items())), pods=state.pods, version=state.version or ""
    )


def test_a_folder_of_drop_ins_gets_gpunode_s_own_and_a_kubelet_without_has_its_file_edited() -> None:
    change = change_of(ASKED, with_folder())
    assert (change.path, change.cpu_manager) == (OWN, "static") and yaml.safe_load(change.text or "") == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "systemReserved": {"cpu": "500m"},
        "maxPods": 64,
        "cpuManagerPolicy": "static",
    }
    change = change_of(ASKED, running())
    note, _, text = (change.text or "").partition("\n")
    assert change.path == FILE
    assert note.startswith("# gpunode ") and '"maxPods": 110' in note
    expected = KUBEADM.replace("maxPods: 110", "maxPods: 64").replace("  memory: 1Gi", "  cpu: 500m\n  memory: 1Gi")
    assert text == f"{expected}cpuManagerPolicy: static\n"


@pytest.mark.parametrize("state", [running(), with_folder()])
def test_a_second_run_changes_nothing_and_what_is_not_asked_any_more_leaves_nothing_behind(state: Kubelet) -> None:
    change = change_of(ASKED, state)
    then = after(state, change.path, change.text)
    assert not bad(*decide(Desired(asked(**ASKED)), then).findings)
    fewer = change_of({"max_pods": 64}, then)
    assert fewer.cpu_manager == "none"
    then = after(then, fewer.path, fewer.text)
    assert dict(then.configuration.settings if then.configuration else ())["cpuManagerPolicy"] == "none"
    gone = change_of({}, then)
    assert after(then, gone.path, gone.text).files == state.files
    assert not decide(Desired(asked()), state).findings


def test_pods_are_drained_for_what_they_feel_and_a_restart_waits_where_it_is_not_allowed() -> None:
    busy = replace(running(), pods=3)
    for values, felt in (({"max_pods": 200}, False), ({"max_pods": 20}, True), (ASKED, True)):
        (step,) = decide(Desired(asked(**values)), busy).steps
        assert step.felt == felt and step.waits is None and step.disruption is Disruption.restart
        waiting = decide(Desired(asked(**values), Disruption.nothing), busy)
        assert [unnamed(step.waits, "3 pods", "disruption.allow", "nothing") for step in waiting.steps] == [[]]
        assert {item.finding_class for item in bad(*waiting.findings)} == {FindingClass.RESTART_PENDING}
        assert decide(Desired(asked(**values), Disruption.nothing), running()).steps[0].waits is None


def test_a_file_that_comes_to_the_same_is_read_at_once_and_felt_by_nobody_and_a_stale_kubelet_is_restarted() -> None:
    # Without a restart the file is newer than the kubelet, and the next reading could not tell it from a change.
    (step,) = decide(Desired(asked(max_pods=110)), with_folder()).steps
    assert step.change is not None and step.disruption is Disruption.restart and not step.change.felt
    own = {OWN: drop_in(wanted(asked(max_pods=64)))}
    for written, stale in (("1795514399.0", False), ("1795514401.5", True)):
        state = running(f"--config-dir={FOLDER}", drop_ins=own, written=written)
        assert state.stale == stale
        steps = decide(Desired(asked(max_pods=64)), state).steps
        assert len(steps) == stale and all(step.change and not step.change.path for step in steps)
        # By which policy it runs that has not read its files nobody knows: one that differs would end its start.
        assert [step.change and step.change.cpu_manager for step in steps] == ["none"] * stale


def test_what_gpunode_set_in_the_file_goes_from_it_when_the_kubelet_gets_a_folder_of_drop_ins() -> None:
    values = {**ASKED, "eviction_hard": {"memory.available": "500Mi"}}
    first = change_of(values, running())
    assert first.cleared is None and first.text is not None
    state = running(f"--config-dir={FOLDER}", file=first.text)
    for desired, path in ((asked(**values), OWN), (asked(), "")):
        decision = decide(Desired(desired), state)
        (step,) = decision.steps
        assert step.change is not None and step.change.path == path and step.change.cleared == (FILE, KUBEADM)
        assert f"file {FILE}" in [item.what for item in bad(*decision.findings)]
        then = after(after(state, FILE, KUBEADM), OWN, step.change.text)
        # What stands in the drop-in is all of it, the kubelet's own thresholds too.
        assert bool(then.configuration and "500Mi" in str(then.configuration.settings)) == bool(path)
        assert not bad(*decide(Desired(desired), then).findings)
    assert len(yaml.safe_load(change_of(values, state).text or "")["evictionHard"]) == 4
    spoilt = running(f"--config-dir={FOLDER}", file="# gpunode set values here; before (null: none): ?\nmaxPods: 64\n")
    refusal = str(decide(Desired(asked(**ASKED)), spoilt).refusal)
    assert unnamed(refusal, FILE, "gpunode") == []


def test_a_file_that_was_touched_alone_is_no_reason_to_restart_a_kubelet_that_gpunode_started() -> None:
    own = drop_in(wanted(asked(max_pods=64)))
    lines = ["kubelet=Kubernetes v1.30.4", "argument=/usr/bin/kubelet", f"argument=--config-dir={FOLDER}"]
    lines += [f"file={OWN} {base64.b64encode(own.encode()).decode()}", "written=1795514401.5"]
    lines += ["started=Tue 2026-11-24 10:00:00.000000 UTC", "process=77 4201"]
    right = [f"noted={hashlib.sha256(own.encode()).hexdigest()} {OWN}"]
    assert not parse_kubelet([*lines, "noted=77 4201", *right]).stale
    others: tuple[list[str], ...] = (
        [],
        ["noted=77 4200", *right],
        ["noted=77 4201"],
        ["noted=77 4201", f"noted=none {OWN}"],
        ["noted=77 4201", *right, "noted=none /gone"],
    )
    for noted in others:
        assert parse_kubelet([*lines, *noted]).stale


def test_a_changed_reservation_of_cpus_resets_a_static_manager_and_another_does_not() -> None:
    static = {"cpu_manager_policy": "static", "system_reserved": {"cpu": "1"}}
    state = with_folder(**{"90-gpunode": drop_in(wanted(asked(**static)))})
    assert change_of({**static, "system_reserved": {"cpu": "2"}}, state).cpu_manager == "static"
    assert change_of({**static, "max_pods": 20}, state).cpu_manager is None


@pytest.mark.parametrize(("version", "more"), [("1.29.15", {}), ("1.30.0", {"imagefs.inodesFree": "5%"})])
@pytest.mark.parametrize("folder", [True, False])
def test_one_threshold_keeps_the_kubelet_s_defaults_of_the_others_unless_somebody_said_some(
    folder: bool, version: str, more: dict[str, str]
) -> None:
    flags = [f"--config-dir={FOLDER}"] if folder else []
    desired = Desired(asked(eviction_hard={"memory.available": "500Mi"}))
    state = running(*flags, version=version)
    found = dict(state.configuration.settings if state.configuration else ())
    assert found.get("evictionHard/imagefs.inodesFree") == more.get("imagefs.inodesFree")
    change = change_of({"eviction_hard": {"memory.available": "500Mi"}}, state)
    assert yaml.safe_load(change.text or "")["evictionHard"] == {
        "memory.available": "500Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
        "imagefs.available": "15%", **more,
    }  # fmt: skip
    assert not bad(*decide(desired, after(state, change.path, change.text)).findings)
    theirs = running(*flags, file=KUBEADM + "evictionHard: {nodefs.available: 20%}\n")
    thresholds = change_of({"eviction_hard": {"memory.available": "500Mi"}}, theirs).settings
    assert thresholds["evictionHard/nodefs.available"] == "20%" and "evictionHard/imagefs.available" not in thresholds


def test_a_node_that_has_not_joined_yet_is_told_so_and_fails_no_run() -> None:
    decision = decide(Desired(asked(max_pods=64)), Kubelet(None))
    assert decision.refusal is None and not decision.steps and not bad(*decision.findings)
    assert decision.findings[0].finding_class is FindingClass.NOT_KNOWN and not decision.findings[0].is_negative
    assert not decide(Desired(asked()), Kubelet("1.30.4")).findings
    recorded = replace(running(), files=None)
    assert [step.change for step in decide(Desired(asked(max_pods=64)), recorded).steps] == [None]
    assert "files" not in running().to_json()


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pid"]), st.sampled_from(["1", "500m", "1Gi", "1e3"]), max_size=3
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "systemReserved": AMOUNTS, "kubeReserved": AMOUNTS, "maxPods": st.integers(1, 500),
        "clusterDNS": st.just(["a"]), "featureGates": st.just({"A": True}),
        "cpuManagerPolicy": st.sampled_from(["none", "static"]),
    },
)  # fmt: skip
SETTINGS = st.builds(
    lambda **values: KubeletSettings.model_validate({key: value for key, value in values.items() if value}),
    system_reserved=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2Gi"]), max_size=2),
    eviction_hard=st.dictionaries(st.sampled_from(["memory.available", "nodefs.available"]), st.just("7%"), max_size=2),
    max_pods=st.sampled_from([None, 20, 110]),
    topology_manager_policy=st.sampled_from([None, "restricted"]),
)


def _without_empty(text: str) -> dict[str, Any]:
    """Return what a text says but for mappings without an entry, which say nothing."""
    return {key: value for key, value in (yaml.safe_load(text) or {}).items() if value != {}}


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS, SETTINGS, SETTINGS, st.booleans())
def test_any_file_says_what_is_asked_keeps_all_else_and_comes_back_as_it_was(
    document: dict[str, Any], first: KubeletSettings, second: KubeletSettings, braces: bool
) -> None:
    text = "".join(
        f"# on {key}\n{f'{key}: {json.dumps(value)}' if braces else yaml.safe_dump({key: value}).rstrip()}\n"
        for key, value in document.items()
    )
    one = in_file(text, wanted(first))
    assert (yaml.safe_load(one) or {}) == changed(document, wanted(first))
    two = in_file(one, wanted(second))
    full = {key: value for key, value in document.items() if value != {}}
    assert _without_empty(two) == changed(full, wanted(second))
    assert _without_empty(in_file(two, {})) == full
    assert in_file(one, wanted(first)) == one and in_file(text, {}) == text
    assert all(line in two.splitlines() for line in text.splitlines() if line.startswith("# on"))


@given(st.text(max_size=60))
def test_any_text_is_edited_to_what_is_asked_or_refused(text: str) -> None:
    try:
        result = edited(text, {("maxPods",): 7, ("systemReserved", "cpu"): "1"})
    except ConfigurationRefused:
        return
    found = yaml.safe_load(result)
    assert found["maxPods"] == 7 and found["systemReserved"]["cpu"] == "1"
