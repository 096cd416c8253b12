"""Helm releases: what helm tells of one, how it differs from what is asked, and what is done about it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.kubernetes.helm.change import Reading, ReleaseChange, Wanted, change, removal
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.difference import differences, drifted
from gpunode.kubernetes.helm.manifest import Identity, Object, objects
from gpunode.kubernetes.helm.program import version_command
from gpunode.kubernetes.helm.release import MARK, Release, Revision, Status, StoredRevision, parse_history, parse_list
from gpunode.settings import SettingsError
from tests.support.helm import MANIFEST, NOW, OTHER, SAME, TIMEOUT, commands
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

# A busy machine takes longer, and is not what is tried.
unhurried = settings(deadline=None)


def _differences(wanted: str, found: str) -> list[str]:
    return [str(each) for each in differences(objects(wanted, "gpu"), objects(found, "gpu"))]


def test_order_defaults_and_comments_are_no_difference() -> None:
    assert _differences(MANIFEST, SAME) == _differences(SAME, MANIFEST) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("image: plugin:v1\n", "image: plugin:v2\n", 'containers[main].image: "plugin:v2", desired "plugin:v1"'),
        ('{name: TWO, value: "2"}', '{name: TWO, value: "3"}', 'containers[main].env[TWO].value: "3", desired "2"'),
        (', {name: TWO, value: "2"}', "", 'env[TWO]: absent, desired {"name":"TWO","value":"2"}'),
        ("cpu: 1000m", "cpu: 1001m", 'resources.limits.cpu: "1.001", desired "1"'),
        ("[{key: a}, {key: b}]", "[{key: a}]", 'tolerations: [{"key":"a"}], desired [{"key":"a"},{"key":"b"}]'),
        ("kind: DaemonSet", "kind: Deployment", "Deployment nvdp: desired absent"),
        ("labels: {a: b}", "labels: {a: b, c: d}", 'metadata.labels.c: "d", desired absent'),
        ('value: "1"', "value: 1", 'env[ONE].value: 1, desired "1"'),
        ("apps/v1", "apps/v1beta2", 'apiVersion: "apps/v1beta2", desired "apps/v1"'),
        ("namespace: gpu", "namespace: other", "DaemonSet other/nvdp: desired absent"),
        ('[{name: ONE, value: "1"}', '[{name: TWO, value: "2"}', "env:"),
    ],
)
def test_what_differs_is_told_with_its_place(before: str, after: str, told: str) -> None:
    assert before in MANIFEST
    assert any(told in line for line in _differences(MANIFEST, MANIFEST.replace(before, after, 1)))


def test_containers_that_start_one_after_another_have_an_order() -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {initContainers: [{name: %s}, {name: %s}]}\n"
    assert _differences(pod % ("one", "two"), pod % ("two", "one"))


def test_a_number_left_out_of_a_deployment_is_no_default_of_a_daemonset() -> None:
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {strategy: {rollingUpdate: {%s}}}\n"
    assert _differences(text % "maxUnavailable: 1", text % "maxSurge: 1")


def test_no_secret_shows_in_a_difference() -> None:
    changed = MANIFEST.replace("hunter2", "hunter3")
    for found in (changed, MANIFEST.replace("stringData: {key: hunter2}", "stringData: hunter3"), ""):
        told = _differences(MANIFEST, found)
        assert told and "hunter" not in " ".join(told)
    assert _differences(MANIFEST, changed) == ["Secret credentials: stringData.key: <not shown>, desired <not shown>"]
    variable = MANIFEST.replace("TWO", "API_TOKEN")
    for found in (
        variable.replace('value: "2"', "value: hunter2"),
        variable.replace(', {name: API_TOKEN, value: "2"}', ""),
    ):
        told = _differences(found, variable)
        assert told and "hunter2" not in " ".join(told) and '"2"' not in " ".join(told)
    assert "hunter" not in repr(objects(MANIFEST, "gpu"))


def test_hooks_are_no_part_of_a_manifest() -> None:
    hook = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: test, annotations: {helm.sh/hook: test}}\n"
    assert _differences(MANIFEST + hook, MANIFEST) == []


@pytest.mark.parametrize(
    "manifest",
    [
        "a: [",
        "7",
        "- 1",
        "kind: Pod",
        "{kind: Pod, apiVersion: v1, metadata: {}}",
        "a: !!python/object:x {}",
        MANIFEST * 2,
    ],
)
def test_what_is_no_manifest_is_refused_without_its_words(manifest: str) -> None:
    with pytest.raises(ParseError) as error:
        objects(manifest, "gpu")
    assert "hunter2" not in str(error.value) and "\n" not in str(error.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["env", "name", "containers", "limits", "ports", "rules", "data", "annotations", "configMap"]
    ), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@unhurried
@given(plain, plain)
def test_an_object_differs_from_another_and_not_from_itself(one: Any, other: Any) -> None:
    def made(spec: Any) -> dict[Identity, Object]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
        return objects(yaml.safe_dump(pod), "gpu")

    assert differences(made(one), made(one)) == drifted(made(one), made(one)) == ()
    told = differences(made(one), made(other))
    assert all("\n" not in str(each) for each in told)
    assert bool(told) == bool(differences(made(other), made(one)))


def _live(**changes: str) -> dict[Identity, Object]:
    """Return the objects as an API server has them: more fields, and what others added."""
    text = MANIFEST
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    found: dict[Identity, Object] = {}
    for document in yaml.safe_load_all(text):
        document["metadata"] |= {"uid": "1", "namespace": "gpu", "managedFields": [{}], "annotations": {"theirs": "1"}}
        document["status"] = {"numberReady": 1}
        if document["kind"] == "DaemonSet":
            document["spec"]["template"]["spec"]["containers"].append({"name": "injected", "image": "mesh"})
            document["spec"]["revisionHistoryLimit"] = 10
        made = objects(yaml.safe_dump(document), "gpu")
        found |= made
    return found


def test_what_a_server_and_others_add_is_no_drift() -> None:
    assert drifted(objects(MANIFEST, "gpu"), _live()) == ()


def test_a_field_changed_by_hand_is_drift() -> None:
    (only,) = drifted(objects(MANIFEST, "gpu"), _live(**{'value: "2"': 'value: "9"'}))
    assert str(only).endswith('containers[main].env[TWO].value: "9", desired "2"')
    (gone,) = drifted(objects(MANIFEST, "gpu"), {k: v for k, v in _live().items() if k.kind != "Secret"})
    assert str(gone) == "Secret credentials: absent"


# As NVIDIA's charts since 0.15 and node feature discovery write them, and as an API server returns them.
WITH_EMPTY = """apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvdp, namespace: gpu, labels: {empty: ""}, annotations: }
spec:
  updateStrategy: {}
  template:
    spec:
      initContainers: [{name: init, env: [{name: KUBECONFIG, value: ""}, {name: SIGNAL, value: }], args: []}]
      tolerations: [{key: master, operator: Equal, value: "", effect: NoSchedule}]
      volumes: [{name: config, emptyDir: {}}]
