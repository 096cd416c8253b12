"""What Dask's workers did on parts of an inventory, as commands have it that read nodes themselves.

The client of Dask is a process of its own (gpunode.fleet.engine.dask_client); `outcomes` is its other end.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpunode.base import parent_watch
from gpunode.base.findings import CLUSTER, Finding, FindingClass, NodeReport, finding_from, summary_from, worst
from gpunode.base.folding import folded
from gpunode.base.messages import Scope, command_error, with_code
from gpunode.base.terminal import printable
from gpunode.fleet.access import errors
from gpunode.fleet.engine.parts import EngineError, Member, torn, torn_domain
from gpunode.fleet.inventory import checked, fingerprints, limited, load_inventory
from gpunode.fleet.run.child import limit_pattern
from gpunode.node.plan import Plan, plan_from
from gpunode.settings import layers, overrides
from gpunode.settings.problems import SECRET

# Seconds within which the client has its workers end what is at work.
_PATIENCE = 30.0
# Characters that are shown of what is wrong with a document.
_WORDS = 300
_CLIENT = ("-m", "gpunode.fleet.engine.dask_client")


@dataclass(frozen=True)
class Outcome:
    """Hold what became of a part: the document that its command printed, or why there is none.

    began: whether the command may have begun
    """

    names: tuple[str, ...]
    worker: str | None
    document: Mapping[str, Any] | None
    why: str | None
    began: bool


def outcomes(
    scheduler: str,
    inventory: str,
    words: Sequence[str],
    members: Sequence[Member],
    changes: bool = False,
    done: Callable[[int], None] = lambda hosts: None,
) -> Iterator[Outcome]:
    """Yield what became of each part, as they come; every member is in one of them.

    words: gpunode's, without --limit and the inventory; changes: the command changes nodes, and is begun once; done: is
    told of how many hosts there is an outcome

    Raises EngineError where the engine cannot be used.
    """
    if find_spec("distributed") is None:
        raise EngineError("Dask is not installed here: install gpunode with its extra, gpunode[dask]")
    if any(word.endswith(f"={SECRET}") for word in overrides.shown()):
        raise EngineError(
            "a secret behind --set would go through the scheduler: let the workers' own inventory have it"
        )
    request = {
        "scheduler": scheduler,
        "inventory": inventory,
        "words": list(words),
        "members": [asdict(member) for member in members],
        "environment": layers.environment(),
        "gpunode": version("gpunode"),
        "changes": changes,
    }
    left = {member.name: member for member in members}
    with _client(request) as (lines, how_it_ended):
        for line in lines:
            told = json.loads(line)
            if "refused" in told:
                raise EngineError(told["refused"])
            names, document = tuple(told["names"]), told.get("document")
            if "waits" in told:
                print(printable(f"waits for {folded(names)}, since {told['waits']}"), file=sys.stderr, flush=True)
                continue
            why = told.get("broken") or told.get("lost") or told.get("waiting")
            part = [left.pop(name) for name in names]
            try:
                _check(document or {}, words[0] == "plan", names, {member.cluster for member in part})
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                document, why = None, f"the worker's document is not usable: {type(error).__name__}: {error}"[:_WORDS]
            done(len(members) - len(left))
            yield Outcome(names, told.get("worker"), document, why, "waiting" not in told)
        if left:
            yield Outcome(tuple(left), None, None, f"the client of the engine ended: {how_it_ended()}", True)


def _check(
    document: Mapping[str, Any], is_plan: bool, names: Collection[str], clusters: Collection[str | None]
) -> None:
    """Raise an error where a document has another shape, or is about another host or cluster than those of its part."""
    hosts, alone, cluster = (document.get(key) or {} for key in ("hosts", "left_alone", "cluster"))
    if others := {*hosts, *alone, *([cluster["name"]] if cluster else ())} - {*names, *(clusters if cluster else ())}:
        raise ValueError(f"it is about {folded(sorted(map(str, others)))}, which its worker was not asked about")
    for found in (*hosts.values(), *([cluster] if cluster else ())):
        _plan(found, "") if is_plan else _report("", found, "")
    for text in (*alone.values(), *(document[key] for key in ("error", "code") if key in document)):
        if not isinstance(text, str):
            raise TypeError(f"a text is of type {type(text).__name__}")


@contextlib.contextmanager
def _client(request: Mapping[str, Any]) -> Iterator[tuple[Iterator[bytes], Callable[[], str]]]:
    """Give the client's lines, and what tells how it ended; have it end its workers' commands where this is left."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            # Ended with this process, however that dies, and its workers' commands with it.
            parent_watch.bound([sys.executable, *_CLIENT]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            # So that Ctrl-C reaches the controller alone, which ends this.
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None

        def why() -> str:
            status = process.wait()
            complaints.seek(0)
            last = complaints.read().decode(errors="replace").strip().splitlines()[-1:]
            return ": ".join([f"signal {-status}" if status < 0 else f"exit {status}", *last])

        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.close()
            yield iter(process.stdout.readline, b""), why
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE)
            if process.poll() is None:
                process.kill()
            process.stdout.close()
            process.wait()


