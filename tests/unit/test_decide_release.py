"""A helm release is decided once: drift finds what a run changes, and what no run changes is told as a person's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision
from gpunode.base.findings import FindingClass
from gpunode.fleet import cluster as fleet_cluster
from gpunode.kubernetes.device_plugin.desired_cluster import CHART, desired_cluster
from gpunode.kubernetes.helm.change import ReleaseChange
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.release import MARK
from gpunode.kubernetes.helm.session import Session
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import CONFIG, OURS, PRESENT, SERVED_BY
from gpunode.operations import control_plane, helm
from gpunode.settings import Settings, check_hosts, settings_from
from tests.support.cluster_fleet import of_both
from tests.support.helm import MANIFEST, OTHER, SAME
from tests.support.helm_session import SimulatedHelm
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

LONG_AGO = "2026-11-20T10:00:00Z"
_STATUS = st.sampled_from(
    ["deployed", "deployed", "superseded", "failed", "pending-install", "pending-upgrade", "uninstalling", "unknown"]
)
_WORDS = st.sampled_from(["", MARK, MARK, "Rollback to 1", "no image"])
_REVISIONS = st.lists(st.tuples(_STATUS, _WORDS, st.sampled_from([SAME, OTHER])), max_size=3)
_BY_HAND = st.sampled_from([("", ""), ("plugin:v1", "plugin:debug")])


@dataclass
class LivingHelm(SimulatedHelm):
    """Carry out what it is told, too: its release is then another one."""

    chart: str = f"{CHART}-0.20.0"
    updated: str = LONG_AGO

    def _version(self, command: Command) -> str:
        return "v3.19.0"

    def _history(self, command: Command) -> str:
        found = [{**each, "chart": self.chart} for each in json.loads(super()._history(command))]
        return json.dumps([*found[:-1], {**found[-1], "updated": self.updated}])

    def _upgrade(self, command: Command) -> str:
        self.chart = f"{CHART}-0.20.0"
        self._deployed(MARK, MANIFEST)
        return ""

    def _rollback(self, command: Command) -> str:
        number = int(command.words[3])
        self._deployed(f"Rollback to {number}", self.revisions[number - 1][2])
        return ""

    def _uninstall(self, command: Command) -> str:
        self.revisions, self.chart = [], f"{CHART}-0.20.0"
        return ""

    def _deployed(self, words: str, manifest: str) -> None:
        before = [
            ("superseded" if status == "deployed" else status, said, text) for status, said, text in self.revisions
        ]
        self.revisions, self.updated = [*before, ("deployed", words, manifest)], LONG_AGO
        self.by_hand, self.emptied = ("", ""), False


_RELEASES = st.builds(
    LivingHelm,
    revisions=_REVISIONS,
    by_hand=_BY_HAND,
    emptied=st.booleans(),
    chart=st.sampled_from([f"{CHART}-0.20.0", f"{CHART}-0.20.0", f"{CHART}-0.19.0", "postgresql-15.1.0"]),
    updated=st.sampled_from([LONG_AGO, LONG_AGO, "2999-01-01T00:00:00Z", "never"]),
)


def _settings(take_over: bool = False) -> Settings:
    plugin = {"namespace": "gpu", "take_over": take_over}
    return check_hosts({"gpu-1": {"kubernetes": {"enabled": True}, "device_plugin": plugin}})["gpu-1"]


def _session(settings: Settings, simulated: LivingHelm) -> Session:
    return Session.begun(settings.kubernetes, settings.device_plugin, settings.proxy, simulated)


@contextmanager
def _run_on(simulated: LivingHelm, **nodes: ClusterNode) -> Iterator[Host]:
    """Give a host whose operations find this release, and these nodes, all of which the run labels."""
    host = Host({})
    with (
        ctx_host.use(host),
        patch.object(helm, "runner", lambda _: simulated),
        patch.object(control_plane, "runner", lambda _: simulated),
        patch.object(helm, "asked_once", lambda *_: nodes),
        patch.object(helm, "relabelled", lambda _: frozenset(nodes)),
    ):
        yield host


def _agree(decision: Decision[ReleaseChange]) -> bool:
    """Return whether a run changes the release; a difference is a step's, or a person's to mend."""
    (item,) = decision.findings
    settled = [each for step in decision.steps for each in step.settles]
    assert all(each is item for each in settled)
    assert item.finding_class is FindingClass.OK or settled or item.remedy == BY_HAND
    assert (item.finding_class is FindingClass.OK) == (decision.refusal is None and not decision.steps)
    assert not (settled and decision.refusal)
    return bool(decision.steps)


def _carried_out(operation: Any, host: Host, **arguments: Any) -> list[bool]:
    return [each.function(host.state, host, *each.args) for each in operation._inner(**arguments)]


@given(simulated=_RELEASES, take_over=st.booleans())
# A rollback that was cut off behind its last write: the one that recovers it undoes the same failure.
@example(simulated=LivingHelm([("failed", "", SAME), ("superseded", "Rollback to 1", OTHER)]), take_over=True)
@hypothesis_settings(deadline=None)
def test_run_and_drift_agree_on_the_release(simulated: LivingHelm, take_over: bool) -> None:
    settings = _settings(take_over)
    asked = desired_cluster({"gpu-1": settings})
    assert asked is not None
    decision = _session(settings, simulated).decide(asked.values, (), datetime.now(UTC))[2]
    changes, by_hand = _agree(decision), any(simulated.by_hand)
    with _run_on(simulated) as host:
        simulated.told.clear()
        done = _carried_out(
            helm.release, host, desired=asked.release, proxy=settings.proxy, everyone={"gpu-1": settings}
        )
    assert [each for each in simulated.told if each.split()[0] in ("upgrade", "rollback", "uninstall")] == [
        f"rollback {step.revision}" if step.act == "rollback" else "upgrade" if step.act == "install" else step.act
        for each in decision.steps if each.change for step in each.change.steps
    ]  # fmt: skip
    recovered = any(each.startswith("rollback") for each in simulated.told)
    assert all(done) == (decision.refusal is None)
    assert bool(host.noops) == (not changes and not decision.refusal)
    assert bool(host.refusals) == bool(decision.refusal)
    after = _session(settings, simulated).decide(asked.values, (), datetime.now(UTC))[2]
    assert not _agree(after)
    # The rollback that recovers a release takes back what a hand changed, too: then nothing is left to be refused.
    mended = by_hand and recovered and after.refusal is None
    assert mended or bool(after.refusal) == bool(decision.refusal)


@given(simulated=_RELEASES)
@hypothesis_settings(deadline=None)
def test_a_release_that_no_node_needs_goes_once_or_is_a_person_s(simulated: LivingHelm) -> None:
    settings = _settings()
    moved = check_hosts(
        {"gpu-1": {"kubernetes": {"enabled": True}, "device_plugin": {"method": "manifest", "namespace": "gpu"}}}
    )
    decision = _session(settings, simulated).decide_absence(CHART, datetime.now(UTC))
    changes = _agree(decision)
    labelled = ClusterNode("gpu-1", {PRESENT: "true"}, f'["{PRESENT}"]', {}, False, True)
    with _run_on(simulated, **{"gpu-1": labelled}) as host:
        simulated.told.clear()
        done = _carried_out(helm.absent, host, cluster_of=moved["gpu-1"], everyone=moved)
    assert ("uninstall" in simulated.told) == changes and all(done) == (decision.refusal is None)
    if decision.refusal is None:
        assert _session(settings, simulated).decide_absence(CHART, datetime.now(UTC)) == Decision(
            _session(settings, LivingHelm([])).decide_absence(CHART, datetime.now(UTC)).findings
        )


@pytest.mark.parametrize("method", ["helm", "gpu-operator"])
def test_drift_tells_of_a_release_that_the_run_takes_away(tmp_path: Path, method: str) -> None:
    cluster = SimulatedCluster.of(tmp_path, "gpu-1")
    nodes = cluster.state()["nodes"]
    labels = {CONFIG: "none"} | ({SERVED_BY: method} if method == "gpu-operator" else {})
    nodes["gpu-1"]["metadata"] |= {"labels": labels, "annotations": {OURS: json.dumps([*labels])}}
    manifest = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "all"}})
    cluster.write(nodes=nodes, revisions=[manifest], operator=[manifest], objects={"daemonsets.apps,pods": []})
    settings = settings_from({"kubernetes": cluster.settings(), "device_plugin": {"method": "manifest"}})
    found = of_both(fleet_cluster.findings(Path("none.py"), {"gpu-1": settings}, {"gpu-1": GOOD}))
    releases = {item.what: item for item in found if item.what.startswith("helm release")}
    names = ["helm release gpu-operator/gpu-operator"] if method == "gpu-operator" else []
    assert [*releases] == [*names, "helm release nvidia-device-plugin/nvdp"]
    assert all((item.desired, item.finding_class) == ("none", FindingClass.DRIFT) for item in releases.values())
    assert cluster.called("helm uninstall") == 0
