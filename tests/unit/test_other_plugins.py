"""Device plugins of others: manifests that are read or refused by line, and rolled out; helm and kubectl SIMULATED."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpunode.kubernetes.device_plugin.methods import to_json
from gpunode.kubernetes.objects.own_objects import KINDS as TAKEN_AWAY
from gpunode.kubernetes.objects.own_objects import METHOD
from gpunode.kubernetes.other_plugins.desired import kept_releases, objects, releases, releases_left
from gpunode.settings import Settings, check_hosts, settings_from
from gpunode.settings.cluster import expected_resources
from gpunode.settings.plugin_manifest import KINDS, ManifestError, parse_manifest, read_manifest
from tests.support.cluster_settings import refused
from tests.support.device_plugin_deploy import cluster, data, run
from tests.support.how_to import snippet
from tests.support.messages import unnamed
from tests.support.other_plugins import CHART, mistakes
from tests.support.simulated_cluster import SimulatedCluster

__all__ = ["cluster"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]

LABEL = "gpunode/device-plugin.fpga"
ACCOUNT = """apiVersion: v1
kind: ServiceAccount
metadata: {name: fpga, namespace: kube-system}
"""
PLUGIN = """apiVersion: apps/v1
kind: DaemonSet
metadata: {name: fpga, namespace: kube-system}
spec:
  selector: {matchLabels: {app: fpga}}
  template:
    metadata: {labels: {app: fpga}}
    spec:
      nodeSelector: {team: a}
      containers:
      - {name: fpga, image: "registry.example/fpga:1.0"}
