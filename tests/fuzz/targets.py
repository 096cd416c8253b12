"""What is fuzzed: each reader of foreign text, with what is decided by its result and how that is printed."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpunode.agent import collected, pull
from gpunode.base import terminal
from gpunode.base.errors import CodedError, in_words
from gpunode.base.findings import Finding, NodeReport
from gpunode.base.folding import UNBOUND
from gpunode.base.reading import ParseError, Reading, Unknown
from gpunode.base.versions import VersionError
from gpunode.cli.plan import as_json
from gpunode.facts import cluster, driver, file, gpu, node, packages, records, system, toolkit
from gpunode.facts import transaction as journal
from gpunode.facts.base import NodeFact
from gpunode.facts.families import dnf, dnf5, pacman, rpm, zypper
from gpunode.facts.node import PARTS, parse_parts
from gpunode.fleet.access.errors import unjudged
from gpunode.fleet.call import SOME_CALL
from gpunode.fleet.ci import machines
from gpunode.fleet.drift import contained_report
from gpunode.fleet.engine import apply, readings
from gpunode.fleet.inventory_files import recognised
from gpunode.fleet.known import ansible, kubernetes, terraform, written
from gpunode.fleet.known.machines import Known
from gpunode.fleet.nodes import Answer
from gpunode.fleet.page.html import document_page
from gpunode.fleet.reports.document import document
from gpunode.fleet.reports.findings_text import report_text
from gpunode.fleet.reports.junit import write_junit
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.fleet.reports.prometheus import metrics
from gpunode.fleet.reports.run_end import host_end_from, report_of
from gpunode.fleet.run import events, progress
from gpunode.history import told as history
from gpunode.kubernetes import dcgm_exporter, gpu_operator
from gpunode.kubernetes.device_plugin import decide_restart, others, own_config, pod_security, promise, view
from gpunode.kubernetes.drain import commands as drain
from gpunode.kubernetes.gpushare import manifest as scheduler
from gpunode.kubernetes.gpushare.configuration import SchedulerError
from gpunode.kubernetes.helm import manifest as helm_objects
from gpunode.kubernetes.helm import release
from gpunode.kubernetes.nodes import cluster_nodes
from gpunode.kubernetes.objects import runtime_class
from gpunode.node import Node
from gpunode.node.plan import Plan, plan, plan_from
from gpunode.node.preflight import refusals
from gpunode.node.recorded import facts_json, read_facts
from gpunode.node.verdict import judge_apart
from gpunode.settings import Settings, settings_from
from tests.fuzz import mutation

SAMPLES = Path(__file__).parent / "samples"
TODAY, NOW = date(2026, 11, 29), datetime(2026, 11, 29, tzinfo=UTC)
_DRIVER = {"driver": {"version": "580.95.05"}, "toolkit": {"version": "1.17.8"}}
_SETTINGS: tuple[Mapping[str, Any], ...] = (
    {},
    {
        **_DRIVER, "docker": {"enabled": True}, "mps": {"enabled": True}, "power": {"limit": 600},
        "dcgm": {"enabled": True},
    },
    {
        **_DRIVER, "toolkit": {"version": "1.17.8", "cdi": "generate"}, "containerd": {"enabled": False},
        "podman": {"enabled": True}, "crio": {"enabled": True}, "slurm": {"enabled": True},
        "disruption": {"allow": "reboot"},
    },
    {
        **_DRIVER, "kubernetes": {"enabled": True, "kubelet": {"max_pods": 200, "system_reserved": {"memory": "2Gi"}}},
        "containerd": {"cdi": True, "kubernetes_sysctls": True}, "disruption": {"allow": "reset"},
    },
)  # fmt: skip


@cache
def _settings() -> tuple[Settings, ...]:
    return tuple(map(settings_from, _SETTINGS))


@dataclass(frozen=True)
class Target:
    """One reader: `check` raises nothing, whatever text it is given; the samples are what real programs print.

    change: how a sample is changed
    """

    name: str
    check: Callable[[str], None]
    change: Callable[[Any, str, Any], str]

    @property
    def samples(self) -> list[str]:
        """The texts that mutation begins with."""
        return [path.read_text(encoding="utf-8") for path in sorted((SAMPLES / self.name).iterdir())]


def _raised(error: Exception) -> Finding:
    """Raise what a component's judge raised; that a text is no version is said in words of its own."""
    if not isinstance(error, VersionError):
        raise error
    return unjudged(error)


def printed(reports: tuple[NodeReport, ...]) -> None:
    """Give reports to every output; each has to take them, and the text to fit into UTF-8."""
    found = document(reports, SOME_CALL, at=NOW)
    json.dumps(found)
    document_page("drift", found).encode()
    metrics(reports, 0.0)
    for columns in (60, UNBOUND):
        terminal.printable(report_text(reports, True, columns)).encode()
        terminal.printable(report_text(reports, False, columns, quiet=True)).encode()
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as written_to:
        write_junit(reports, Path(written_to.name), "gpunode drift", {"read": 1.0})
    history.told(json.loads(json.dumps(found)))


