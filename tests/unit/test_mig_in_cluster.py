"""What a change of a node's MIG layout has its cluster do: the plugin's pods are away for it. kubectl is SIMULATED."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.components.crio.state import Crio
from gpunode.components.docker.state import Docker
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import DISABLED, ENABLED, Mig, MigGpu
from gpunode.components.mig.target import TargetError
from gpunode.facts.containerd import Containerd as ContainerdFact
from gpunode.facts.crio import Crio as CrioFact
from gpunode.facts.docker import Docker as DockerFact
from gpunode.facts.mig import Mig as MigFact
from gpunode.facts.mig_boot import MigBoot as MigBootFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.kubernetes.device_plugin.cluster import Cluster as KubectlCluster
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from gpunode.kubernetes.nodes.labels import (
    CONFIG,
    MIG_CONFIG,
    MIG_STATE,
    MPS_CAPABLE,
    OURS,
    PRESENT,
    SERVED_BY,
    before_mig,
    label_change,
    labels_of_failed,
    wanted_labels,
)
from gpunode.operations import cluster_labels, device_plugin, mig, mig_in_cluster
from gpunode.operations.transaction import ENDED
from gpunode.settings import Settings, settings_from
from gpunode.system.transaction import Journal
from tests.support.messages import unnamed
from tests.support.mig_target import DECLARATION, H100, MIXED, gpu
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]
NODE: dict[str, Any] = {
    "kubernetes": {"enabled": True, "timeout": 30, "drain": {"enabled": False}},
    "mig": {"config": "all-balanced"}, "sharing": {"mig_strategy": "mixed"},
}  # fmt: skip
ASKED = settings_from(NODE)
MANIFEST = settings_from({**NODE, "device_plugin": {"method": "manifest"}})
OPERATOR = settings_from({**NODE, "device_plugin": {"method": "gpu-operator", "nfd": "chart"}})
CHART = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]}
    for key in ("feature.node.kubernetes.io/pci-10de.present", PRESENT)
]}}}  # fmt: skip


def _set(name: str, **pod: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "plugin", "name": name}, "spec": {"template": {"spec": pod}}}


class Cluster:
    """Hold a node, DaemonSets and their pods, which go some looks after the DaemonSet takes the node no more."""

    def __init__(self, settings: Settings, *sets: dict[str, Any], goes_after: int = 2) -> None:
        labels = wanted_labels(settings, "success")
        self.labels, self.note = {"zone": "a", **labels}, json.dumps(sorted(labels))
        self.sets = {each["metadata"]["name"]: each for each in sets}
        self.pods = [f"{name}-x" for name in self.sets]
        self.goes_after, self.silent = goes_after, False
        self.asked: list[str] = []

    def __call__(self, command: Command) -> Output:
        verb = " ".join(command.words[1:3])
        self.asked.append(verb)
        if self.silent:
            return Output(1, "", "The connection to the server 10.0.0.1:6443 was refused")
        return Output(0, json.dumps(self._answer(verb, command.words)), "")

    def _answer(self, verb: str, words: tuple[str, ...]) -> dict[str, Any]:
        if verb == "get nodes":
            return {"items": [{"metadata": {"name": "gpu-1", "labels": self.labels, "annotations": {OURS: self.note}}}]}
        if verb == "patch node":
            metadata = json.loads(words[words.index("--patch") + 1])["metadata"]
            merged = {**self.labels, **metadata["labels"]}
            self.labels = {name: value for name, value in merged.items() if value is not None}
            self.note = metadata.get("annotations", {OURS: self.note})[OURS]
            return {}
        if verb == "get daemonsets.apps":
            return {"items": list(self.sets.values())}
        assert verb == "get pods" and "spec.nodeName=gpu-1" in words
        self.goes_after -= PRESENT not in self.labels and SERVED_BY not in self.labels
        if self.goes_after < 0:
            self.pods = [name for name in self.pods if name.startswith("agent")]
        return {"items": [self._pod(name) for name in self.pods]}

    @staticmethod
    def _pod(name: str) -> dict[str, Any]:
        owner = {"kind": "DaemonSet", "name": name.removesuffix("-x")}
        return {"metadata": {"namespace": "plugin", "name": name, "ownerReferences": [owner]}}


class State:
    """Stand in for a run of pyinfra's."""

    def __init__(self) -> None:
        self.is_executing = True
        self.print_output = self.print_input = False
        self.handlers: list[Any] = []
        # Operations, by host and hash, of which more is known than that they fail.
        self.ops: dict[Host, dict[str, Any]] = {}

    def add_callback_handler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def fail(self, host: Host) -> None:
        """Tell what pyinfra tells of an operation that failed."""
        for handler in self.handlers:
            handler.operation_host_error(self, host, "hash")