"""
MANIFEST = f"# of a vendor\n---\n{ACCOUNT}---\n{PLUGIN}"


def _file(folder: Path, text: str = MANIFEST) -> str:
    path = folder / "fpga.yaml"
    path.write_text(text)
    return str(path)


def _hosts(cluster: SimulatedCluster, plugins: dict[str, Any], *names: str) -> dict[str, dict[str, Any]]:
    """Return hosts of which those named have the plugins, and the others none."""
    found = {name: data(cluster, name, device_plugin={"method": "none"}) for name in ("gpu-1", "gpu-2")}
    for name, each in found.items():
        each["kubernetes"] |= {"device_plugins": plugins if name in names else {}}
    return found


def test_a_manifest_comes_once_and_leaves_nothing_behind(cluster: SimulatedCluster, tmp_path: Path) -> None:
    asked = _hosts(cluster, {"fpga": {"manifest": _file(tmp_path)}}, "gpu-1")
    assert run(tmp_path, asked).code == 0
    assert cluster.labels("gpu-1") == {LABEL: "true"} and cluster.labels("gpu-2") == {}
    own = cluster.state()["own"]
    assert set(own) == {"serviceaccount/fpga", "daemonset/fpga"}
    selector = own["daemonset/fpga"]["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"team": "a", LABEL: "true"}
    assert own["serviceaccount/fpga"]["metadata"]["labels"][METHOD] == "plugin.fpga"
    second = run(tmp_path, asked)
    assert second.code == 0 and "Success" not in second.said and cluster.called("kubectl apply") == 1
    own["daemonset/fpga"]["spec"]["template"]["spec"]["containers"][0]["image"] = "by/hand:1"
    cluster.write(own=own)
    healed = run(tmp_path, asked)
    assert healed.code == 0 and "by/hand:1" in healed.said and cluster.called("kubectl apply") == 2
    # A new file is another wish.
    _file(tmp_path, PLUGIN.replace("fpga:1.0", "fpga:1.1"))
    assert run(tmp_path, asked).code == 0 and set(cluster.state()["own"]) == {"daemonset/fpga"}
    assert run(tmp_path, _hosts(cluster, {})).code == 0
    assert cluster.state()["own"] == {} and cluster.labels("gpu-1") == {}


def test_objects_that_a_node_outside_the_run_needs_stay(cluster: SimulatedCluster, tmp_path: Path) -> None:
    plugins = {"fpga": {"manifest": _file(tmp_path)}}
    assert run(tmp_path, _hosts(cluster, plugins, "gpu-1", "gpu-2")).code == 0
    there = set(cluster.state()["own"])
    assert run(tmp_path, _hosts(cluster, {}), "--limit", "@fake/gpu-1", "-y").code == 0
    assert set(cluster.state()["own"]) == there and LABEL not in cluster.labels("gpu-1")
    assert run(tmp_path, _hosts(cluster, {}), "--limit", "@fake/gpu-2", "-y").code == 0
    assert cluster.state()["own"] == {} and cluster.labels("gpu-2") == {}


def test_an_object_of_somebody_else_s_is_not_taken_over(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.write(own={"serviceaccount/fpga": yaml.safe_load(ACCOUNT)})
    done = run(tmp_path, _hosts(cluster, {"fpga": {"manifest": _file(tmp_path)}}, "gpu-1"))
    assert done.code == 1 and cluster.called("kubectl apply") == 0
    assert unnamed(done.said, "kube-system/fpga", "kubernetes.device_plugins") == []


def test_a_chart_comes_with_a_record_and_goes_by_it(cluster: SimulatedCluster, tmp_path: Path) -> None:
    asked = _hosts(cluster, {"fpga": CHART}, "gpu-1")
    assert run(tmp_path, asked).code == 0
    (record,) = cluster.state()["own"].values()
    assert record["data"] == {"release": "fpga", "namespace": "fpga"} and len(cluster.state()["other"]) == 1
    second = run(tmp_path, asked)
    assert second.code == 0 and "Success" not in second.said and len(cluster.state()["other"]) == 1
    assert run(tmp_path, _hosts(cluster, {}), "--limit", "@fake/gpu-2", "-y").code == 0
    assert len(cluster.state()["other"]) == 1 and cluster.state()["own"]
    assert run(tmp_path, _hosts(cluster, {})).code == 0
    assert cluster.state()["other"] == [] and cluster.state()["own"] == {} and cluster.labels("gpu-1") == {}


def test_a_release_that_gpunode_did_not_bring_is_not_taken_away(cluster: SimulatedCluster, tmp_path: Path) -> None:
    assert run(tmp_path, _hosts(cluster, {"fpga": CHART}, "gpu-1")).code == 0
    cluster.write(described={})
    assert run(tmp_path, _hosts(cluster, {})).code == 0
    assert len(cluster.state()["other"]) == 1 and cluster.called("helm uninstall") == 0


def _checked(**more: Any) -> Mapping[str, Settings]:
    return check_hosts({"gpu-1": {"kubernetes": {"enabled": True, "device_plugins": {"fpga": {**CHART, **more}}}}})


def test_the_record_goes_where_the_release_does_and_a_release_that_moves_leaves_none_behind() -> None:
    hosts, staying = _checked(), ({LABEL: "true"},)
    owned = json.dumps({"kind": "List", "items": objects(hosts)})
    assert not releases_left(releases(hosts), owned, ()) and not releases_left({}, owned, staying)
    (left,) = releases_left({}, owned, ()).values()
    assert (left.namespace, left.release) == ("fpga", "fpga")
    assert [*releases_left(releases(_checked(release="other")), owned, staying)] == ["fpga"]
    assert to_json(hosts)["device_plugins"]["fpga"]["values"] == {"tolerations": []}


def test_a_record_never_takes_nvidia_s_own_release_away() -> None:
    hosts = _checked(namespace="elsewhere", release="gpu-operator")
    owned = json.dumps({"kind": "List", "items": objects(hosts)})
    assert [*releases_left({}, owned, ())] == ["fpga"]
    own = {"kubernetes": {"enabled": True}, "gpu_operator": {"namespace": "elsewhere"}}
    assert not releases_left({}, owned, (), kept_releases(check_hosts({"gpu-1": own})))


def test_aliases_that_stand_for_each_other_many_times_over_are_refused_and_not_built() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 8)}]" for each in range(1, 12)]
    assert mistakes("\n".join(lines))


@pytest.mark.parametrize("content", [b"\xff", b"#" * 1_100_000, None], ids=["no text", "too large", "no file"])
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "fpga.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ManifestError):
        read_manifest(path)


@given(st.one_of(st.text(), st.text("ab:[]{}&*-#\n \"'!?|>,").map(lambda text: f"{ACCOUNT}---\n{text}")))
def test_any_text_is_a_manifest_or_refused_by_its_file(text: str) -> None:
    try:
        found = parse_manifest(text, "fpga.yaml")
    except ManifestError as error:
        assert error.mistakes and all(each.startswith("fpga.yaml") for each in error.mistakes)
        return
    assert len(found.objects) == len(found.identities) > 0


_NAMES = st.text("abc", min_size=1, max_size=2)


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), _NAMES, _NAMES), min_size=1, max_size=6))
def test_objects_are_read_as_they_are(
    every: list[tuple[tuple[str, str], str, str]],
) -> None:
    pod: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": f"{group}/v1" if group else "v1",
            "kind": kind,
            "metadata": {"name": name, **({"namespace": space} if KINDS[group, kind] else {})},
            **({"spec": pod} if group == "apps" else {}),
        }
        for (group, kind), name, space in every
    ]
    named = [(each["apiVersion"], each["kind"], *sorted(each["metadata"].items())) for each in documents]
    try:
        found = parse_manifest(yaml.safe_dump_all(documents), "fpga.yaml")
    except ManifestError as error:
        assert len(set(named)) < len(named) and "too" in str(error)
        return
    assert [*found.objects] == documents and len(set(named)) == len(named)


def test_each_kind_of_a_manifest_is_one_that_gpunode_looks_for_and_takes_away() -> None:
    plural = {f"{kind.lower()}s.{group}" if group else f"{kind.lower()}s" for group, kind in KINDS}
    assert plural == set(TAKEN_AWAY)


def test_two_plugins_with_one_object_or_one_resource_are_refused(tmp_path: Path) -> None:
    one, whose = {"manifest": _file(tmp_path), "resources": {"x.org/a": 1}}, "kubernetes.device_plugins"
    plugins = {"kubernetes": {"device_plugins": {"a": one, "b": one}}}
    found = refused(plugins, [f"{whose}.a", f"{whose}.a.resources"])
    assert found == [f"{whose}.b.manifest"] * 2 + [f"{whose}.b.resources"]


@pytest.mark.parametrize("name", ["rdma", "manifest", "chart"])
def test_the_how_to_s_settings_are_taken(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _file(tmp_path)
    found: dict[str, Any] = {"kubernetes": {"enabled": True}}
    exec(snippet("other-device-plugins.md", name), {}, found)
    settings = settings_from(found)
    assert objects({"gpu-1": settings}) and expected_resources(settings)
