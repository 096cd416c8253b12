"""Before which steps a node is emptied, and when it is given back; readings and cluster are SIMULATED."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api import FunctionCommand

from gpunode.base.disruption import Disruption, Drain
from gpunode.base.reading import Unknown
from gpunode.base.run_context import WAVE
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import ENABLED, Mig
from gpunode.components.runtimes.containerd.decide import Desired
from gpunode.components.runtimes.crio.state import Crio
from gpunode.components.runtimes.docker.state import Docker
from gpunode.components.runtimes.judge import Desired as DesiredDocker
from gpunode.components.runtimes.runtime import Runtimes
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.driver import DriverOffers, DriverPackages, DriverSimulation
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.facts.runtimes import Crio as CrioFact
from gpunode.facts.runtimes import Docker as DockerFact
from gpunode.facts.system import Boot, OperatingSystem
from gpunode.facts.system import RunningBoot as RunningBootFact
from gpunode.fleet import run_end
from gpunode.fleet.reports.run_end import HostEnd, failure_of, report_of
from gpunode.kubernetes.drain.commands import Drain as NodeDrain
from gpunode.kubernetes.drain.commands import drain_of
from gpunode.operations import containerd, docker, driver_packages, driver_removal, mig, reboot
from gpunode.operations import drain as operation
from gpunode.operations.failure import OperationRefused
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.settings import settings_from
from gpunode.system.running_boot import RunningBoot
from tests.support import driver_packages as packages
from tests.support import driver_removal as removal
from tests.support.containerd import spare
from tests.support.docker_change import RIGHT
from tests.support.messages import unnamed
from tests.support.mig_target import DECLARATION, H100, gpu
from tests.support.simulated_host import Host
from tests.support.simulated_node import BUDGET, Cluster, pod, session
from tests.support.verify import GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]
DESIRED = Desired()
ASKED = DesiredDocker(Runtimes())
SPARE = replace(spare(), shims=2)
DRAINED = ["get --raw", "get pods", "get --raw", "patch node", "drain gpu-1", "patch node"]


class State:
    """Stand in for a run of pyinfra's."""

    def __init__(self) -> None:
        self.is_executing = True
        self.callback_handlers: list[Any] = []
        # Operations, by host and hash, of which more is known than that they fail.
        self.ops: dict[Host, dict[str, Any]] = {}

    def add_callback_handler(self, handler: Any) -> None:
        self.callback_handlers.append(handler)

    def get_op_meta(self, _: str) -> Any:
        return SimpleNamespace(names={"Reboot into the driver on disk"})

    def fail(self, host: Host) -> None:
        """Tell what pyinfra tells of an operation that failed."""
        for handler in self.callback_handlers:
            handler.operation_host_error(self, host, "hash", 0, 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, host: Host) -> Cluster:
    monkeypatch.delenv(WAVE, raising=False)
    found = Cluster()
    monkeypatch.setattr(operation, "runner", lambda _: found)
    host.state = State()
    return found


def node(name: str = "gpu-1", **settings: Any) -> NodeDrain:
    found = drain_of(name, settings_from({"kubernetes": {"enabled": True}, **settings}))
    assert found is not None
    return found


def drain(name: str = "gpu-1", **settings: Any) -> Drain:
    return partial(operation.drain_before, node(name, **settings))


def done(commands: Iterator[Any], host: Host) -> list[str]:
    """Run an operation's drains as pyinfra does, up to one that fails; return its other commands."""
    found: list[str] = []
    for command in commands:
        if isinstance(command, FunctionCommand):
            if command.function(host.state, host, *command.args) is False:
                return [*found, "failed"]
        else:
            found.append(command.get_raw_value())
    return found


def _end_of(host: Any) -> HostEnd:
    return run_end._end(host)


def restart(host: Host, name: str = "gpu-1", desired: Desired = DESIRED, **settings: Any) -> list[str]:
    """Have a containerd restarted that runs by another configuration."""
    host.readings[ContainerdFact] = replace(SPARE, loaded="other")
    return done(containerd.configuration._inner(desired=desired, drain=drain(name, **settings)), host)


def test_a_restart_of_containerd_comes_after_the_drain_and_leaves_the_node_cordoned(
    host: Host, cluster: Cluster
) -> None:
    check, command = restart(host)
    assert "gpunode-$name" not in check and "gpunode-$name" in command and cluster.asked == DRAINED
    assert cluster.cordoned and cluster.note is not None
    assert unnamed(cluster.note["reason"], "containerd") == []
    # Whatever fails after it: the end of the run names the cordon, until the node is given back.
    end = replace(_end_of(host), failure=failure_of("X", ["it failed"]))
    report = report_of(end)
    assert report is not None and [item.code for item in report.findings] == [
        "run.operation-failed",
        "kubernetes.cordon",
    ]
    assert unnamed(str(report.findings[1].remedy), "kubectl uncordon gpu-1") == []
    assert _returned(host) == [] and not cluster.cordoned and _end_of(host).cordon is None