"""
WITHOUT_EMPTY = """apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvdp, namespace: gpu, labels: {empty: ""}}
spec:
  template:
    spec:
      initContainers: [{name: init, env: [{name: KUBECONFIG}, {name: SIGNAL}]}]
      tolerations: [{key: master, operator: Equal, effect: NoSchedule}]
      volumes: [{name: config, emptyDir: {}}]
"""


def _drift(wanted: str, live: str) -> list[str]:
    return [str(each) for each in drifted(objects(wanted, "gpu"), objects(live, "gpu"))]


def test_an_empty_field_that_the_api_server_drops_is_no_drift() -> None:
    assert _drift(WITH_EMPTY, WITHOUT_EMPTY) == _differences(WITH_EMPTY, WITHOUT_EMPTY) == []
    assert _differences(WITHOUT_EMPTY, WITH_EMPTY) == []
    release = _release(("deployed", ""))
    reading = Reading(release, _stored(1, WITH_EMPTY), live=objects(WITHOUT_EMPTY, "gpu"))
    assert change(replace(WANTED, manifest=WITH_EMPTY), reading, NOW, TIMEOUT) == ReleaseChange()


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("{name: KUBECONFIG}", "{name: KUBECONFIG, value: /mine}", 'env[KUBECONFIG].value: "/mine", desired ""'),
        ('labels: {empty: ""}', "labels: {}", "metadata.labels"),
        (", emptyDir: {}", "", "volumes[config].emptyDir: absent"),
        ("operator: Equal, ", "operator: Equal, value: mine, ", 'tolerations[0].value: "mine", desired ""'),
    ],
)
def test_what_somebody_wrote_in_the_place_of_an_empty_field_is_drift(before: str, after: str, told: str) -> None:
    assert before in WITHOUT_EMPTY
    (only,) = _drift(WITH_EMPTY, WITHOUT_EMPTY.replace(before, after))
    assert told in only


WITH_DEFAULTS = """apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvdp, namespace: gpu}
spec:
  template:
    spec:
      hostPID: false
      containers:
        - name: main
          terminationMessagePolicy: File
          ports: [{containerPort: 80, protocol: TCP}]
          env: [{name: NODE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}}]
          volumeMounts: [{name: dev, mountPath: /dev, readOnly: false}]
      volumes: [{name: dev, configMap: {name: dev, optional: false, defaultMode: 420}}]
