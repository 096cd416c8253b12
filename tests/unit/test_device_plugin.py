"""The device plugin: what a cluster gets from the settings of its nodes, and what is refused before it is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.cli.cluster import cluster
from gpunode.kubernetes.device_plugin.desired_cluster import DesiredCluster, desired_cluster
from gpunode.kubernetes.nodes.labels import (
    CONFIG,
    configuration,
)
from gpunode.node.preflight import refusals
from gpunode.settings import SettingsError, chart, check_hosts, settings_from
from gpunode.settings.chart import merged
from gpunode.settings.sharing import SharingSettings
from tests.support.cluster_settings import refused
from tests.support.messages import unnamed
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


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.yaml")), ids=lambda file: file.stem)
def test_settings_become_the_reference_values_and_every_node_names_an_entry_that_there_is(file: Path) -> None:
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    found = _rollout(_hosts(document))
    assert found.to_json() == document["expected"]
    config = found.values["config"]
    if "map" in config:
        assert {labels[CONFIG] for labels in found.labels.values()} | {config["default"]} <= set(config["map"])


def test_a_mig_configuration_of_one_s_own_has_a_name_for_a_label_and_one_profile_for_single(tmp_path: Path) -> None:
    file = tmp_path / "mig.yaml"

    def refused_with(name: str, devices: str, *names: str) -> list[str]:
        file.write_text(f"version: v1\nmig-configs:\n  {name}:\n  - {{devices: all, mig-enabled: true, {devices}}}\n")
        mig = {"config": name, "file": str(file)}
        return refused({"mig": mig, "sharing": {"mig_strategy": "single"}}, names)

    assert refused_with("own", "mig-devices: {1g.10gb: 7}") == []
    mixed = refused_with("own", "mig-devices: {1g.10gb: 1, 2g.20gb: 1}", "1g.10gb", "2g.20gb")
    assert mixed == ["sharing.mig_strategy"]
    assert refused_with("own-", "mig-devices: {1g.10gb: 7}") == ["mig.config"]


odd = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3)


@unhurried
@given(odd | st.lists(odd, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), odd, max_size=3))
def test_values_are_taken_or_refused_in_words(value: Any) -> None:
    try:
        settings_from({"device_plugin": {"values": {"x": value}}}).digest()
    except SettingsError as error:
        assert all(problem.key.startswith("device_plugin.values") for problem in error.problems)


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


def test_every_row_of_the_table_has_a_version_and_a_source() -> None:
    for table in (chart.known().device_plugin, chart.of_kubernetes(), chart.known().helm):
        for name, needs in table.items():
            assert needs.source and needs.are_met_by("99.0") and not needs.are_met_by("0.1"), name


def test_a_volta_gets_sixteen_mps_replicas_from_the_plugin() -> None:
    settings = settings_from({**NODE, "sharing": {"strategy": "mps", "replicas": 17}})
    (refusal,) = refusals(settings, machine(gpus=(_gpu("1DB6"),)))
    assert unnamed(refusal.reason, "16") == []
    assert not refusals(settings, machine())


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