def roster(inventory: Path, limit: Collection[str] = (), only: Collection[str] | None = None) -> tuple[Member, ...]:
    """Return the hosts that are taken, in the inventory's order; raise SettingsError, InventoryError, EngineError.

    only: these hosts alone, by name
    """
    found = load_inventory(inventory)
    data, settings = checked(found)
    of_these = None if only is None else frozenset(only)
    names = [name for name in limited(found, limit) if of_these is None or name in of_these]
    prints = fingerprints({name: settings[name] for name in names}, data)
    groups = frozenset(map(str, found.groups))
    members = tuple(
        Member(
            name,
            limit_pattern(name, groups),
            prints[name],
            settings[name].engine.site,
            settings[name].kubernetes.enabled,
            ", ".join(sorted(settings[name].imex.nodes)) if settings[name].imex.enabled else None,
            cluster=settings[name].kubernetes.cluster_name if settings[name].kubernetes.enabled else None,
        )
        for name in names
    )
    if sites := torn(members):
        told = ", ".join(site or "none" for site in sites)
        raise EngineError(
            f"the hosts of one cluster are at several sites ({told}), and one worker has to reach all of them: give "
            "them one engine.site"
        )
    if hosts := torn_domain(members):
        raise EngineError(
            f"the hosts of one IMEX domain are not at one place ({', '.join(hosts)} are at several): nvidia-imex is "
            "stopped on all of them before it starts on any, by one worker. Give all of them one engine.site, and the "
            "same kubernetes.enabled"
        )
    return members


# What no document came of, and what a worker's command refused.
NOT_READ = command_error(
    "engine.part-lost", "Workers did not read this host or cluster, or it is not known how their command ended on it.",
    "The worker or the scheduler was lost, no worker takes hosts of this site, or gpunode failed on the worker. The "
    "cause has the reason. Hosts of other parts are reported as usual.",
    remedy="look at the scheduler and its workers, and run the command again",
)  # fmt: skip
# Within which a node has to answer, where nobody says another number.
SECONDS = 120.0
_REMEDY = "look at the scheduler and its workers; the nodes of other parts are told of as they are"

# Told the number of hosts, and of how many of them there is an outcome.
Watch = Callable[[int, int], None]


def reports(
    scheduler: str,
    inventory: Path,
    watch: Watch,
    seconds: float,
    *,
    limit: Collection[str] = (),
    only: Collection[str] | None = None,
    whole: bool = False,
) -> tuple[NodeReport, ...]:
    """Return a report for each host, as `gpunode drift` on a worker has it; raise what `roster` and `outcomes` raise.

    seconds: within which a node has to answer; whole: raise EngineError where a part was not read at all
    """
    words = ("drift", "--output", "json", "--timeout", f"{seconds:g}")
    found: list[NodeReport] = []
    members, outcomes = _outcomes(scheduler, inventory, words, watch, limit, only)
    for outcome in outcomes:
        for name, host, why in _hosts(outcome):
            if whole and host is None:
                raise EngineError(f"{folded(outcome.names)} could not be read: {why}")
            found.append(_report(name, host, why))
    return (*found, *cluster_report(outcomes, {each.name: each.cluster for each in members if each.cluster}))