class Ask:
    """Ask the operation on MIG for a layout of a node with one GPU, with some cluster."""

    def __init__(self, host: Host, patch: pytest.MonkeyPatch) -> None:
        self.host, self.patch = host, patch
        self.said: list[str] = []
        # What the connection says of the transaction, and whether it succeeded; it does, where nothing is here.
        self.answers: tuple[bool, str] = (True, "")
        host.state = State()
        host.log = self.said.append  # type: ignore[method-assign,assignment]
        host.run_shell_command = self._executed  # type: ignore[attr-defined]

    def __call__(self, cluster: Cluster, there: MigGpu, settings: Settings = ASKED, part: bool = True) -> list[str]:
        for module in (mig_in_cluster, cluster_labels):
            self.patch.setattr(module, "runner", lambda _: cluster)
        self.host.readings |= {
            MigFact: Mig("ok", None, (there,)), MigBootFact: MigBoot(), ContainerdFact: GOOD.containerd,
            DockerFact: Docker(None),
            CrioFact: Crio(),
        }  # fmt: skip
        if part:
            cluster_labels.takes_part(settings, settings)
        layout = mig.layout._inner(settings=settings.mig, gpus=(H100,), allowed="reset", node_of=settings)
        return list(self._done(layout))

    def _done(self, commands: Iterator[Any]) -> Iterator[str]:
        for command in commands:
            if hasattr(command, "function"):
                kind, well = "cluster", command.function(self.host.state, self.host, *command.args) is not False
            else:
                kind = "transaction" if "name=mig" in command.get_raw_value() else "other"
                well, _ = command.execute(self.host.state, self.host, {})
            if not well:
                self.host.state.fail(self.host)
                yield "failed"
                return
            yield kind

    def label(self, cluster: Cluster, settings: Settings = ASKED) -> list[str]:
        """Bring about the node's labels, at the end of the run."""
        self.patch.setattr(device_plugin, "runner", lambda _: cluster)
        return list(self._done(device_plugin.labels._inner(settings, (H100,), settings)))

    def _executed(self, *_: Any, **__: Any) -> tuple[bool, CommandOutput]:
        well, said = self.answers
        if said == "cut":
            raise ConnectionResetError(said)
        return well, CommandOutput([OutputLine("stderr", line) for line in said.splitlines()])


