"""A node's MIG configuration by its label in the cluster. kubectl is SIMULATED: a script that prints nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host

import gpunode.deploys.component
import gpunode.fleet.cluster
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.probe import Announced
from gpunode.base.reading import Unknown
from gpunode.base.run_context import ANNOUNCING
from gpunode.cli.plan import _of
from gpunode.components.mig.boot import MigBoot
from gpunode.facts.node import Machine as MachineFact
from gpunode.fleet.cluster import cluster_nodes, with_cluster_nodes
from gpunode.fleet.drift import contained_report
from gpunode.fleet.nodes import Answer
from gpunode.kubernetes.mig_label import by_label
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import (
    MIG_CONFIG,
    MIG_STATE,
    given_up,
    label_change,
    labels_of_failed,
    wanted_labels,
)
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.node.plan import Plan
from gpunode.node.preflight import Refusal, cautions
from gpunode.settings import Settings, settings_from
from tests.support.messages import unnamed
from tests.support.preflight import TODAY, machine
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


def _data(**more: Any) -> dict[str, Any]:
    kubernetes = {"enabled": True, **more.pop("kubernetes", {})}
    mig = {"config_from_label": True, **more.pop("mig", {})}
    return {"kubernetes": kubernetes, "mig": mig, "sharing": {"mig_strategy": "mixed"}, **more}


def _labelled(value: str, **data: Any) -> Settings | Refusal | Unknown:
    node = ClusterNode("gpu-1", {MIG_CONFIG: value}, None, {}, False, True)
    return by_label("gpu-1", settings_from(_data(**data)), {"gpu-1": node})


ASKED = "get nodes --output json --request-timeout 30s"


class Kubectl:
    """A program that notes each call, and prints what a test wants."""

    def __init__(self, folder: Path) -> None:
        self.program, self.calls, self.answer = folder / "kubectl", folder / "calls", folder / "answer"
        self.program.write_text(f'#!/bin/sh\necho "$@" >> {self.calls}\ncat {self.answer}\n')
        self.program.chmod(0o755)

    def prints(self, **labels: str | None) -> None:
        items = [
            {"metadata": {"name": name, "labels": {MIG_CONFIG: value} if value is not None else {}}}
            for name, value in labels.items()
        ]
        self.answer.write_text(json.dumps({"items": items}))

    def fails(self) -> None:
        self.program.write_text("#!/bin/sh\necho 'The connection to the server was refused' >&2\nexit 1\n")

    @property
    def asked(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def data(self, **more: Any) -> dict[str, Any]:
        return _data(kubernetes={"kubectl": str(self.program)}, **more)


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path)


def _with_nodes(inventory: Path, answers: tuple[Answer[Node], ...]) -> list[Answer[Node]]:
    nodes = cluster_nodes(inventory, [each.settings for each in answers])
    assert nodes is not None
    return with_cluster_nodes(answers, nodes)


def _apart(findings: tuple[Finding, ...]) -> tuple[list[Finding], list[Finding]]:
    """Return the findings that are not as desired, and the others."""
    bad = [item for item in findings if item.finding_class is not FindingClass.OK]
    return bad, [item for item in findings if item not in bad]


def test_a_label_that_names_no_configuration_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mig.yaml").write_text("version: v1\nmig-configs:\n  half:\n  - {devices: all, mig-enabled: false}\n")
    file = {"file": str(tmp_path / "mig.yaml")}
    refused = _labelled("all-balanced", mig=file)
    assert isinstance(refused, Refusal) and unnamed(refused.reason, "half") == []
    assert isinstance(_labelled("half", mig=file), Settings)


def test_a_node_without_the_label_is_left_as_it_is_with_a_caution() -> None:
    settings = _labelled("")
    assert isinstance(settings, Settings)
    (told,) = [each.reason for each in cautions(settings, machine(), today=TODAY) if each.component == "mig"]
    assert unnamed(told, "mig.config_from_label is True", "nvidia.com/mig.config") == []
    # What brings a layout back at a boot is no drift there: the label may be gone by mistake.
    node = replace(GOOD, mig_boot=MigBoot((("/unit", "digest"),), ("GPU-1 off",), enabled=True))
    assert list(decisions(settings, node)["mig"].findings) == []
    assert list(decisions(settings_from({}), node)["mig"].findings) != []


def test_people_s_label_is_none_of_gpunode_s_and_its_state_is() -> None:
    found, label = _labelled("all-balanced"), {MIG_CONFIG: "all-balanced"}
    assert isinstance(found, Settings)
    wanted = wanted_labels(found, "success")
    assert MIG_CONFIG not in wanted and wanted[MIG_STATE] == "success"
    # It was gpunode's, while mig.config was set: it stays, and is not called gpunode's any more.
    change = label_change(wanted, {**label, **wanted}, json.dumps([MIG_CONFIG, *sorted(wanted)]), given_up(found))
    assert change.to_remove == () and change.annotates and json.loads(change.ours or "") == sorted(wanted)
    assert given_up(settings_from({})) == ()
    # A node that failed says so beside the label, and not where there is none; a run has looked it up before.
    for settings in (settings_from(_data()), found):
        assert labels_of_failed(settings, label, None) == {MIG_STATE: "failed"}
    assert labels_of_failed(settings_from(_data()), {}, None) == {}


def test_a_run_asks_the_cluster_once_for_all_its_hosts(kubectl: Kubectl, patched: Any) -> None:
    # One that leaves nothing to labels asks no cluster.
    set_here = {**kubectl.data(), "mig": {"config": "all-balanced"}}
    assert patched("gpu-1", set_here, _Run()).mig.config == "all-balanced" and kubectl.asked == []
    kubectl.prints(**{"gpu-1": "all-balanced", "gpu-2": "all-disabled", "gpu-3": None})
    run = _Run()
    found = {name: patched(name, kubectl.data(), run) for name in ("gpu-1", "gpu-2", "gpu-3")}
    assert [each.mig.config for each in found.values()] == ["all-balanced", "all-disabled", None]
    assert kubectl.asked == [ASKED]
    # The next run asks again.
    kubectl.prints(**{"gpu-1": "all-disabled"})
    assert patched("gpu-1", kubectl.data(), _Run()).mig.config == "all-disabled"
    assert len(kubectl.asked) == 2


def test_what_the_cluster_said_is_known_where_operations_are_announced_and_is_not_asked_for_there(
    kubectl: Kubectl, patched: Any
) -> None:
    kubectl.prints(**{"gpu-1": "all-balanced"})
    run, seen = _Run(), []
    for _ in range(2):
        patched.announces = True
        with suppress(Announced):
            seen.append(patched("gpu-1", kubectl.data(), run).mig.config)
        patched.announces = False
        assert len(kubectl.asked) == len(seen)
        assert patched("gpu-1", kubectl.data(), run).mig.config == "all-balanced"
    assert seen == ["all-balanced"] and kubectl.asked == [ASKED]


def test_a_run_refuses_a_node_that_the_cluster_does_not_have(kubectl: Kubectl, patched: Any) -> None:
    kubectl.prints()
    patched.refused = True
    (reason,) = patched("gpu-1", kubectl.data(), _Run())
    assert reason.code == "preflight.label-of-no-node"


@pytest.mark.parametrize("way", ["silent", "no nodes"])
def test_a_run_goes_on_without_the_label_where_the_cluster_does_not_answer(
    kubectl: Kubectl, patched: Any, way: str
) -> None:
    kubectl.prints()
    if way == "silent":
        kubectl.fails()
    else:
        kubectl.answer.write_text("{}")
    assert patched("gpu-1", kubectl.data(), _Run()).mig.config is None


def test_drift_and_plan_judge_by_the_label(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.prints(**{"gpu-1": "all-balanced", "gpu-2": "nonsense"})
    settings = settings_from(kubectl.data())
    answers = tuple(Answer[Node](name, settings, GOOD, None) for name in ("gpu-1", "gpu-2", "gpu-3"))
    first, second, third = _with_nodes(tmp_path / "unread.py", answers)
    assert kubectl.asked == [ASKED]
    assert first.settings.mig.config == "all-balanced" and first.refusal is None
    for each, said in ((second, "'nonsense'"), (third, "no node gpu-3")):
        finding, *others = contained_report(each).findings
        assert others and "mig" not in {item.component for item in others}
        assert (finding.component, finding.finding_class) == ("mig", FindingClass.UNSUPPORTED)
        assert said in (finding.cause or "")
        plan = _of(each)
        assert isinstance(plan, Plan) and plan.verdict == "refused" and said in plan.refusals[0].reason


def test_of_a_node_whose_cluster_does_not_answer_mig_alone_is_not_known(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.fails()
    settings = settings_from(kubectl.data())
    answers = (Answer[Node]("gpu-1", settings, GOOD, None), Answer[Node]("gpu-2", settings, None, "no route"))
    first, second = _with_nodes(tmp_path / "unread.py", answers)
    unknown, others = _apart(contained_report(first).findings)
    assert [item.code for item in unknown] == ["mig.mig-configuration"]
    assert {item.component for item in others} > {"driver", "containerd"}
    plan = _of(first)
    assert isinstance(plan, Plan) and plan.verdict == "not known" and plan.is_negative
    assert [step.code for step in plan.steps] == ["mig.mig-configuration"]
    assert second == replace(answers[1], no_cluster=True)


def test_the_cluster_is_asked_by_its_control_plane_host_where_that_runs_kubectl(
    kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl.prints(**{"gpu-1": "all-balanced"})
    inventory = tmp_path / "inventory.py"
    inventory.write_text('nodes = ["@local"]\n')
    # pyinfra's own connector to this machine stands for a control-plane host: it is one of the inventory then.
    monkeypatch.setattr(gpunode.fleet.cluster, "LOCAL", "elsewhere")
    (found,) = _with_nodes(inventory, (Answer("gpu-1", settings_from(kubectl.data()), GOOD, None),))
    assert found.settings.mig.config == "all-balanced" and kubectl.asked == [ASKED]


class _Run:
    """Stand for pyinfra's state, of which there is one in a run: it is being prepared."""

    is_executing = False


class _Patched:
    """Ask deploys/component.py for a host's settings, as a run does; or for the reasons why it refuses the host."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.refused, self.announces = patch, False, False

    def __call__(self, name: str, data: dict[str, Any], run: Any) -> Any:
        host = Host({MachineFact: machine()}, name=name, state=run)
        host.data = SimpleNamespace(dict=lambda: data, override_datas={})  # type: ignore[attr-defined]
        host.groups = []  # type: ignore[attr-defined]
        host.inventory = SimpleNamespace(  # type: ignore[attr-defined]
            get_data=dict, get_host_data=lambda _: data, get_override_data=dict, groups={}
        )
        self.patch.setattr(gpunode.deploys.component, "host", host)
        ctx_host.set(host)
        ANNOUNCING.set(host, self.announces)  # type: ignore[arg-type]
        return gpunode.deploys.component._judged()[1] if self.refused else gpunode.deploys.component.settings()


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Patched]:
    yield _Patched(monkeypatch)
    ctx_host.reset()
