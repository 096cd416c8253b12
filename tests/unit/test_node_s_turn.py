"""A turn of a node where the cluster or the node answer otherwise than a moment ago. SIMULATED: both."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host

from gpunode.base.reading import Unknown
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import PluginMps as PluginMpsFact
from gpunode.kubernetes.device_plugin.view import View
from gpunode.operations import cluster_labels, node_by_node
from gpunode.operations.failure import OperationRefused
from gpunode.operations.node_by_node import Change, begun_anew
from gpunode.settings import Settings, settings_from
from tests.support.messages import unnamed
from tests.support.simulated_host import Host

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


def settings(timeout: int = 30) -> Settings:
    return settings_from({
        "kubernetes": {"enabled": True, "timeout": timeout}, "sharing": {"strategy": "mps", "replicas": 4},
    })  # fmt: skip


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return a node on whose clock each pause takes a second."""
    now = {"seconds": 0.0}
    monkeypatch.setattr(node_by_node, "monotonic", lambda: now["seconds"])
    monkeypatch.setattr(node_by_node, "sleep", lambda pause: now.update(seconds=now["seconds"] + pause))
    monkeypatch.setattr(node_by_node, "snapshot", lambda _: SimpleNamespace(forget=lambda: None))
    found = Host({})
    with ctx_host.use(found):
        yield found


class Late(Host):
    """Answer no question but those from the third on."""

    asked = 0

    def get_fact(self, fact: type, **more: Any) -> Any:
        if fact is PluginMpsFact:
            self.asked += 1
            if self.asked < 3:
                return Unknown("too slow")
        return super().get_fact(fact, **more)


def test_a_daemon_that_begins_and_keeps_who_asks_it_waiting_is_asked_again(
    node: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_by_node, "judge_mps", lambda *_: ())
    node.readings |= {PluginMpsFact: object(), GpusFact: object()}
    node.__class__ = Late
    assert node_by_node._limits_read_back(node.state, node, settings())  # type: ignore[arg-type]
    assert node.asked == 3 and not node.refusals  # type: ignore[attr-defined]


def test_one_that_never_answers_fails_the_turn_with_the_reason(node: Host) -> None:
    node.readings |= {PluginMpsFact: Unknown("too slow"), GpusFact: object()}
    assert not node_by_node._limits_read_back(node.state, node, settings(timeout=30))  # type: ignore[arg-type]
    (said,) = node.refusals
    assert unnamed(said, "MPS", "too slow") == []


def test_a_node_that_has_left_the_cluster_by_its_turn_is_refused_by_name(node: Host) -> None:
    left = SimpleNamespace(view_of_node=lambda *_: View({}, (), ()), with_revisions=lambda view, _: view)
    change = Change(settings(), left, "gpu-1", None, lambda: None)  # type: ignore[arg-type]
    with pytest.raises(OperationRefused, match="gpu-1"):
        list(begun_anew(change, View({}, (), ())))


def test_who_takes_part_is_told_of_the_asked_hosts_alone_while_others_are_still_being_prepared(
    node: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's restart asks for itself alone; a slow host of the run has not told its settings by then."""
    monkeypatch.setattr(cluster_labels, "is_executing", lambda: False)
    monkeypatch.setattr(cluster_labels, "host", node)
    node.state.active_hosts, node.state.is_host_in_limit = [node, Host({}, "gpu-2")], lambda _: True
    assert cluster_labels.relabelled({"gpu-1": settings()}) == {"gpu-1"}