def _planned(plans: dict[str, Plan | Finding]) -> None:
    found = as_json(plans, SOME_CALL, at=NOW)
    text = json.dumps(found)
    document_page("plan", found).encode()
    for columns in (60, UNBOUND):
        terminal.printable(plan_text(plans, columns)).encode()
    for each in (each for each in json.loads(text)["hosts"].values() if each["verdict"] != "unreachable"):
        plan_from({name: value for name, value in each.items() if name not in ("verdict", "disruption")})


@cache
def _base() -> dict[str, Any]:
    """Return the readings of a whole node, of which a target changes one."""
    return parse_parts(PARTS, (SAMPLES / "node.txt").read_text(encoding="utf-8").splitlines())


def _judge(whole: Node, settings: Settings) -> None:
    """Decide and plan, print what comes of it, and record the node."""
    made: Plan | Finding
    try:
        judge_apart(settings, whole, refusals(settings, whole), _raised)
        made = plan(settings, whole, TODAY)
    except VersionError as error:
        # A text is no version: that is said in words of its own.
        made = unjudged(error)
    printed((contained_report(Answer("gpu-1", settings, whole, None)),))
    _planned({"gpu-1": made})
    recorded = json.dumps(facts_json({"gpu-1": whole}))
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm", suffix=".json") as kept:
        kept.write(recorded)
        kept.flush()
        read_facts(Path(kept.name))


def _unread(error: Exception) -> None:
    """Print what is said of a node whose answer cannot be used: what is wrong with it, and no defect of gpunode."""
    words = in_words(error)
    if words.startswith("a defect of gpunode") or isinstance(error, RecursionError | MemoryError):
        raise error
    printed((contained_report(Answer("gpu-1", _settings()[0], Unknown(words), words)),))


