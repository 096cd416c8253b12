"""What is decided once is what drift finds, what the plan promises, and what the operation does: on any node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.components.cuda.decide import desired_of as cuda_desired
from gpunode.components.runtimes.containerd.decide import desired_of as containerd_desired
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.containerd.state import DropIn
from gpunode.components.runtimes.crio.decide import desired_of as crio_desired
from gpunode.components.runtimes.docker.decide import desired_of as docker_desired
from gpunode.components.runtimes.docker.editor import render as render_docker
from gpunode.components.runtimes.podman.state import Podman
from gpunode.components.runtimes.runtime import Runtimes
from gpunode.components.runtimes.toolkit.configuration import desired_keys
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.facts.runtimes import Crio as CrioFact
from gpunode.facts.runtimes import Docker as DockerFact
from gpunode.facts.system import Unit as UnitFact
from gpunode.facts.toolkit import ContainerToolkit as ToolkitFact
from gpunode.facts.toolkit import CudaToolkits as CudaFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.fleet.rollout.choice import left_out
from gpunode.node import Node
from gpunode.node.components import decisions, desired_files, in_order
from gpunode.node.plan import STOP, plan
from gpunode.node.verdict import judge
from gpunode.operations import containerd, crio, cuda, docker, systemd, toolkit
from gpunode.settings import settings_from
from gpunode.system.applied import Applied, PresentFile
from gpunode.system.service import Unit
from gpunode.system.transaction import Journal
from tests.support.crio import STATES as CRIO
from tests.support.docker_change import RIGHT
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure

CGROUP = "containerd.runtimes.runc.options.SystemdCgroup"
_TEXTS = (
    GOOD.containerd.config_text,
    render(None, "1.6.20", Runtimes(default="runc")),
    render(None, "1.6.20", Runtimes(systemd_cgroup=False)),
    "",
    "version = [\n",
)
CONTAINERD = st.builds(
    lambda runc, **changes: replace(
        GOOD.containerd,
        runtimes=(GOOD.containerd.runtimes[0], replace(GOOD.containerd.runtimes[1], systemd_cgroup=runc)),
        **changes,
    ),
    runc=st.booleans(),
    version=st.sampled_from(["1.6.20", "1.6.20", "1.6.20", "1.7.24", None]),
    config_text=st.sampled_from([*_TEXTS, None]),
    default_runtime=st.sampled_from(["nvidia", "nvidia", "runc", None]),
    active=st.booleans(),
    enabled=st.booleans(),
    masked=st.sampled_from([False, False, True]),
    cri_plugin=st.sampled_from(["ok", "error", None]),
    cri_reason=st.sampled_from([None, "invalid plugin config: `mirrors` cannot be set"]),
    shims=st.sampled_from([0, 2]),
    configured_at=st.sampled_from([5.0, 99.0]),
    enable_cdi=st.sampled_from([None, True, False]),
    merged=st.sampled_from([None, "a"]),
    loaded=st.sampled_from([None, "a", "b"]),
    drop_ins=st.sampled_from(
        [(), (), (DropIn("/etc/containerd/conf.d/99-other.toml", ((CGROUP, "false"),), section=True),)]
    ),
)
DOCKER = st.builds(
    lambda **changes: replace(RIGHT, **changes),
    daemon_version=st.sampled_from(["26.1.5", "26.1.5", "26.1.5", "20.10.24", None]),
    config_text=st.sampled_from([RIGHT.config_text, "{}", "{", render_docker(None, "26.1.5", Runtimes("runc")), None]),
    default_runtime=st.sampled_from(["nvidia", "runc", None]),
    runtimes=st.sampled_from([RIGHT.runtimes, ()]),
    cgroup_driver=st.sampled_from(["systemd", "cgroupfs", None]),
    active=st.booleans(),
    enabled=st.booleans(),
    masked=st.sampled_from([False, False, True]),
    containers=st.sampled_from([0, 2]),
    live_restore=st.booleans(),
    cdi=st.sampled_from([None, True, False]),
    flags=st.sampled_from([(), (), ("--default-runtime",)]),
)
ALLOW = st.sampled_from(["nothing", "restart", "reboot"])


BRANCH = {"containerd": "1.6", "docker": "26.1", "crio": "1.31"}


def settings(allow: str, cdi: bool | None, component: str) -> Any:
    # No other runtime may be refused before it.
    asked = {name: {"enabled": name == component, "version": branch} for name, branch in BRANCH.items()}
    if component != "crio":
        asked[component]["cdi"] = cdi
    return settings_from({**DATA, **asked, "disruption": {"allow": allow}})


def _agree(component: str, node: Node, allow: str, cdi: bool | None, operation: Any, fact: type, actual: Any) -> None:
    asked = settings(allow, cdi, component)
    decision = decisions(asked, node)[component]
    bad = [item for item in judge(asked, node) if item.component == component and item.finding_class != "ok"]
    settled = {item.what for step in decision.steps for item in step.settles}
    # Every difference is a step's, or says that a person is to mend it; what a step settles is a difference.
    for item in bad:
        told_to_a_person = item.by_person
        if item.finding_class is FindingClass.NOT_KNOWN:
            assert item.what not in settled and item.cause, item
        else:
            assert item.what in settled or told_to_a_person, item
    assert settled <= {item.what for item in bad}
    steps = [step for step in plan(asked, node).steps if step.component == component]
    install = f"install {component}"
    assert [(step.action, step.waits is not None) for step in decision.steps] == [
        (step.action, step.pending) for step in steps if ": " not in step.action and step.action != STOP
    ]
    # Behind a refusal a run comes to nothing, so that nothing is promised; and no such node is as desired.
    if decision.refusal is not None:
        assert bad and all(step.pending for step in steps if step.action.startswith(("start", "configure", "write")))
    waiting = {item.what for item in bad if item.finding_class is FindingClass.RESTART_PENDING}
    change = next((step for step in decision.steps if step.action not in (install, *_STARTS)), None)
    if change is not None and change.waits is not None:
        assert {item.what for item in change.settles} <= waiting
    held = [step.waits for step in decision.steps if step.action == install]
    arguments: dict[str, Any] = {"desired": _DESIRED[component](asked)}
    if component != "crio":
        with ctx_host.use(Host({fact: actual})):
            assert held in ([], [operation.packages_now(**arguments)[0]])
    gone = (actual.daemon_version if component == "docker" else actual.version) is None
    if held == [None] or gone or getattr(actual, "files" if component == "crio" else "config_text") is None:
        # A run decides by what it finds when the packages have come.
        return
    # What waits is told as pending by the run, too; what no run mends is refused by it.
    host = Host({fact: actual, TransactionJournal: Journal(None, None, None, False)})
    with ctx_host.use(host):
        given_commands = commands(operation.configuration, host, **arguments)
    starting, refused = _started(f"{component}.service", actual) if not host.refusals else ([], host.refusals)
    assert refused == ([decision.refusal] if decision.refusal else [])
    assert (starting != []) == any(step.action in _STARTS[1:] and step.waits is None for step in decision.steps)
    promised = change is not None and change.change is not None and change.waits is None
    assert (given_commands != []) == promised
    if change is not None and change.waits is not None and change.change is not None:
        assert host.noops == [f"restart pending: {change.waits}"]


def _started(unit: str, actual: Any) -> tuple[list[str], list[str]]:
    """Return the commands by which a run has the unit run, and what it refuses."""
    active = "activating" if actual.service.restarting else "active" if actual.active else "inactive"
    file = "enabled" if actual.enabled else "disabled"
    host = Host({UnitFact: Unit("masked" if actual.masked else "loaded", active, "", file)})
    with ctx_host.use(host):
        return commands(systemd.running, host, unit=unit), host.refusals


_DESIRED = {"containerd": containerd_desired, "docker": docker_desired, "crio": crio_desired}
_STARTS = ("set what Kubernetes needs of the kernel", "start it", "start it at boot")


@given(actual=CONTAINERD, allow=ALLOW, cdi=st.sampled_from([None, True, False]))
def test_of_containerd_drift_plan_verdict_and_run_say_the_same(actual: Any, allow: str, cdi: bool | None) -> None:
    node = replace(GOOD, containerd=actual, docker=RIGHT)
    _agree("containerd", node, allow, cdi, containerd, ContainerdFact, actual)


@given(actual=DOCKER, allow=ALLOW, cdi=st.sampled_from([None, True, False]))
def test_of_docker_drift_plan_verdict_and_run_say_the_same(actual: Any, allow: str, cdi: bool | None) -> None:
    _agree("docker", replace(GOOD, docker=actual), allow, cdi, docker, DockerFact, actual)


@given(actual=CRIO.filter(lambda each: each.version == "1.31.0"), allow=ALLOW)
def test_of_crio_drift_plan_verdict_and_run_say_the_same(actual: Any, allow: str) -> None:
    _agree("crio", replace(GOOD, crio=actual), allow, None, crio, CrioFact, actual)


STOPPED = st.fixed_dictionaries({
    "toolkit": st.builds(
        lambda **changes: replace(GOOD.toolkit, **changes),
        config_text=st.sampled_from([None, "= nonsense", 'nvidia-container-runtime.mode = "jit-cdi"\n']),
        cdi_refresh=st.sampled_from([None, "masked"]), unlinked=st.sampled_from([(), ("/dev/nvidia0",)]),
        packages=st.sampled_from([GOOD.toolkit.packages, ()]),
    ),
    "cuda": st.sampled_from([
        GOOD.cuda, GOOD.cuda, replace(GOOD.cuda, default_path="/usr/local/cuda"), replace(GOOD.cuda, profile=False),
    ]),
    "containerd": CONTAINERD,
        "docker": DOCKER.map(lambda each: each if each.active else replace(each, containers=0)),
        "podman": st.sampled_from([Podman("5.4.2"), Podman()]),
    "keyrings": st.sampled_from([GOOD.keyrings, replace(GOOD.keyrings, keys=())]),
    "applied": st.sampled_from([GOOD.applied, Applied(True, None, None, (), tuple(
        (path, PresentFile("644 root:root", "b" * 64)) for path in desired_files(settings_from(DATA), GOOD)
    ))]),
})  # fmt: skip


def _refuses(component: str, node: Node, own: Any) -> list[str]:
    """Return what the operations of a component refuse, by which order a run comes to them."""
    host = Host({
        ToolkitFact: node.toolkit, DriverFact: node.driver, CudaFact: node.cuda, ContainerdFact: node.containerd,
        DockerFact: node.docker, MigFact: node.mig, TransactionJournal: Journal(None, None, None, False),
    })  # fmt: skip
    every: dict[str, list[tuple[Any, dict[str, Any]]]] = {
        "cuda": [(cuda.none_half_installed, {"desired": cuda_desired(own)})],
        "toolkit": [
            (toolkit.configuration, {"desired": desired_keys(own.toolkit)}),
            (toolkit.specification, {"generate": True}),
        ],
        "containerd": [(containerd.configuration, {"desired": containerd_desired(own)})],
        "docker": [(docker.configuration, {"desired": docker_desired(own)})],
    }  # fmt: skip
    with ctx_host.use(host):
        for operation, arguments in every.get(component, ()):
            commands(operation, host, **arguments)
    return host.refusals


@given(there=STOPPED, allow=ALLOW)
def test_behind_what_a_run_refuses_nothing_is_promised_of_any_component(there: dict[str, Any], allow: str) -> None:
    node = replace(GOOD, **there)
    own = settings_from({
        **DATA, "toolkit": {"version": "1.17.8", "cdi": "generate", "preset": "shared"},
        **{name: {"enabled": True} for name in ("containerd", "docker", "podman")}, "disruption": {"allow": allow},
    })  # fmt: skip
    decided, planned = decisions(own, node), plan(own, node)
    assert not planned.refusals
    order = in_order(own)
    ready = {name: getattr(decided[name], "steps", ()) for name in ("toolkit", "containerd", "docker")}
    for index, name in enumerate(order):
        # What packages are still to bring is decided when they have come.
        coming = any(step.action.startswith("install") for step in ready.get(name, ()))
        coming = coming or (name in ("containerd", "docker") and there[name].config_text is None)
        refused = [] if coming else _refuses(name, node, own)
        if not refused:
            continue
        assert decided[name].refusal in refused
        behind = order[index + 1 :]
        steps = [step for step in planned.steps if step.component in behind and step.component != "node"]
        assert all(step.pending for step in steps)
        # Drift calls a person, and a rollout takes the node for what comes before that alone.
        told = bad(*judge(own, node))
        left = [item for item in told if item.component in behind and item.component != "node"]
        assert all(
            item.by_person or item.finding_class is FindingClass.ERROR or (item.disruption or 0) > Disruption[allow]
            for item in left
        )
        report = NodeReport("gpu-1", tuple(item for item in told if item.component != "node"))
        done = any(not step.pending for step in planned.steps if step.component != "node")
        assert (left_out(report, everyone=False, allowed=Disruption[allow]) is None) <= done
        return


def test_a_pending_difference_that_is_a_person_s_leaves_its_node_out_of_a_rollout() -> None:
    # Its daemon runs by older files than there are, and the file that is there no run can edit.
    stale = replace(GOOD.containerd, configured_at=99.0, config_text="[[[ not toml")
    node, asked = replace(GOOD, containerd=stale), settings("restart", None, "containerd")
    report = NodeReport("gpu-1", tuple(item for item in judge(asked, node) if item.component == "containerd"))
    assert {item.finding_class for item in report.findings} & {FindingClass.RESTART_PENDING}
    told = left_out(report, everyone=False)
    assert told is not None and told.finding_class is not FindingClass.OK
