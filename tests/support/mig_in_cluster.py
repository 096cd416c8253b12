"""A node of a SIMULATED cluster whose MIG layout changes: the plugin's pods are away for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host

from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import DISABLED, ENABLED, Holder, Mig, MigGpu
from gpunode.components.runtimes.crio.state import Crio
from gpunode.components.runtimes.docker.state import Docker
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.facts.runtimes import Crio as CrioFact
from gpunode.facts.runtimes import Docker as DockerFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from gpunode.kubernetes.nodes.labels import (
    CONFIG,
    MPS_CAPABLE,
    OURS,
    PRESENT,
    SERVED_BY,
    wanted_labels,
)
from gpunode.operations import cluster_labels, control_plane, device_plugin, mig, mig_in_cluster
from gpunode.settings import Settings, settings_from
from gpunode.system.transaction import Journal
from tests.support.mig_target import H100
from tests.support.mig_target import gpu as mig_gpu
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

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


def container(pod: str) -> str:
    """Return the ID of a pod's one container."""
    return sha256(pod.encode()).hexdigest()


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
            merged = {**self.labels, **metadata.get("labels", {})}
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
        status = {"containerStatuses": [{"containerID": f"containerd://{container(name)}"}]}
        return {"metadata": {"namespace": "plugin", "name": name, "ownerReferences": [owner]}, "status": status}


class State:
    """Stand in for a run of pyinfra's."""

    def __init__(self) -> None:
        self.is_executing = True
        self.print_output = self.print_input = False
        self.callback_handlers: list[Any] = []
        # Operations, by host and hash, of which more is known than that they fail.
        self.ops: dict[Host, dict[str, Any]] = {}

    def add_callback_handler(self, handler: Any) -> None:
        self.callback_handlers.append(handler)

    def fail(self, host: Host) -> None:
        """Tell what pyinfra tells of an operation that failed."""
        for handler in self.callback_handlers:
            handler.operation_host_error(self, host, "hash")


