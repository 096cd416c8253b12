"""The device plugin: what a cluster gets from the settings of its nodes, and what is refused before it is contacted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.cli.cluster import cluster
from gpunode.kubernetes.device_plugin.desired_cluster import DesiredCluster, desired_cluster
from gpunode.kubernetes.device_plugin.static_manifest import IMAGE, static_manifest
from gpunode.kubernetes.nodes.configuration import configuration, with_entries_in_use
from gpunode.kubernetes.nodes.labels import (
    CONFIG,
    MIG_CONFIG,
    MIG_STATE,
    OURS,
    PRESENT,
    label_change,
    labels_of_failed,
    wanted_labels,
)
from gpunode.kubernetes.objects.runtime_class import decide, parse_runtime_class, runtime_class, written
from gpunode.node.preflight import refusals
from gpunode.reference import settings as reference
from gpunode.settings import Problem, SettingsError, check_hosts, settings_from
from gpunode.settings.cluster import features
from gpunode.settings.cluster.chart_values import merged
from gpunode.settings.sharing import SharingSettings
from tests.support.device_plugin import CONTRADICTIONS
from tests.support.preflight import _gpu, machine

pytestmark = pytest.mark.pure

# A busy machine takes longer, and is not what is tried.
unhurried = settings(deadline=None)

GOLDEN = Path(__file__).parent / "data" / "device-plugin"
NODE = {"kubernetes": {"enabled": True}}


def _hosts(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    everywhere = document.get("all", {})
    return {host: merged(everywhere, data) for host, data in document["hosts"].items()}


def _rollout(hosts: dict[str, dict[str, Any]]) -> DesiredCluster:
    found = desired_cluster(check_hosts(hosts))
    assert found is not None
    return found


def _refused(*hosts: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(SettingsError) as error:
        check_hosts({f"gpu-{number}": data for number, data in enumerate(hosts, 1)})
    return error.value.problems


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.yaml")), ids=lambda file: file.stem)
def test_settings_become_the_reference_values(file: Path) -> None:
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert _rollout(_hosts(document)).to_json() == document["expected"]


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_node_names_an_entry_that_there_is(file: Path) -> None:
    found = _rollout(_hosts(yaml.safe_load(file.read_text(encoding="utf-8"))))
    config = found.values["config"]
    if "map" in config:
        assert {labels[CONFIG] for labels in found.labels.values()} | {config["default"]} <= set(config["map"])


def test_mig_devices_may_be_offered_by_a_config_map_of_the_user_s_own() -> None:
    own = {"mig": {"config": "all-balanced"}, "device_plugin": {"config_name": "own"}, "sharing": {"config": "sliced"}}
    assert _rollout({"gpu-1": {**NODE, **own}}).labels["gpu-1"][CONFIG] == "sliced"


@pytest.mark.parametrize("plugin", [
    {"version": "0.15.1", "fail_on_init_error": False},
    {"version": "0.17.1", "fail_on_init_error": True},
    {"version": "0.16.2"},
    # By no chart.
    {"version": "0.16.2", "fail_on_init_error": False, "method": "manifest"},
])  # fmt: skip
def test_a_plugin_may_wait_for_gpus_wherever_the_chart_writes_that_as_text(
    plugin: dict[str, Any],
) -> None:
    (settings,) = check_hosts({"gpu-1": {**NODE, "device_plugin": plugin}}).values()
    assert settings.device_plugin.fail_on_init_error == plugin.get("fail_on_init_error")


def test_no_node_in_a_cluster_is_no_rollout() -> None:
    assert desired_cluster(check_hosts({"gpu-1": {}, "gpu-2": {**NODE, "device_plugin": {"method": "none"}}})) is None


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictory_settings_are_refused_by_name(name: str) -> None:
    data, key, says = CONTRADICTIONS[name]
    (problem,) = _refused({**NODE, **data})
    assert (problem.host, problem.key) == ("gpu-1", key)
    assert says in problem.message


@pytest.mark.parametrize(
    "data",
    [
        {"toolkit": {"preset": "shared"}, "device_plugin": {"device_list_strategy": "volume-mounts"}},
        {"toolkit": {"preset": "shared"}, "device_plugin": {"device_list_strategy": "cdi-annotations"}},
        {"mig": {"config": "all-1g.10gb"}, "sharing": {"mig_strategy": "single"}},
        {"mig": {"config": "all-disabled"}, "sharing": {"strategy": "mps", "replicas": 48}},
        {"mig": {"config": "all-disabled"}},
        {"kubernetes": {"enabled": True, "version": "1.10"}},
        {"kubernetes": {"enabled": True, "version": "1.14"}, "containerd": {"default_runtime": "runc"}},
        {"device_plugin": {"version": "0.15.0"}, "sharing": {"strategy": "mps", "replicas": 2}},
        {"device_plugin": {"release": "nvidia-device-plugin", "values": {"fullnameOverride": "gpu" * 13}}},
        {"device_plugin": {"gfd": True, "nfd": "chart"}},
        {"device_plugin": {"method": "none"}, "mps": {"enabled": True}},
        {"device_plugin": {"method": "gpu-operator", "nfd": "chart"}, "gpu_operator": {"mig_manager": True}},
        {"gpu_operator": {"values": {"driver": {"enabled": False}, "daemonsets": {"labels": {"team": "a"}}}}},
    ],
)
def test_what_agrees_is_taken(data: dict[str, Any]) -> None:
    check_hosts({"gpu-1": {**NODE, **data}})


def test_a_declaration_of_one_profile_may_be_offered_as_single(tmp_path: Path) -> None:
    file = tmp_path / "mig.yaml"
    text = "version: v1\nmig-configs:\n  own:\n  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: %d%s}}\n"
    data = {**NODE, "mig": {"config": "own", "file": str(file)}, "sharing": {"mig_strategy": "single"}}
    file.write_text(text % (7, ""))
    check_hosts({"gpu-1": data})
    file.write_text(text % (1, ", 2g.20gb: 1"))
    (problem,) = _refused(data)
    assert "has 1g.10gb, 2g.20gb" in problem.message


def test_a_mig_configuration_must_have_a_name_that_a_label_can_hold(tmp_path: Path) -> None:
    file = tmp_path / "mig.yaml"
    file.write_text("version: v1\nmig-configs:\n  own-:\n  - {devices: all, mig-enabled: false}\n")
    (problem,) = _refused({**NODE, "mig": {"config": "own-", "file": str(file)}})
    assert problem.key == "mig.config" and "end in a letter or digit" in problem.message


def test_nodes_of_a_cluster_must_have_the_same_plugin() -> None:
    other = {**NODE, "device_plugin": {"namespace": "gpu", "values": {"a": 1}}}
    assert [(problem.host, problem.key) for problem in _refused(NODE, other, {}, NODE)] == [
        ("gpu-2", "device_plugin.namespace"),
        ("gpu-2", "device_plugin.values"),
    ]
    check_hosts({"a": NODE, "b": {**NODE, "device_plugin": {"method": "none"}}})


def test_two_hosts_cannot_be_one_node() -> None:
    twice = {"kubernetes": {"enabled": True, "node_name": "gpu-1"}}
    (problem,) = _refused(NODE, twice)
    assert (problem.host, problem.key) == ("gpu-2", "kubernetes.node_name")


def test_a_host_whose_name_no_node_can_have_is_asked_for_one() -> None:
    with pytest.raises(SettingsError, match=r"gpu_1: kubernetes\.node_name = 'gpu_1': is missing"):
        check_hosts({"gpu_1": NODE})


def test_a_chart_path_is_no_option_and_no_shell_text() -> None:
    for chart in ("--post-renderer=/bin/sh", "oci://host/$(id)", "../a b", "https://host/chart.tgz"):
        (problem,) = _refused({**NODE, "device_plugin": {"chart": chart}})
        assert problem.key == "device_plugin.chart"


odd = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3)


@unhurried
@given(odd | st.lists(odd, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), odd, max_size=3))
def test_values_are_taken_or_refused_in_words(value: Any) -> None:
    try:
        settings_from({"device_plugin": {"values": {"x": value}}}).digest()
    except SettingsError as error:
        assert all(problem.key.startswith("device_plugin.values") for problem in error.problems)


def test_lists_are_replaced_and_mappings_are_merged() -> None:
    below = {"a": {"x": 1, "y": [1, 2]}, "b": 1}
    assert merged(below, {"a": {"y": [3]}, "c": 2}) == {"a": {"x": 1, "y": [3]}, "b": 1, "c": 2}
    assert below == {"a": {"x": 1, "y": [1, 2]}, "b": 1}


sharings: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    strategy=st.sampled_from(["time-slicing", "mps"]),
    resources=st.dictionaries(
        st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]), st.integers(2, 48), min_size=1
    ),
    rename=st.booleans(),
    fail_requests_greater_than_one=st.sampled_from([None, True, False]),
    mig_strategy=st.sampled_from(["none", "single", "mixed"]),
)


@unhurried
@given(sharings, sharings)
def test_configurations_have_one_name_where_they_are_one(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = (configuration(SharingSettings.model_validate(each)) for each in (one, other))
    assert (first.name == second.name) == (first.text == second.text)
    assert len(first.name) <= 63


def test_labels_that_are_there_already_are_no_change() -> None:
    wanted = wanted_labels(settings_from(NODE))
    first = label_change(wanted, {}, None)
    assert first.to_set == {CONFIG: "none", PRESENT: "true"} and not first.conflicts
    again = label_change(wanted, dict(wanted), first.ours)
    assert again.is_none and again.ours == first.ours


def test_only_our_labels_are_changed_or_removed() -> None:
    wanted = {CONFIG: "mps-4"}
    theirs = {PRESENT: "true", CONFIG: "somebody-s"}
    change = label_change(wanted, theirs, None)
    assert (dict(change.to_set), change.to_remove, dict(change.conflicts)) == ({}, (), {CONFIG: "somebody-s"})
    ours = label_change(wanted, theirs, f'["{CONFIG}","{PRESENT}"]')
    assert (dict(ours.to_set), ours.to_remove) == ({CONFIG: "mps-4"}, (PRESENT,))
    assert ours.ours == f'["{CONFIG}"]'


def test_a_label_of_somebody_else_s_with_our_value_stays_his() -> None:
    change = label_change({PRESENT: "true"}, {PRESENT: "true"}, None)
    assert change.is_none and change.ours is None
    assert label_change({}, {PRESENT: "true"}, None).to_remove == ()


def test_a_removed_label_is_set_again() -> None:
    change = label_change({PRESENT: "true"}, {}, f'["{PRESENT}"]')
    assert change.to_set == {PRESENT: "true"} and not change.annotates


@pytest.mark.parametrize("annotation", ["", "[", "7", '{"a": 1}', '["kubernetes.io/hostname"]', "[[]]", "null"])
def test_an_annotation_makes_no_foreign_label_ours(annotation: str) -> None:
    labels = {"kubernetes.io/hostname": "gpu-1", PRESENT: "false"}
    change = label_change({}, labels, annotation)
    assert change.to_remove == () and change.ours is None


def test_the_mig_state_is_a_label_where_it_is_known() -> None:
    settings = settings_from({**NODE, "mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"}})
    assert MIG_STATE not in wanted_labels(settings)
    assert wanted_labels(settings, "pending")[MIG_STATE] == "pending"
    with pytest.raises(ValueError, match="none of pending"):
        wanted_labels(settings, "fine")
    assert "/" in OURS


def test_docker_s_default_runtime_counts_where_there_is_no_containerd_of_gpunode_s() -> None:
    docker = {**NODE, "containerd": {"enabled": False}, "docker": {"enabled": True, "default_runtime": "runc"}}
    assert _rollout({"gpu-1": NODE, "gpu-2": docker}).values["runtimeClassName"] == "nvidia"
    assert _rollout({"gpu-1": {**NODE, "containerd": {"enabled": False}}}).runtime_class is None


def test_a_new_cluster_has_the_stable_runtime_class() -> None:
    assert [runtime_class(version)["apiVersion"] for version in (None, "1.20", "1.31.4", "1.19")] == [
        *["node.k8s.io/v1"] * 3,
        "node.k8s.io/v1beta1",
    ]


def test_a_runtime_class_is_made_where_there_is_none_and_made_anew_where_ours_has_another_handler() -> None:
    wanted = runtime_class()
    for actual, verb in ((None, "create"), (wanted, None), ({**wanted, "handler": "other"}, "replace")):
        assert [step.change for step in decide(wanted, actual).steps] == ([verb] if verb else [])


def test_a_runtime_class_of_somebody_else_s_does_with_our_handler_and_is_refused_with_another() -> None:
    theirs = {"metadata": {"name": "nvidia", "labels": None}, "handler": "nvidia"}
    found = decide(runtime_class(), theirs)
    assert not found.steps and found.refusal is None and "somebody else's" in str(found.findings[0].actual)
    found = decide(runtime_class(), {**theirs, "handler": "other"})
    assert not found.steps and found.refusal is not None and found.findings[0].by_person


@pytest.mark.parametrize(
    ("apis", "version"),
    [({"node.k8s.io/v1", "node.k8s.io/v1beta1"}, "v1"), ({"node.k8s.io/v1beta1"}, "v1beta1"), (set(), "v1")],
)
def test_a_runtime_class_is_of_the_newest_version_that_the_cluster_has(apis: set[str], version: str) -> None:
    assert json.loads(written(runtime_class(), apis))["apiVersion"] == f"node.k8s.io/{version}"


@pytest.mark.parametrize("text", ["[]", "{", "7", '{"kind": "Status"}'])
def test_an_answer_that_is_no_runtime_class_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_runtime_class(text)
    assert parse_runtime_class("\n") is None


def test_a_node_that_failed_keeps_our_labels_and_gets_none_but_the_state_of_mig() -> None:
    asked = settings_from({**NODE, "mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"}})
    labels, note = {PRESENT: "true", "zone": "a"}, json.dumps([PRESENT])
    failed = {PRESENT: "true", MIG_CONFIG: "all-balanced", MIG_STATE: "failed"}
    assert labels_of_failed(asked, labels, note) == failed
    assert labels_of_failed(settings_from(NODE), {}, None) == {}
    change = label_change(failed, labels, note)
    assert change.to_set == {MIG_CONFIG: "all-balanced", MIG_STATE: "failed"} and not change.to_remove


def test_every_row_of_the_table_has_a_version_and_a_source() -> None:
    for table in ({"plugin": features.of_plugin()}, features.of_kubernetes(), features.of_helm()):
        for name, needs in table.items():
            assert needs.source and needs.are_met_by("99.0") and not needs.are_met_by("0.1"), name


def test_a_volta_gets_sixteen_mps_replicas_from_the_plugin() -> None:
    settings = settings_from({**NODE, "sharing": {"strategy": "mps", "replicas": 17}})
    (refusal,) = refusals(settings, machine(gpus=(_gpu("1DB6"),)))
    assert "grants" in refusal.reason and "16 at most" in refusal.reason
    assert not refusals(settings, machine())


def test_the_document_of_the_settings_names_their_types() -> None:
    assert "| `values` | mapping of string to anything |" in reference.document()


def _inventory(tmp_path: Path, data: dict[str, Any]) -> str:
    # pyinfra keeps a file's code by its name.
    file = tmp_path / f"inventory-{len(list(tmp_path.iterdir()))}.py"
    file.write_text(f"nodes = [('gpu-1', {data!r})]\n")
    return str(file)


def test_the_command_line_prints_values_that_helm_takes(tmp_path: Path) -> None:
    data = {**NODE, "sharing": {"strategy": "time-slicing", "replicas": 4}, "containerd": {"default_runtime": "runc"}}
    inventory = _inventory(tmp_path, data)
    expected = _rollout({"gpu-1": data})
    values = CliRunner().invoke(cluster, [inventory, "--values"])
    assert (values.exit_code, yaml.safe_load(values.output)) == (0, expected.values)
    whole = CliRunner().invoke(cluster, [inventory])
    assert yaml.safe_load(whole.output) == expected.to_json()
    # A block for people, no string with escapes.
    assert "time-slicing-4: |" in whole.output


def test_the_command_line_refuses_without_a_traceback(tmp_path: Path) -> None:
    refused = CliRunner().invoke(cluster, [_inventory(tmp_path, {**NODE, "device_plugin": {"namespace": "default"}})])
    assert refused.exit_code == 3 and "device_plugin.namespace" in refused.output
    nothing = CliRunner().invoke(cluster, [_inventory(tmp_path, {})])
    assert nothing.exit_code == 2 and "kubernetes.enabled" in nothing.output
    assert CliRunner().invoke(cluster, [str(tmp_path / "none.py")]).exit_code == 1


_MANIFEST = """
apiVersion: v1
kind: ConfigMap
data:
  none: |-
    version: v1
  mig-mixed: |-
    version: v1
    flags: {migStrategy: mixed}
  forgotten: |-
    version: v1