def _part(name: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        try:
            reading = PARTS[name].parse([line for line in text.splitlines() if line])
        except Exception as error:
            _unread(error)
            return
        found = {**_base(), name: reading}
        found["driver"] = found["driver"].with_next_kernel(found["boot"])
        _judge(Node(**found), _settings()[len(text) % len(_SETTINGS)])

    return check


def _fact(fact: type[NodeFact[Any]]) -> Callable[[str], None]:
    def check(text: str) -> None:
        try:
            reading = fact.parse(text.splitlines())
        except Exception as error:
            _unread(error)
            return
        json.dumps(reading.to_json() if isinstance(reading, Reading) else reading, default=str)

    return check


# What runs and plans ask besides what drift reads.
FACTS: tuple[type[NodeFact[Any]], ...] = (
    cluster.Scheduler, driver.DriverOffers, driver.DriverPackages, driver.DriverSimulation, file.FetchedRunfile,
    file.File, gpu.GpuUsers, journal.TransactionJournal, packages.AptArchive, packages.AptRepository,
    packages.DebPackages, packages.OutdatedServices, system.KernelFeatures, system.Readiness, system.RunningBoot,
    system.Unit, toolkit.Smoke, dnf.DnfOffers, dnf.DnfSimulation, dnf5.Dnf5Simulation, pacman.PacmanOffers,
    pacman.PacmanPackages, pacman.PacmanSimulation, rpm.RpmPackages, zypper.ZypperOffers, zypper.ZypperSimulation,
    node._Candidates,
)  # fmt: skip


def _agent_report(text: str) -> None:
    """Judge an agent's report as `gpunode agent collect` does."""
    try:
        found = records.AgentReport.parse(text.splitlines())
        printed((collected.judged("gpu-1", found, NOW, timedelta(hours=2)),))
    except ParseError as error:
        _unread(error)


def _history(text: str) -> None:
    try:
        found = history.told(json.loads(text))
    except (history.NoDocumentError, ValueError, RecursionError) as error:
        _encoded(str(error))
        return
    _encoded(repr(found.hosts))
    for host in found.hosts:
        assert host.is_known in (True, False)
        for key in (*host.states, ("driver", "x"), history.CONNECTION, history.STATE):
            host.found(key)


def _encoded(text: str) -> None:
    terminal.printable(text).encode("utf-8", "replace")


def _bundle(text: str) -> None:
    """Judge a bundle that is signed: by a key that is trusted, with what a mistake or a newer gpunode may write."""
    for last in ({}, {"number": 1, "digest": "x"}):
        try:
            pull.judged(text.encode("utf-8", "surrogatepass"), "gpu-1", last, NOW.timestamp())
        except pull.Refused:
            continue


def _outcome(text: str) -> readings.Outcome:
    return readings.Outcome(("gpu-1",), "worker", json.loads(text), None, True)


def _dask(text: str) -> None:
    """Read a worker's document as drift and apply do; one of another form is refused before anything is printed."""
    try:
        outcome = _outcome(text)
        (row,) = readings._hosts(outcome)
        found = (readings._report(*row), *readings.cluster_report([outcome], {}))
        ends = list(map(report_of, apply._ends(outcome)))
    except (KeyError, TypeError, ValueError, AttributeError):
        return
    printed((*found, *filter(None, ends)))


def _dask_plan(text: str) -> None:
    try:
        ((name, host, why),) = readings._hosts(_outcome(text))
        made = readings._plan(host, why)
    except (KeyError, TypeError, ValueError, AttributeError):
        return
    _planned({name: made})


def _events(text: str) -> None:
    """Follow a run by the lines that it writes of itself."""
    found, _ = events.read(io.BytesIO(text.encode("utf-8", "surrogatepass") + b"\n"))
    known = progress.Progress(1)
    for each in found:
        known = progress.after(known, each)
        _encoded("".join(progress.screen(known, 0.0, 80)))
        _encoded(f"{progress.step_line(known)}{progress.cut_line(known, 0.0)}")
    for end in known.ends or ():
        try:
            report_of(host_end_from(end))
        except (KeyError, TypeError, ValueError):
            continue


def _known(read: Callable[[Any], Known]) -> Callable[[str], None]:
    def check(text: str) -> None:
        with tempfile.NamedTemporaryFile("w", dir="/dev/shm", suffix=".json", errors="surrogatepass") as given:
            given.write(text)
            given.flush()
            recognised(Path(given.name))
        try:
            found = read(json.loads(text))
            for name, made in written.files(found, "lab", "")[0].items():
                made.encode()
                if name.endswith(".py"):
                    compile(made, name, "exec")
        except (CodedError, ValueError) as error:
            _encoded(str(error))

    return check


def _ssh_arguments(text: str) -> None:
    notes: list[str] = []
    ansible.read(text, ansible.Ssh(), notes.append)
    _encoded("".join(notes))


def _read(read: Callable[[str], Any], *errors: type[Exception]) -> Callable[[str], None]:
    """Return the check of a function that returns what it reads, or raises one of these."""

    def check(text: str) -> None:
        try:
            repr(read(text))
        except Exception as error:
            if not isinstance(error, (ParseError, *errors)):
                raise
            _encoded(str(error))

    return check


def _described(text: str) -> Any:
    return machines.described(json.loads(text), "here")


def _helm(text: str) -> Any:
    found = helm_objects.objects(text, "gpu")
    return [str(each) for each in (*helm_objects.differences(found, {}), *helm_objects.drifted(found, found))]


def _scheduler(text: str) -> Any:
    return scheduler.parse_manifest(text), scheduler.patched(text, "/x")


# Of kubectl's, helm's and others' answers: name -> the function, and its own error where it has one.
_JSON: dict[str, Callable[[str], None]] = {
    "kubectl-exporters": _read(dcgm_exporter.parse_exporters),
    "kubectl-clients": _read(decide_restart.parse_clients),
    "kubectl-plugins": _read(others.parse_plugins),
    "kubectl-leaving": _read(lambda text: others.leaving(text, {}, None)),
    "kubectl-left": _read(lambda text: others.left(text, None)),
    "kubectl-config-map": _read(own_config.parse_config_map),
    "kubectl-namespace": _read(pod_security.parse_labels),
    "kubectl-taken": _read(promise.parse_taken),
    "kubectl-revisions": _read(view.parse_revisions),
    "kubectl-objects": _read(view.parse_objects),
    "kubectl-pods": _read(drain.parse_pods),
    "kubectl-budgets": _read(drain.parse_budgets),
    "kubectl-operator": _read(gpu_operator.parse_pods),
    "kubectl-nodes": _read(cluster_nodes.parse_nodes),
    "kubectl-cordon": _read(cluster_nodes.parse_node),
    "kubectl-note": _read(cluster_nodes.parse_note),
    "kubectl-runtime-class": _read(runtime_class.parse_runtime_class),
    "kubectl-live": _read(lambda text: helm_objects.live_objects(text, "gpu")),
    "helm-history": _read(release.parse_history),
    "helm-list": _read(lambda text: release.parse_list(text, "nvidia-device-plugin", "nvidia-device-plugin")),
    "ci-machines": _read(_described, CodedError, ValueError),
    "agent-bundle": _bundle,
    "history": _history,
    "dask": _dask,
    "dask-plan": _dask_plan,
    "ansible": _known(ansible.known),
    "kubernetes": _known(kubernetes.known),
    "terraform": _known(terraform.known),
}
_TEXT: dict[str, Callable[[str], None]] = {
    "helm-manifest": _read(_helm, yaml.YAMLError),
    "scheduler-manifest": _read(_scheduler, SchedulerError),
    "ssh-arguments": _ssh_arguments,
    "events": _events,
}


def targets() -> Iterator[Target]:
    """Yield every target."""
    for name in PARTS:
        yield Target(f"part-{name.replace('_', '-')}", _part(name), mutation.lines)
    for fact in FACTS:
        yield Target(f"fact-{fact.__name__.strip('_')}", _fact(fact), mutation.lines)
    yield Target("agent-report", _agent_report, mutation.lines)
    for name, check in _JSON.items():
        yield Target(name, check, mutation.of_json)
    for name, check in _TEXT.items():
        yield Target(name, check, mutation.of_text)