def test_nothing_is_asked_of_the_cluster_for_a_change_that_takes_no_restart(host: Host, cluster: Cluster) -> None:
    host.readings[ContainerdFact] = SPARE
    assert len(done(containerd.configuration._inner(desired=Desired(), drain=drain()), host)) == 1
    assert restart(host, desired=Desired(allowed=Disruption.nothing)) == []
    host.readings[ContainerdFact] = replace(SPARE, config_text="= =")
    assert done(containerd.configuration._inner(desired=Desired(), drain=drain()), host) == ["failed"]
    assert cluster.asked == []


@pytest.mark.parametrize(("differs", "drains"), [({"cgroup_driver": "cgroupfs"}, True), ({"runtimes": ()}, False)])
def test_a_restart_of_docker_is_drained_for_and_a_reload_is_not(
    host: Host, cluster: Cluster, differs: dict[str, Any], drains: bool
) -> None:
    host.readings[DockerFact] = replace(RIGHT, **differs)
    # The program checks its new configuration before the drain.
    assert len(done(docker.configuration._inner(ASKED, drain=drain()), host)) == 1 + drains
    assert cluster.asked == (DRAINED if drains else [])


def test_a_node_that_is_in_no_cluster_is_changed_without_a_drain(host: Host, cluster: Cluster) -> None:
    host.readings[ContainerdFact] = replace(SPARE, loaded="other")
    assert len(done(containerd.configuration._inner(desired=Desired()), host)) == 1
    assert cluster.asked == []


def _upgrade(host: Host, loaded: str | None) -> Iterator[Any]:
    host.readings |= {
        DriverFact: replace(packages.NO_DRIVER, loaded_version=loaded),
        DriverPackages: packages.INSTALLED,
        DriverOffers: Offers(tuple(packages.OFFERED)),
        DriverSimulation: Simulation((("nvidia-open", "580.82.07-1", "580.95.05-1"),), ()),
    }
    found: Iterator[Any] = driver_packages.installed._inner(**packages.UPGRADE, drain=drain())
    return found


@pytest.mark.parametrize(("loaded", "drains"), [(None, False), ("580.82.07", True), ("580.95.05", False)])
def test_a_driver_is_drained_for_where_another_one_is_loaded(
    host: Host, cluster: Cluster, loaded: str | None, drains: bool
) -> None:
    refresh, change = done(_upgrade(host, loaded), host)
    assert "systemd-run" in change and "systemd-run" not in refresh
    assert cluster.asked == (DRAINED if drains else [])


@pytest.mark.parametrize(("loaded", "drains"), [("580.82.07", True), ("580.95.05", False)])
def test_a_forecast_of_a_driver_tells_of_its_drain_first(
    host: Host, cluster: Cluster, loaded: str, drains: bool
) -> None:
    host.state.is_executing = False
    first = next(_upgrade(host, loaded))
    assert isinstance(first, FunctionCommand) is drains
    assert cluster.asked == (["get --raw", "get pods"] if drains else [])


def test_a_loaded_driver_goes_after_the_drain_and_one_that_is_not_loaded_without(host: Host, cluster: Cluster) -> None:
    for there, asked in ((replace(removal.PACKAGED, loaded_version=None), []), (removal.PACKAGED, DRAINED)):
        removal._node(host, there)
        assert len(done(driver_removal.removed._inner(**removal.ASKED, drain=drain()), host)) == 1
        assert cluster.asked == asked


@pytest.mark.parametrize(
    ("there", "drains"), [(("3g.40gb:4", "2g.20gb:0", "2g.20gb:2"), True), (("3g.40gb:4",), False)]
)
def test_gpus_are_drained_for_where_an_instance_goes_and_not_where_some_come(
    host: Host, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, there: tuple[str, ...], drains: bool
) -> None:
    (tmp_path / "mig.yaml").write_text(DECLARATION)
    asked = settings_from({"mig": {"config": "mixed", "file": str(tmp_path / "mig.yaml")}}).mig
    host.readings |= {
        MigFact: Mig("ok", None, (gpu(0, ENABLED, *there),)), MigBootFact: MigBoot(),
        ContainerdFact: GOOD.containerd, DockerFact: Docker(None), CrioFact: Crio(),
    }  # fmt: skip
    monkeypatch.setattr(mig, "driver_state", lambda: GOOD.driver)
    layout = mig.layout._inner(settings=asked, gpus=(H100,), allowed="reset", drain=drain())
    change = next(command for command in done(layout, host) if "name=mig" in command)
    assert "systemd-run" in change
    assert cluster.asked == (DRAINED if drains else [])