@pytest.fixture
def ask(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Ask:
    (tmp_path / "mig.yaml").write_text(DECLARATION)
    monkeypatch.setattr(mig, "driver_state", lambda: GOOD.driver)
    monkeypatch.setattr(mig_in_cluster, "sleep", lambda _: None)
    minutes = iter(range(0, 600_000, 10))
    monkeypatch.setattr(mig_in_cluster, "monotonic", lambda: float(next(minutes)))
    return Ask(host, monkeypatch)


PLUGIN, MPS = _set("nvdp", affinity=CHART), _set("nvdp-mps", affinity=CHART, nodeSelector={MPS_CAPABLE: "true"})
AGENT = _set("agent", nodeSelector={"zone": "a"})
OWN = _set("own", nodeSelector={SERVED_BY: "manifest", CONFIG: "mig-mixed"})


@pytest.mark.parametrize(
    ("settings", "plugin", "label"), [(ASKED, PLUGIN, PRESENT), (MANIFEST, OWN, SERVED_BY)], ids=["helm", "manifest"]
)
def test_the_plugin_s_pods_have_left_the_node_before_its_gpus_are_divided_anew_and_others_stay(
    ask: Ask, settings: Settings, plugin: dict[str, Any], label: str
) -> None:
    cluster = Cluster(settings, plugin, AGENT)
    note = cluster.note
    assert ask(cluster, gpu(0, DISABLED), settings) == ["cluster", "transaction"]
    assert cluster.asked == ["get nodes", "get daemonsets.apps", "patch node", *["get pods"] * 3]
    assert cluster.pods == ["agent-x"]
    assert label not in cluster.labels and cluster.labels[CONFIG] == "mig-mixed"
    assert cluster.labels[MIG_STATE] == "pending" and cluster.labels["zone"] == "a"
    # Whichever run comes next knows by it that they are gpunode's, and sets them again.
    assert cluster.note == note
    again = label_change(wanted_labels(settings, "success"), cluster.labels, cluster.note)
    assert set(again.to_set) == {label, MIG_STATE} and not again.to_remove
    assert unnamed(ask.said[-1], "node gpu-1", f"plugin/{plugin['metadata']['name']}") == []


def test_nothing_is_taken_off_for_instances_that_only_come_and_the_label_says_pending(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    assert ask(cluster, gpu(0, ENABLED)) == ["cluster", "transaction"]
    assert cluster.asked == ["get nodes", "patch node"]
    assert cluster.labels[PRESENT] == "true" and cluster.labels[MIG_STATE] == "pending"


def test_a_node_that_is_as_asked_has_nothing_asked_of_its_cluster(ask: Ask, tmp_path: Any) -> None:
    settings = settings_from({**NODE, "mig": {"config": "mixed", "file": str(tmp_path / "mig.yaml")}})
    cluster = Cluster(settings, PLUGIN)
    # What brings the layout back at a boot is still to be written.
    assert ask(cluster, gpu(0, ENABLED, *MIXED), settings) == ["transaction"]
    assert cluster.asked == []


def test_pods_that_do_not_end_keep_the_change_from_the_node_and_the_labels_come_back(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN, goes_after=1000)
    assert ask(cluster, gpu(0, DISABLED)) == ["failed"]
    assert unnamed(ask.host.refusals[0], "plugin/nvdp-x", "node gpu-1", "30 s", "(kubernetes.timeout)") == []
    assert cluster.labels[PRESENT] == "true" and cluster.labels[MIG_STATE] == "failed"


def test_what_fails_behind_it_has_the_labels_come_back_at_once_and_the_state_say_failed(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    ask(cluster, gpu(0, DISABLED))
    assert PRESENT not in cluster.labels
    ask.host.state.fail(ask.host)
    assert cluster.labels[PRESENT] == "true" and cluster.labels[MIG_STATE] == "failed"


def test_an_error_that_is_ignored_tells_the_cluster_nothing(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    ask(cluster, gpu(0, DISABLED))
    before = dict(cluster.labels)
    ignores = SimpleNamespace(global_arguments={"_ignore_errors": True}, parent_op_hash=None)
    ask.host.state.ops = {ask.host: {"hash": ignores}}
    ask.host.state.fail(ask.host)
    assert cluster.labels == before


def test_what_fails_once_the_labels_are_there_says_nothing_of_mig(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    ask(cluster, gpu(0, DISABLED))
    cluster_labels.labelled()
    before = dict(cluster.labels)
    ask.host.state.fail(ask.host)
    assert cluster.labels == before


@pytest.mark.parametrize(
    ("said", "comes_back"),
    [("cut", False), ("gpunode: that did not succeed either", False), (f"{ENDED} mig", True)],
    ids=["the connection broke", "nothing could be put back", "the former layout is back"],
)
def test_the_pods_come_back_after_a_change_that_failed_only_where_it_has_ended(
    ask: Ask, said: str, comes_back: bool
) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    note = cluster.note
    ask.answers = (False, said)
    assert ask(cluster, gpu(0, DISABLED)) == ["cluster", "failed"]
    assert (PRESENT in cluster.labels) is comes_back and cluster.labels[MIG_STATE] == "failed"
    # By it the next run that reaches the labels sets them.
    assert json.loads(cluster.note) == json.loads(note)


@pytest.mark.parametrize("running", [False, True])
def test_the_pods_leave_before_an_earlier_change_is_undone_or_waited_for(ask: Ask, running: bool) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    ask.host.readings[TransactionJournal] = Journal("began", "target", None, running)
    ask.answers = (False, "gpunode: that did not succeed either")
    assert ask(cluster, gpu(0, DISABLED)) == ["cluster", "failed"]
    assert PRESENT not in cluster.labels and cluster.labels[MIG_STATE] == "failed" and cluster.pods == []


def test_what_fails_once_an_earlier_change_is_undone_has_the_labels_come_back(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    ask.host.readings[TransactionJournal] = Journal("began", "target", None, False)

    def refuse(*_: Any) -> None:
        raise TargetError("no place")

    ask.patch.setattr("gpunode.components.mig.decide.targets", refuse)
    assert ask(cluster, gpu(0, DISABLED)) == ["cluster", "transaction", "failed"]
    assert cluster.pods == [] and cluster.labels[PRESENT] == "true"


def test_the_labels_come_back_where_the_nodes_were_asked_for_before_the_layout_changed(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    # Another host's step, as with `--serial`.
    device_plugin.nodes(KubectlCluster(ASKED.kubernetes, ASKED.proxy, cluster))
    ask(cluster, gpu(0, DISABLED))
    assert PRESENT not in cluster.labels
    assert ask.label(cluster) == ["cluster"] and cluster.labels[PRESENT] == "true"
    # A node whose layout stays is asked for with all others.
    cluster.asked.clear()
    cluster_labels.takes_part(ASKED, ASKED)
    ask.label(cluster)
    assert "get nodes" not in cluster.asked


def test_a_run_that_was_killed_in_between_is_gone_on_with_by_the_next_one(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    del cluster.labels[PRESENT]
    cluster.labels[MIG_STATE] = "pending"
    assert ask(cluster, gpu(0, DISABLED)) == ["cluster", "transaction"]
    assert cluster.asked == ["get nodes", "get daemonsets.apps", *["get pods"] * 3]


def test_a_pod_that_takes_the_node_by_somebody_else_s_label_is_not_waited_for(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    cluster.labels["feature.node.kubernetes.io/pci-10de.present"] = "true"
    assert ask(cluster, gpu(0, DISABLED)) == ["cluster", "transaction"]
    assert cluster.pods == ["nvdp-x"] and "get pods" not in cluster.asked


def test_the_label_of_the_operator_s_nodes_stays_for_no_daemonset_takes_a_node_by_it(ask: Ask) -> None:
    cluster = Cluster(OPERATOR, PLUGIN, OWN)
    assert ask(cluster, gpu(0, DISABLED), OPERATOR) == ["cluster", "transaction"]
    assert cluster.asked == ["get nodes", "patch node"]
    assert cluster.labels[SERVED_BY] == "gpu-operator" and cluster.labels[MIG_STATE] == "pending"
    # Where it has gone in another way, the manifest's plugin does not come in its place.
    del cluster.labels[SERVED_BY]
    ask.host.state.fail(ask.host)
    assert cluster.labels[SERVED_BY] == "gpu-operator" and cluster.labels[MIG_STATE] == "failed"


def test_a_label_of_somebody_else_s_stays(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    cluster.note = json.dumps([CONFIG])
    assert ask(cluster, gpu(0, DISABLED)) == ["transaction"]
    assert cluster.labels[PRESENT] == "true" and cluster.labels[MIG_STATE] == "success"


def test_a_cluster_that_does_not_answer_keeps_nothing_from_the_node(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    cluster.silent = True
    assert ask(cluster, gpu(0, DISABLED)) == ["transaction"]
    assert "no pod is taken off" in ask.said[-1]


def test_a_run_that_sets_no_labels_takes_none_off(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    assert ask(cluster, gpu(0, DISABLED), part=False) == ["transaction"] and cluster.asked == []


def test_a_forecast_tells_which_pods_would_go_and_takes_none(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN, MPS)
    ask.host.state.is_executing = False
    for module in (mig_in_cluster, cluster_labels):
        ask.patch.setattr(module, "runner", lambda _: cluster)
    next(mig_in_cluster.set_aside(ASKED, clears=True))
    assert len(ask.said) == 1 and unnamed(ask.said[0], "node gpu-1", "plugin/nvdp") == []
    assert PRESENT in cluster.labels and cluster.pods == ["nvdp-x", "nvdp-mps-x"]


def test_the_mps_daemon_s_label_goes_with_the_plugin_s() -> None:
    shared = settings_from({"kubernetes": {"enabled": True}, "sharing": {"strategy": "mps", "replicas": 4}})
    labels = wanted_labels(shared)
    change = before_mig(ASKED, labels, json.dumps(sorted(labels)), clears=True)
    assert change.to_remove == (PRESENT, MPS_CAPABLE) and change.to_set == {MIG_STATE: "pending"}
    assert json.loads(change.ours or "") == sorted({*labels, MIG_STATE}) and change.annotates


def test_a_state_of_somebody_else_s_is_left_his_before_the_change() -> None:
    assert before_mig(ASKED, {MIG_STATE: "success"}, None, clears=True).is_none


def test_a_node_that_failed_gets_the_labels_back_that_a_change_had_taken_off_and_no_others() -> None:
    note = json.dumps([CONFIG, PRESENT, MIG_STATE])
    found = labels_of_failed(ASKED, {MIG_STATE: "pending"}, note)
    assert found == {PRESENT: "true", MIG_CONFIG: "all-balanced", MIG_STATE: "failed"}


def _fails_without_mig(ask: Ask, cluster: Cluster) -> None:
    whole = settings_from({"kubernetes": {"enabled": True}})
    ask.patch.setattr(cluster_labels, "runner", lambda _: cluster)
    cluster_labels.takes_part(whole, whole)
    ask.host.state.fail(ask.host)


def test_a_failure_is_told_of_hosts_alone_that_take_part_in_bringing_a_mig_configuration(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    _fails_without_mig(ask, cluster)
    ask.host.state.fail(replace(ask.host, name="gpu-2"))
    assert cluster.asked == ["get nodes"]


def test_labels_that_a_killed_run_took_off_come_back_where_no_mig_is_asked_for_any_more(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    del cluster.labels[PRESENT]
    before = dict(cluster.labels)
    _fails_without_mig(ask, cluster)
    assert cluster.labels == {**before, PRESENT: "true"}


def test_a_cluster_that_does_not_answer_after_a_failure_is_told_of_and_ends_nothing(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN)
    ask(cluster, gpu(0, DISABLED))
    cluster.silent = True
    ask.host.state.fail(ask.host)
    assert ask.said[-1].startswith("the node's labels do not tell that the run failed on it: ")