class Ask:
    """Ask the operation on MIG for a layout of a node with one GPU, with some cluster."""

    def __init__(self, host: Host, patch: pytest.MonkeyPatch) -> None:
        self.host, self.patch = host, patch
        self.shims = 0
        self.said: list[str] = []
        # What the connection says of the transaction, and whether it succeeded; it does, where nothing is here.
        self.answers: tuple[bool, str] = (True, "")
        self.holders: tuple[Holder, ...] = ()
        host.state = State()
        host.log = self.said.append  # type: ignore[method-assign,assignment]
        host.run_shell_command = self._executed  # type: ignore[attr-defined]

    def __call__(
        self, cluster: Cluster, there: MigGpu, settings: Settings = ASKED, part: bool = True, status: str = "ok"
    ) -> list[str]:
        self.patch.setattr(control_plane, "runner", lambda _: cluster)
        self.host.readings |= {
            MigFact: Mig(status, None, (there,), self.holders), MigBootFact: MigBoot(),
            ContainerdFact: replace(GOOD.containerd, shims=self.shims),
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
                try:
                    well, _ = command.execute(self.host.state, self.host, {})
                except OSError:
                    # As pyinfra has it.
                    well = False
            if not well:
                self.host.state.fail(self.host)
                yield "failed"
                return
            yield kind

    def label(self, cluster: Cluster, settings: Settings = ASKED) -> list[str]:
        """Bring about the node's labels, at the end of the run."""
        self.patch.setattr(control_plane, "runner", lambda _: cluster)
        return list(self._done(device_plugin.labels._inner(settings, (H100,), settings)))

    def _executed(self, *_: Any, **__: Any) -> tuple[bool, CommandOutput]:
        well, said = self.answers
        if said == "cut":
            raise ConnectionResetError(said)
        return well, CommandOutput([OutputLine("stderr", line) for line in said.splitlines()])


PLUGIN, MPS = _set("nvdp", affinity=CHART), _set("nvdp-mps", affinity=CHART, nodeSelector={MPS_CAPABLE: "true"})
SETS = {
    "plugin": PLUGIN, "mps": MPS, "agent": _set("agent", nodeSelector={"zone": "a"}),
    "own": _set("own", nodeSelector={SERVED_BY: "manifest", CONFIG: "mig-mixed"}),
}  # fmt: skip


@contextmanager
def asking() -> Iterator[Ask]:
    """Yield what asks the operation on a host, where no time passes."""
    host, minutes = Host({TransactionJournal: Journal(None, None, None, False)}), iter(range(0, 600_000, 10))
    with pytest.MonkeyPatch.context() as patch, ctx_host.use(host):
        patch.setattr(mig, "driver_state", lambda: GOOD.driver)
        # Asked when the run began.
        patch.setattr(control_plane, "unanswered", lambda _: None)
        patch.setattr(mig_in_cluster, "sleep", lambda _: None)
        patch.setattr(mig_in_cluster, "monotonic", lambda: float(next(minutes)))
        yield Ask(host, patch)


@dataclass(frozen=True)
class Outcome:
    """Hold what was done, what the cluster was asked, and what it has then; `kept`: the note on gpunode's labels is."""

    ran: list[str]
    asked: list[str]
    pods: list[str]
    labels: dict[str, str]
    kept: bool
    refusal: str
    said: str


def divided(
    method: str = "helm",
    sets: tuple[str, ...] = ("plugin",),
    gpu: str = "off",
    goes_after: int = 2,
    cluster: dict[str, Any] | None = None,
    part: bool = True,
    answer: str | None = None,
    journal: tuple[str, bool] | None = None,
    then: tuple[str, ...] = (),
    status: str = "ok",
    holds: str | None = None,
    unanswered: bool = False,
    shims: int = 0,
) -> Outcome:
    """Return what becomes of a change of a node's layout, and of what happens then: it fails, silence, or labels.

    cluster: labels that are others, None where one is gone; `note` on gpunode's labels; `silent`
    status: how nvidia-smi answers; holds: the pod that has the GPU open
    unanswered: whether the cluster did not answer when the run began; shims: how many containers run
    answer: what the connection says of a transaction that fails; journal: the state of an earlier one, and if it runs
    """
    settings = {"helm": ASKED, "manifest": MANIFEST, "operator": OPERATOR}[method]
    there, changes = Cluster(settings, *(SETS[name] for name in sets), goes_after=goes_after), dict(cluster or {})
    there.note, there.silent = changes.pop("note", there.note), changes.pop("silent", False)
    there.labels = {name: value for name, value in {**there.labels, **changes}.items() if value is not None}
    note = there.note
    with asking() as ask:
        ask.shims = shims
        if unanswered:
            ask.patch.setattr(control_plane, "unanswered", lambda _: "kubectl get nodes: connection refused")
        if answer is not None:
            ask.answers = (False, answer)
        if journal is not None:
            ask.host.readings[TransactionJournal] = Journal(journal[0], "target", None, journal[1])
        if holds is not None:
            there.pods += [holds] if holds not in there.pods else []
            short = container(holds)[:12]
            ask.holders = (Holder("GPU-0", 77, "nvidia-device-p", "root", None, None, short, in_pod=True),)
        ran = ask(there, mig_gpu(0, ENABLED if gpu == "on" else DISABLED), settings, part, status)
        for step in then:
            if step == "silence":
                there.silent = True
            elif step == "labels":
                ask.label(there, settings)
            elif step == "labelled":
                cluster_labels.labelled()
            elif step == "served by nobody":
                del there.labels[SERVED_BY]
            else:
                ignores = SimpleNamespace(global_arguments={"_ignore_errors": True}, parent_op_hash=None)
                ask.host.state.ops = {ask.host: {"hash": ignores}} if step == "failure that is ignored" else {}
                ask.host.state.fail(ask.host)
        said = ask.said[-1] if ask.said else ""
        return Outcome(
            ran,
            there.asked,
            there.pods,
            there.labels,
            sorted(json.loads(there.note)) == sorted(json.loads(note)),
            "".join(ask.host.refusals),
            said,
        )