def test_a_reboot_comes_after_the_drain_and_one_that_is_refused_drains_nothing(
    host: Host, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reboot, "SSHConnector", object)
    monkeypatch.setattr(reboot, "obstacles", lambda *_: ())
    host.readings |= {RunningBootFact: RunningBoot("boot", 1), DriverFact: GOOD.driver, Boot: GOOD.boot}
    host.readings[OperatingSystem] = GOOD.operating_system
    host.connector = None
    first, boot, _ = reboot.new_boot("x", 30, drain=drain())
    assert isinstance(first, FunctionCommand) and "systemctl reboot" in boot.get_raw_value()
    monkeypatch.setattr(reboot, "obstacles", lambda *_: ("no kernel",))
    cluster.asked.clear()
    with pytest.raises(OperationRefused):
        next(reboot.new_boot("x", 30, drain=drain()))
    assert cluster.asked == []


def test_a_blocked_drain_ends_the_operation_before_the_change(host: Host, cluster: Cluster) -> None:
    cluster.pods, cluster.budgets = [pod("web-1")], [BUDGET]
    assert [text for text in done(_upgrade(host, "580.82.07"), host) if "systemd-run" in text] == []
    assert "drain blocked" in host.refusals[0]
    host.state.fail(host)
    assert cluster.note is not None and cluster.note["state"] == "drain blocked"


def test_a_cluster_that_does_not_answer_keeps_the_change_from_the_node(host: Host, cluster: Cluster) -> None:
    cluster.silent = True
    assert "systemd-run" not in "".join(done(_upgrade(host, "580.82.07"), host))
    assert unnamed(host.refusals[0], "gpu-1", "not drained") == []


def test_what_failed_on_a_drained_node_is_noted_and_on_another_one_nothing(host: Host, cluster: Cluster) -> None:
    restart(host)
    host.state.fail(replace(host, name="gpu-2"))
    assert cluster.note is not None and cluster.note["state"] == "drained"
    host.state.ops = {host: {"hash": SimpleNamespace(global_arguments={"_ignore_errors": True}, parent_op_hash=None)}}
    host.state.fail(host)
    assert cluster.note["state"] == "drained", "the run goes on behind an error that is ignored"
    host.state.ops = {}
    host.state.fail(host)
    assert cluster.note["state"] == "failed" and unnamed(cluster.note["message"], "Reboot into") == []


def _second_node(
    host: Host, monkeypatch: pytest.MonkeyPatch, pods: tuple[int, int] = (1, 1), **settings: Any
) -> list[str]:
    """Drain gpu-1, then gpu-2 with so many pods each, in one run on one cluster; return what is done to gpu-2."""
    clusters = {"gpu-1": Cluster(), "gpu-2": (found := Cluster("gpu-2"))}
    for each, other, count in zip(clusters.values(), reversed(clusters.values()), pods, strict=True):
        each.pods = [pod(f"web-{number}") for number in range(count)]
        each.others = [other.node]
    monkeypatch.setattr(operation, "runner", lambda _: clusters[host.name])
    for name in ("gpu-1", "gpu-2"):
        host.name = name
        left = restart(host, name, **settings)
    assert found.cordoned is (left[-1] != "failed")
    return left