"""


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("hostPID: false", "hostPID: true", "template.spec.hostPID: true, desired false"),
        ("readOnly: false", "readOnly: true", "volumeMounts[/dev].readOnly: true, desired false"),
        ("Policy: File", "Policy: FallbackToLogsOnError", '"FallbackToLogsOnError", desired "File"'),
        ("protocol: TCP", "protocol: UDP", "ports[0]"),
        ("optional: false", "optional: true", "volumes[dev].configMap.optional: true, desired false"),
        ("Mode: 420", "Mode: 256", "volumes[dev].configMap.defaultMode: 256, desired 420"),
    ],
)
def test_what_somebody_changed_from_a_default_that_the_chart_writes_is_drift(
    before: str, after: str, told: str
) -> None:
    assert before in WITH_DEFAULTS
    (only,) = _drift(WITH_DEFAULTS, WITH_DEFAULTS.replace(before, after))
    assert told in only


def test_a_default_that_one_side_leaves_out_is_no_difference() -> None:
    left_out = WITH_DEFAULTS.replace("      hostPID: false\n", "").replace(", readOnly: false", "")
    left_out = left_out.replace(", optional: false, defaultMode: 420", "").replace(", protocol: TCP", "")
    for one, other in ((WITH_DEFAULTS, left_out), (left_out, WITH_DEFAULTS)):
        assert _drift(one, other) == _differences(one, other) == []
    # What nobody wrote is not gpunode's: helm would not take it away either.
    assert _drift(left_out, WITH_DEFAULTS.replace("hostPID: false", "hostPID: true")) == []


def test_a_custom_resource_keeps_its_empty_fields_and_lacks_none() -> None:
    policy = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: a}\nspec: {%s}\n"
    assert _drift(policy % 'version: ""', policy % "") == ['ClusterPolicy a: spec.version: absent, desired ""']
    assert _drift(policy % "args: []", policy % "") == ["ClusterPolicy a: spec.args: absent, desired []"]


fields = st.recursive(
    st.sampled_from(["", "x", "1"]) | st.none() | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["env", "name", "value", "key", "args", "containers", "tolerations", "rules", "strategy", "volumes"]
    ), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


def _served(value: Any) -> Any:
    """Return a value as an API server returns it that knows all fields of a kind."""
    if isinstance(value, dict):
        served = {key: _served(item) for key, item in value.items()}
        # A container's or a variable's name is no optional field: an empty one is written, too.
        kept = {key: item for key, item in served.items() if item is not None and item not in ("", {}, [])}
        return kept | ({"name": ""} if value.get("name") == "" else {})
    return list(map(_served, value)) if isinstance(value, list) else value


@unhurried
@given(fields)
def test_what_an_api_server_keeps_of_an_object_is_no_drift_from_it(spec: Any) -> None:
    def made(content: Any) -> dict[Identity, Object]:
        found = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}, "spec": content}
        return objects(yaml.safe_dump(found), "gpu")

    assert drifted(made(spec), made(_served(spec))) == differences(made(spec), made(_served(spec))) == ()


WANTED = Wanted("nvidia-device-plugin", "0.20.0", "gpu", MANIFEST, takes_over=True)
FOREIGN = replace(WANTED, takes_over=False)


def _release(*revisions: tuple[str, str], age: int = 3600, chart: str = "nvidia-device-plugin-0.20.0") -> Release:
    updated = NOW - timedelta(seconds=age)
    return Release(
        tuple(Revision(n, Status(status), chart, updated, words) for n, (status, words) in enumerate(revisions, 1))
    )


def _stored(number: int, manifest: str = MANIFEST) -> StoredRevision:
    return StoredRevision(number, manifest)


def _acts(found: ReleaseChange) -> list[str]:
    return [step.act if step.revision is None else f"{step.act} {step.revision}" for step in found.steps]


def test_no_release_is_installed() -> None:
    assert _acts(change(WANTED, Reading(None), NOW, TIMEOUT)) == ["install"]


def test_a_release_that_is_as_asked_is_left() -> None:
    release = _release(("superseded", ""), ("deployed", ""))
    assert change(WANTED, Reading(release, _stored(2, SAME)), NOW, TIMEOUT) == ReleaseChange()
    assert change(WANTED, Reading(release, _stored(2, SAME), live=_live()), NOW, TIMEOUT) == ReleaseChange()


def test_another_manifest_is_upgraded_to() -> None:
    found = change(WANTED, Reading(_release(("deployed", "")), _stored(1, OTHER)), NOW, TIMEOUT)
    assert _acts(found) == ["upgrade"] and not found.by_hand
    assert '"plugin:v0", desired "plugin:v1"' in found.steps[0].reason and len(found.differences) == 2


def test_another_version_of_the_chart_is_upgraded_to() -> None:
    release = _release(("deployed", ""), chart="nvidia-device-plugin-0.17.1")
    found = change(WANTED, Reading(release, _stored(1)), NOW, TIMEOUT)
    assert [step.reason for step in found.steps] == ["chart 0.17.1, desired 0.20.0"]


def test_what_was_changed_by_hand_in_the_cluster_is_brought_back() -> None:
    live = _live(**{"plugin:v1": "plugin:debug"})
    found = change(WANTED, Reading(_release(("deployed", "")), _stored(1), live=live), NOW, TIMEOUT)
    assert _acts(found) == ["upgrade"] and found.by_hand
    assert found.steps[0].reason.startswith("changed by hand: DaemonSet nvdp")


@pytest.mark.parametrize(
    ("revisions", "good", "acts"),
    [
        ([("failed", "boom")], None, ["uninstall", "install"]),
        ([("pending-install", "")], None, ["uninstall", "install"]),
        ([("superseded", ""), ("deployed", ""), ("pending-upgrade", "")], _stored(2), ["rollback 2"]),
        ([("deployed", ""), ("pending-upgrade", "")], _stored(1, OTHER), ["rollback 1", "upgrade"]),
        ([("deployed", ""), ("failed", ""), ("pending-rollback", "")], _stored(1), ["rollback 1"]),
        ([("superseded", ""), ("superseded", "")], _stored(2), ["rollback 2"]),
        ([("superseded", ""), ("failed", "")], _stored(1, OTHER), ["rollback 1", "upgrade"]),
        ([("deployed", ""), ("failed", "")], _stored(1), []),
        ([("deployed", ""), ("failed", "")], _stored(1, OTHER), ["upgrade"]),
        ([("uninstalling", "")], None, ["uninstall", "install"]),
        ([("superseded", ""), ("uninstalled", "")], None, ["uninstall", "install"]),
    ],
)
def test_a_release_that_was_left_behind_is_recovered_first(
    revisions: list[tuple[str, str]], good: StoredRevision | None, acts: list[str]
) -> None:
    assert _acts(change(WANTED, Reading(_release(*revisions), good), NOW, TIMEOUT)) == acts


def test_it_is_known_whose_pods_stay_by_the_revision_that_is_gone_back_to() -> None:
    """By that one, whatever the desired revision and the one that was cut off say."""
    stays = MANIFEST.replace("spec:\n  template:", "spec:\n  updateStrategy: {type: OnDelete}\n  template:", 1)
    daemon_set = Identity("apps", "DaemonSet", "", "nvdp")
    behind, release = StoredRevision(1, stays), _release(("deployed", ""), ("pending-upgrade", ""))
    for desired, ours in ((stays, {daemon_set}), (MANIFEST, set())):
        found = change(replace(WANTED, manifest=desired), Reading(release, behind), NOW, TIMEOUT)
        assert found.stays_behind == {daemon_set} and (found.stays == ours or _acts(found) == ["rollback 1"])
    assert change(WANTED, Reading(release, _stored(1)), NOW, TIMEOUT).stays_behind == frozenset()
    # Where nothing is gone back to, it is no matter.
    upgraded = change(WANTED, Reading(_release(("deployed", "")), behind), NOW, TIMEOUT)
    assert _acts(upgraded) == ["upgrade"] and upgraded.stays_behind == frozenset()


@pytest.mark.parametrize("status", ["pending-install", "pending-upgrade", "pending-rollback", "uninstalling"])
def test_a_helm_that_may_be_at_work_is_left_alone(status: str) -> None:
    for age in (0, TIMEOUT, -60):
        found = change(WANTED, Reading(_release(("deployed", ""), (status, ""), age=age), _stored(1)), NOW, TIMEOUT)
        assert not found.steps and "another helm" in (found.refused or "")
    old = change(WANTED, Reading(_release(("deployed", ""), (status, ""), age=TIMEOUT + 1), _stored(1)), NOW, TIMEOUT)
    assert old.steps and old.refused is None


def test_a_pending_release_of_unknown_age_is_for_a_person() -> None:
    release = Release((Revision(1, Status.PENDING_UPGRADE, "nvidia-device-plugin-0.20.0", None, ""),))
    found = change(WANTED, Reading(release), NOW, TIMEOUT)
    assert not found.steps and "by hand" in (found.refused or "")


def test_what_failed_and_was_rolled_back_is_not_tried_again() -> None:
    release = _release(
        ("superseded", ""), ("failed", 'Upgrade "nvdp" failed:\nno such image'), ("deployed", "Rollback to 1")
    )
    reading = Reading(release, _stored(3, OTHER), undone=_stored(2, SAME))
    found = change(WANTED, reading, NOW, TIMEOUT)
    assert not found.steps
    assert 'revision 2 with the same content failed and was rolled back (Upgrade "nvdp" failed: no such image)' in (
        found.refused or ""
    )
    # Other settings are another attempt.
    other = replace(WANTED, manifest=MANIFEST.replace("plugin:v1", "plugin:v2"))
    assert _acts(change(other, reading, NOW, TIMEOUT)) == ["upgrade"]
    # And who asks for what is there gets it without a word.
    back = replace(WANTED, manifest=OTHER)
    assert change(back, reading, NOW, TIMEOUT) == ReleaseChange()


def test_what_failed_is_not_tried_again_though_its_rollback_was_cut_off_and_recovered() -> None:
    cut_off = _release(("superseded", ""), ("failed", "no such image"), ("pending-rollback", "Rollback to 1"))
    found = change(WANTED, Reading(cut_off, _stored(1, OTHER), undone=_stored(2, SAME)), NOW, TIMEOUT)
    assert _acts(found) == ["rollback 1"] and "revision 2" in (found.refused or "")
    recovered = Release((*cut_off.revisions, *_release(*[("deployed", "Rollback to 1")] * 4).revisions[3:]))
    assert recovered.undone == cut_off.undone == cut_off.revisions[1]
    found = change(WANTED, Reading(recovered, _stored(4, OTHER), undone=_stored(2, SAME)), NOW, TIMEOUT)
    assert not found.steps and "revision 2" in (found.refused or "")

    # One that succeeded, and another one by hand, are no rollback of what failed before them.
    by_hand = _release(
        *[("superseded", "")] * 2, ("failed", ""), ("superseded", "Rollback to 2"), ("deployed", "Rollback to 1")
    )
    assert by_hand.undone is None


def test_a_rollback_by_hand_after_a_success_is_undone() -> None:
    release = _release(("superseded", ""), ("superseded", ""), ("deployed", "Rollback to 1"))
    assert _acts(change(WANTED, Reading(release, _stored(3, OTHER)), NOW, TIMEOUT)) == ["upgrade"]


def test_a_release_of_another_chart_is_somebody_else_s() -> None:
    release = _release(("deployed", ""), chart="postgresql-15.1.0")
    found = change(WANTED, Reading(release, _stored(1)), NOW, TIMEOUT)
    assert not found.steps and "postgresql" in (found.refused or "")
    assert not removal(release, "nvidia-device-plugin", NOW, TIMEOUT).steps


@pytest.mark.parametrize(
    ("revisions", "good"),
    [
        ([("deployed", "Install complete")], _stored(1, OTHER)),
        ([("deployed", "Install complete"), ("pending-upgrade", "")], _stored(1)),
        ([("superseded", "Install complete"), ("deployed", "Upgrade complete")], _stored(2, OTHER)),
    ],
)
def test_a_release_without_a_mark_of_gpunode_s_is_left_alone(
    revisions: list[tuple[str, str]], good: StoredRevision
) -> None:
    found = change(FOREIGN, Reading(_release(*revisions), good), NOW, TIMEOUT)
    assert not found.steps and unnamed(found.refused, "no revision", "gpunode") == []
    assert change(WANTED, Reading(_release(*revisions), good), NOW, TIMEOUT).steps
    marked = [(revisions[0][0], MARK), *revisions[1:]]
    assert change(FOREIGN, Reading(_release(*marked), good), NOW, TIMEOUT).steps


def test_somebody_s_release_that_is_as_asked_is_refused_to_nobody() -> None:
    reading = Reading(_release(("deployed", "Install complete")), _stored(1, SAME), live=_live())
    assert change(FOREIGN, reading, NOW, TIMEOUT) == ReleaseChange()


def test_a_first_installation_that_was_never_finished_is_nobody_s_to_take_over() -> None:
    # helm writes the description when it is done.
    found = change(FOREIGN, Reading(_release(("pending-install", "Initial install underway"))), NOW, TIMEOUT)
    assert _acts(found) == ["uninstall", "install"]


def test_nothing_is_done_by_what_was_not_read() -> None:
    release = _release(("superseded", ""), ("deployed", ""))
    for good in (None, _stored(1)):
        found = change(WANTED, Reading(release, good), NOW, TIMEOUT)
        assert not found.steps and found.refused


def test_a_status_that_nobody_knows_is_left_alone() -> None:
    assert change(WANTED, Reading(_release(("unknown", "")), _stored(1)), NOW, TIMEOUT).refused


def test_a_release_that_is_not_asked_for_goes() -> None:
    assert removal(None, "nvidia-device-plugin", NOW, TIMEOUT) == ReleaseChange()
    gone = removal(_release(("deployed", "")), "nvidia-device-plugin", NOW, TIMEOUT)
    assert _acts(gone) == ["uninstall"]
    assert not removal(_release(("pending-upgrade", ""), age=1), "nvidia-device-plugin", NOW, TIMEOUT).steps


# --- what helm prints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parse", [parse_history, lambda text: parse_list(text, "nvdp", "gpu")])
@pytest.mark.parametrize(
    "text",
    ["", "hunter2", "7", "null", '"hunter2"', "[7]", '{"info": 7}', "[[]]", "[" * 100_000, '[{"revision": true}]'],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused_without_its_words(parse: Any, text: str) -> None:
    try:
        found = parse(text)
    except ParseError as error:
        assert "hunter2" not in str(error)
    else:
        assert found is None and text == '[{"revision": true}]'


def test_a_chart_s_name_may_hold_dashes_and_its_version_too() -> None:
    revision = Revision(1, Status.DEPLOYED, "nvidia-device-plugin-0.20.0-rc.1", None, "")
    assert (revision.chart_name, revision.chart_version) == ("nvidia-device-plugin", "0.20.0-rc.1")


def _line(command: Command) -> str:
    return shlex.join(command.words)


CLUSTER = "--namespace nvidia-device-plugin --kubeconfig /etc/kubernetes/admin.conf --kube-context gpu"


def test_an_upgrade_waits_and_rolls_back_by_the_words_of_its_helm() -> None:
    values = {"a": "1e3"}
    common = (
        "helm upgrade nvdp nvidia-device-plugin --version 0.20.0 --repo https://nvidia.github.io/k8s-device-plugin "
        "--install --create-namespace --reset-values %s --wait%s "
        "--description 'Applied by gpunode' --timeout 60s --history-max 10 --values - " + CLUSTER
    )
    assert _line(commands().upgrade(values)) == common % ("--atomic", " --debug")
    assert _line(commands().upgrade(values, by_force=True)) == common % ("--atomic", " --debug")
    assert _line(commands("4.2.3").upgrade(values)) == common % ("--rollback-on-failure", "")
    forced = commands("4.2.3").upgrade(values, by_force=True)
    assert _line(forced) == common % ("--rollback-on-failure", " --server-side=true --force-conflicts")
    assert forced.stdin == '{"a": "1e3"}' and forced.seconds >= 2 * 60


def test_values_are_in_no_command_line_and_in_no_text_form() -> None:
    command = commands().upgrade({"password": "hunter2"})
    assert "hunter2" not in repr(command) and "hunter2" in (command.stdin or "")


def test_a_character_beyond_sixteen_bits_is_no_pair_of_escapes() -> None:
    assert commands().upgrade({"a": "\U0001f600"}).stdin == '{"a": "\U0001f600"}'
    for text in ("\x7f", "\ud800", "\x00"):
        with pytest.raises(SettingsError, match="a character that YAML cannot hold"):
            commands(values={"a": [text]})


def test_a_proxy_is_told_with_what_is_reached_without_it() -> None:
    environment = {"https_proxy": "http://proxy.example.org:3128", "no_proxy": "10.0.0.1"}
    assert commands().listing().environment == environment
    assert "HELM_DRIVER" in commands().listing().unset


def test_charts_come_from_a_repository_a_registry_or_a_folder() -> None:
    def chart(**plugin: Any) -> str:
        return _line(commands(**plugin).template({}, "1.31.0", ["v1", "apps/v1"])).partition(" --kube-version")[0]

    assert chart(repository="https://mirror.example.org/charts", ca_file="/etc/ssl/mirror.pem") == (
        "helm template nvdp nvidia-device-plugin --version 0.20.0 --repo https://mirror.example.org/charts "
        "--ca-file /etc/ssl/mirror.pem"
    )
    assert chart(chart="oci://registry.example.org/nvidia/plugin", version="0.17.1") == (
        "helm template nvdp oci://registry.example.org/nvidia/plugin --version 0.17.1"
    )
    assert chart(chart="/srv/charts/plugin") == "helm template nvdp /srv/charts/plugin"


def test_rendering_asks_no_cluster_and_is_for_the_cluster_s_version() -> None:
    line = _line(commands().template({}, "1.20.2", ["v1", "policy/v1beta1"]))
    assert "--kubeconfig" not in line
    assert "--kube-version 1.20.2 --api-versions v1 --api-versions policy/v1beta1 --values -" in line


def test_helm_3_alone_has_to_be_told_to_list_all() -> None:
    assert "--all --filter '^nvdp$'" in _line(commands().listing())
    assert "--all" not in _line(commands("4.2.3").listing())


def test_the_version_is_asked_without_a_cluster() -> None:
    assert version_command("helm") == ("helm", "version", "--template", "{{.Version}}")