---
kind: DaemonSet
"""


def test_a_configuration_stays_as_long_as_a_node_is_labelled_for_it() -> None:
    values = {"config": {"map": {"none": "version: v1\n"}, "default": "none"}, "gfd": {"enabled": False}}
    found = with_entries_in_use(values, _MANIFEST, {"mig-mixed", "none", "nowhere"})
    assert found["config"] == {
        "map": {"mig-mixed": "version: v1\nflags: {migStrategy: mixed}\n", "none": "version: v1\n"}, "default": "none",
    }  # fmt: skip
    assert found["gfd"] == values["gfd"]


def test_no_configuration_is_kept_that_nobody_is_labelled_for_and_none_beside_a_config_map_of_ones_own() -> None:
    values = {"config": {"map": {"none": "version: v1\n"}, "default": "none"}}
    assert with_entries_in_use(values, _MANIFEST, {"none"}) == values
    assert with_entries_in_use(values, "", {"mig-mixed"}) == values
    own = {"config": {"name": "mine"}}
    assert with_entries_in_use(own, _MANIFEST, {"mig-mixed"}) == own
    with pytest.raises(ParseError, match="no YAML"):
        with_entries_in_use(values, "a: [", {"mig-mixed"})


DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("plugin", "tag"),
    [
        ({"image_digest": DIGEST}, f"v0.20.0@{DIGEST}"),
        ({"image_digest": DIGEST, "version": "0.18.2"}, f"v0.18.2@{DIGEST}"),
        ({"image_digest": DIGEST, "image_tag": "v0.18.2-ubi9"}, f"v0.18.2-ubi9@{DIGEST}"),
    ],
)
def test_an_image_by_its_digest_goes_with_the_tag_which_is_all_that_the_chart_writes(
    plugin: dict[str, Any], tag: str
) -> None:
    assert _rollout({"gpu-1": {**NODE, "device_plugin": plugin}}).values["image"] == {"tag": tag}
    manifest = settings_from({**NODE, "device_plugin": {"method": "manifest", **plugin}}).device_plugin
    objects = static_manifest(manifest, [SharingSettings.model_validate({})], False)
    (container,) = objects[-1]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{IMAGE}:{tag}"


@pytest.mark.parametrize(
    "digest", ["0" * 64, "sha256:" + "0" * 63, "sha256:" + "A" * 64, "sha512:" + "0" * 64, DIGEST + "0"]
)
@pytest.mark.parametrize("field", ["device_plugin.image_digest", "gpu_operator.image_digests.dcgmExporter"])
def test_a_digest_that_is_none_is_refused_with_what_is_allowed(field: str, digest: str) -> None:
    component, _, key = field.partition(".")
    own = {"image_digest": digest} if component == "device_plugin" else {"image_digests": {"dcgmExporter": digest}}
    (problem,) = _refused({**NODE, component: own})
    assert problem.key == field, key
    assert "'sha256:' and 64 hexadecimal digits" in problem.message and "skopeo inspect" in problem.message


def test_a_tag_among_the_chart_s_values_is_refused_with_both_settings() -> None:
    (problem,) = _refused({**NODE, "device_plugin": {"values": {"image": {"tag": f"v0.20.0@{DIGEST}"}}}})
    assert "device_plugin.image_tag and device_plugin.image_digest" in problem.message