def test_a_run_empties_no_more_nodes_at_once_than_it_may(
    host: Host, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _second_node(host, monkeypatch)[-1] == "failed"
    assert unnamed(host.refusals[0], "gpu-1 of this run") == []
    assert "gpunode rollout" in host.refusals[0]


def _left(name: str, by_hand: bool = False) -> dict[str, Any]:
    """Return a node that an earlier run left cordoned, or that an admin cordoned since."""
    left = Cluster(name)
    session(left, name).empty("a reboot")
    if by_hand:
        left.by_hand(False)
        left.by_hand(True)
    return left.node


def _drained(host: Host, cluster: Cluster, **settings: Any) -> bool:
    cluster.pods = [pod("web-1")]
    return "failed" not in restart(host, **settings)


def test_a_node_that_an_earlier_run_left_cordoned_is_one_of_those_that_may_be_empty(
    host: Host, cluster: Cluster
) -> None:
    cluster.others = [_left("gpu-7"), Cluster("gpu-8").node]
    assert not _drained(host, cluster) and not cluster.cordoned
    assert unnamed(host.refusals[0], "gpu-7 since") == [] and "gpu-8" not in host.refusals[0]
    assert "kubectl uncordon" in host.refusals[0]
    assert _drained(host, cluster, disruption={"max_parallel": 2}) and cluster.cordoned


def test_a_node_that_an_earlier_run_left_cordoned_counts_when_this_run_has_come_to_it_too(
    host: Host, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Cluster("gpu-7")
    left.node = _left("gpu-7")
    cluster.others, left.others = [left.node], [cluster.node]
    clusters = {"gpu-1": cluster, "gpu-7": left}
    monkeypatch.setattr(operation, "runner", lambda _: clusters[host.name])
    host.name = "gpu-7"
    assert "failed" not in restart(host, "gpu-7")
    host.name = "gpu-1"
    assert not _drained(host, cluster) and unnamed(host.refusals[0], "gpu-7 since") == []


@pytest.mark.parametrize(
    ("by_hand", "own", "wave"), [(True, False, ""), (False, True, ""), (False, False, "1")],
    ids=["an admin's cordon", "both were left cordoned", "failed before this wave"],
)  # fmt: skip
def test_a_cordon_on_another_node_does_not_hold_up_a_drain(
    host: Host, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, by_hand: bool, own: bool, wave: str
) -> None:
    monkeypatch.setenv(WAVE, wave)
    if own:
        cluster.node = _left("gpu-1")
    cluster.others = [_left("gpu-7", by_hand)]
    assert _drained(host, cluster)


def test_a_node_is_not_drained_where_the_cluster_does_not_tell_which_others_are(host: Host, cluster: Cluster) -> None:
    def silent() -> None:
        cluster.silent = True

    # The question for all nodes is the second one that goes past kubectl's own `get`.
    cluster.meanwhile["get pods"] = lambda: cluster.meanwhile.update({"get --raw": silent})
    assert not _drained(host, cluster) and not cluster.cordoned
    assert len(host.refusals) == 1 and unnamed(host.refusals[0], "not drained") == []


@pytest.mark.parametrize(
    ("pods", "wave", "most"),
    [((1, 0), "", 1), ((0, 1), "", 1), ((1, 1), "2", 1), ((1, 1), "", 2)],
    ids=["an empty node", "after an empty node", "a wave of two", "max_parallel"],
)
def test_a_second_node_is_drained_where_that_is_bounded_otherwise(
    host: Host, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, pods: tuple[int, int], wave: str, most: int
) -> None:
    monkeypatch.setenv(WAVE, wave)
    assert len(_second_node(host, monkeypatch, pods, disruption={"max_parallel": most})) == 2
    assert host.refusals == []


def _returned(host: Host) -> list[str]:
    host.readings[RunningBootFact] = RunningBoot("boot", 1)
    return done(operation.uncordon._inner(node()), host)


def test_a_node_that_is_not_cordoned_costs_one_question_and_nothing_is_changed(host: Host, cluster: Cluster) -> None:
    assert _returned(host) == [] and cluster.asked == ["get --raw"]
    assert len(host.noops) == 1 and unnamed(host.noops[0], "gpu-1") == [] and not host.refusals
    cluster.by_hand(True)
    assert _returned(host) == [] and cluster.cordoned


def test_the_cordon_of_an_earlier_run_is_lifted_by_one_that_has_nothing_to_change(host: Host, cluster: Cluster) -> None:
    restart(host)
    host.state = State()
    assert _returned(host) == [] and not cluster.cordoned and cluster.note is None


def test_a_node_that_does_not_answer_or_whose_cluster_does_not_is_not_given_back(host: Host, cluster: Cluster) -> None:
    host.readings[RunningBootFact] = Unknown()
    assert done(operation.uncordon._inner(node()), host) == ["failed"] and cluster.asked == []
    cluster.silent = True
    assert _returned(host) == ["failed"]


def test_a_dry_run_tells_of_the_drain_and_drains_nothing(host: Host, cluster: Cluster) -> None:
    host.state.is_executing = False
    cluster.pods = [pod("web-1")]
    told: list[str] = []
    host.log = told.append  # type: ignore[method-assign,assignment]
    host.readings[ContainerdFact] = replace(SPARE, loaded="other")
    _, first, _ = containerd.configuration._inner(desired=Desired(), drain=drain())
    assert isinstance(first, FunctionCommand)
    assert unnamed(told[0], "node gpu-1", "1 pods", "containerd") == []
    assert not cluster.cordoned