def plans(scheduler: str, inventory: Path, watch: Watch, *, limit: Collection[str] = ()) -> dict[str, Plan | Finding]:
    """Return the plan of each host, or why there is none, as `gpunode plan` on a worker has it."""
    outcomes = _outcomes(scheduler, inventory, ("plan", "--output", "json"), watch, limit, None)[1]
    found = {name: _plan(host, why) for outcome in outcomes for name, host, why in _hosts(outcome)}
    clusters = [plan_from(each) for outcome in outcomes if (each := (outcome.document or {}).get("cluster"))]
    if clusters:
        # Each part has seen the whole cluster, and its own nodes.
        refusals = dict.fromkeys(item for each in clusters for item in each.refusals)
        steps = dict.fromkeys(step for each in clusters for step in each.steps)
        found[CLUSTER] = replace(clusters[0], refusals=tuple(refusals), steps=tuple(steps))
    return found


def _outcomes(
    scheduler: str,
    inventory: Path,
    words: tuple[str, ...],
    watch: Watch,
    limit: Collection[str],
    only: Collection[str] | None,
) -> tuple[Sequence[Member], list[Outcome]]:
    """Return the hosts that are taken, and the outcomes in their order."""
    members = roster(inventory, limit, only)
    watch(len(members), 0)
    found = list(outcomes(scheduler, str(inventory), words, members, done=lambda hosts: watch(len(members), hosts)))
    place = {member.name: number for number, member in enumerate(members)}
    return members, sorted(found, key=lambda outcome: place[outcome.names[0]])


def _hosts(outcome: Outcome) -> Iterator[tuple[str, Mapping[str, Any] | None, str]]:
    """Yield (host, what the document says of it or None, why it says nothing)."""
    document = outcome.document or {}
    hosts = document.get("hosts") or {}
    why = outcome.why or str(document.get("error") or "the document says nothing of this host")
    if outcome.worker is not None:
        why = f"{why} (worker: {outcome.worker})"
    for name in outcome.names:
        yield name, hosts.get(name), with_code(why, str(document["code"])) if "code" in document else why


def _report(name: str, host: Mapping[str, Any] | None, why: str) -> NodeReport:
    if host is None:
        return NodeReport(name, (_not_read(why),))
    told = host.get("summary")
    return NodeReport(name, tuple(map(finding_from, host["findings"])), None if told is None else summary_from(told))


def cluster_report(outcomes: Sequence[Outcome], clusters: Mapping[str, str]) -> list[NodeReport]:
    """Return what the workers found of the cluster as one report, of each thing the gravest finding.

    An error is in it where a part with nodes of a cluster has no report of it.
    """
    found = [cluster for each in outcomes if (cluster := (each.document or {}).get("cluster")) is not None]
    reports = [
        NodeReport(each["name"], tuple(map(finding_from, each["findings"])), scope=Scope.CLUSTER) for each in found
    ]
    lost = (host for each in outcomes if not (each.document or {}).get("cluster") for host in _hosts(each))
    for name, why in ((name, why) for name, _, why in lost if name in clusters):
        item = replace(_not_read(why), component="device_plugin", what="cluster")
        reports.append(NodeReport(clusters[name], (item,), scope=Scope.CLUSTER))
    by_thing: dict[tuple[str, str], Finding] = {}
    for item in (item for report in reports for item in report.findings):
        before = by_thing.setdefault((item.code, item.what), item)
        if worst((before, item)) is not before.finding_class:
            by_thing[item.code, item.what] = item
    return [replace(report, findings=tuple(by_thing.values())) for report in reports[:1]]


def _not_read(why: str) -> Finding:
    return Finding("node", FindingClass.ERROR, "state", "not read", "read", cause=why, remedy=_REMEDY, code=NOT_READ)


def _plan(host: Mapping[str, Any] | None, why: str) -> Plan | Finding:
    if host is None:
        return _not_read(why)
    if host["verdict"] != "unreachable":
        return plan_from(host)
    found = (errors.unreached if host["code"] == errors.unreached(None).code else errors.unreadable)(None)
    return finding_from({**found.to_json(), "cause": host["reason"], "remedy": host["remedy"], "code": host["code"]})
