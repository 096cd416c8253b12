"""Whose programs a restart of the plugin's MPS daemons would end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.mps_clients import (
    label_restarts,
    parse_clients,
    release_outdates,
    release_restarts,
    with_daemon,
)
from gpunode.kubernetes.helm.change import Act, ReleaseChange, Step
from gpunode.kubernetes.helm.difference import Difference
from gpunode.kubernetes.helm.manifest import Identity
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, PRESENT, LabelChange
from tests.support.mps_clients import gpu_pod

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

DAEMON = Identity("apps", "DaemonSet", "nvidia-device-plugin", "nvdp-nvidia-device-plugin-mps-control-daemon")
PLUGIN = Identity("apps", "DaemonSet", "nvidia-device-plugin", "nvdp-nvidia-device-plugin")


def test_the_pods_that_have_a_gpu_are_told_by_node_and_no_others() -> None:
    pods = [
        gpu_pod("b"),
        gpu_pod("a", **{"nvidia.com/gpu.shared": "1"}),
        gpu_pod("other", node="gpu-2"),
        gpu_pod("waits", node=None),
        gpu_pod("done", phase="Succeeded"),
        gpu_pod("broken", phase="Failed"),
        gpu_pod("cpu", cpu="1"),
        gpu_pod("zero", **{"nvidia.com/gpu": "0"}),
        {"metadata": {"namespace": "team", "name": "bare"}, "spec": {"containers": [{"name": "main"}]}},
    ]
    assert parse_clients(json.dumps({"items": pods})) == {"gpu-1": ("team/a", "team/b"), "gpu-2": ("team/other",)}


@given(st.one_of(st.text(), st.recursive(st.none() | st.text(), lambda x: st.lists(x)).map(json.dumps)))
def test_any_text_is_parsed_or_is_no_list_of_pods(text: str) -> None:
    try:
        assert isinstance(parse_clients(text), dict)
    except ParseError as error:
        assert "list of Pods" in str(error)


@pytest.mark.parametrize(
    ("acts", "changed", "restarts"),
    [
        ((Act.UPGRADE,), DAEMON, True),
        ((Act.UPGRADE,), PLUGIN, False),
        ((Act.INSTALL,), DAEMON, False),
        ((), DAEMON, False),
        ((Act.UNINSTALL,), None, True),
        ((Act.ROLLBACK, Act.UPGRADE), PLUGIN, True),
    ],
)
def test_a_release_restarts_daemons_where_their_daemonset_changes_or_nobody_knows(
    acts: tuple[Act, ...], changed: Identity | None, restarts: bool
) -> None:
    found = () if changed is None else (Difference(changed, "spec.template.metadata.annotations", "a", "b"),)
    assert release_restarts(ReleaseChange(tuple(Step(act, "asked") for act in acts), found)) is restarts


@pytest.mark.parametrize(("path", "outdates"), [("spec.template.spec", True), ("spec.updateStrategy.type", False)])
def test_a_release_that_leaves_its_pods_restarts_none_and_outdates_them_by_another_template(
    path: str, outdates: bool
) -> None:
    steps, found = (Step(Act.UPGRADE, "asked"),), (Difference(DAEMON, path, "a", "b"),)
    change = ReleaseChange(steps, found, stays=frozenset([DAEMON]))
    assert not release_restarts(change) and release_outdates(change) is outdates
    assert release_restarts(ReleaseChange(steps, found)) and not release_outdates(ReleaseChange(steps, found))


@pytest.mark.parametrize("acts", [(Act.ROLLBACK,), (Act.ROLLBACK, Act.UPGRADE)])
def test_going_back_to_a_revision_whose_daemons_stay_restarts_none(acts: tuple[Act, ...]) -> None:
    """A helm that was cut off is recovered so: all nodes would have to be empty together for it, and it would wait."""
    steps, found = tuple(Step(act, "asked") for act in acts), (Difference(DAEMON, "spec.template.spec", "a", "b"),)
    stays = frozenset([DAEMON, PLUGIN])
    change = ReleaseChange(steps, found, stays=stays, stays_behind=stays)
    assert not release_restarts(change) and release_outdates(change) is (Act.UPGRADE in acts)
    # One by which the controller begins them anew does so for all of them.
    assert release_restarts(replace(change, stays_behind=frozenset([PLUGIN])))
    gone = replace(change, steps=(Step(Act.UNINSTALL, "asked"),))
    assert release_restarts(gone)


@pytest.mark.parametrize(
    ("capable", "to_set", "to_remove", "restarts"),
    [
        ("true", {CONFIG: "mps-8"}, (), True),
        ("true", {CONFIG: "none"}, (MPS_CAPABLE,), True),
        ("true", {}, (MPS_CAPABLE,), True),
        ("true", {CONFIG: "mps-4"}, (), False),
        ("true", {PRESENT: "true"}, (), False),
        ("false", {CONFIG: "mps-8"}, (), False),
    ],
)
def test_a_label_restarts_the_daemon_of_its_node_by_another_configuration_alone(
    capable: str, to_set: dict[str, str], to_remove: tuple[str, ...], restarts: bool
) -> None:
    node = ClusterNode("gpu-1", {CONFIG: "mps-4", MPS_CAPABLE: capable}, None, {}, False, True)
    assert label_restarts(LabelChange(to_set, to_remove, None, {}, False), node) is restarts
    assert with_daemon({"gpu-1": node}) == ({"gpu-1"} if capable == "true" else frozenset())
