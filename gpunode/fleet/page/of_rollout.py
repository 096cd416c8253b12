"""The page of `gpunode rollout`: which host passed in which wave, which failed, and which is still to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpunode.base.findings import cluster_title
from gpunode.base.messages import Scope
from gpunode.fleet.call import Call
from gpunode.fleet.page.view import Host, Item, Kind, View, call_of, counted, explained, in_words, pairs, with_command

KINDS = (
    Kind("failed", "!", "error", "did not pass the gate"),
    Kind("unreachable", "?", "unreachable", "did not answer"),
    Kind("at work", "»", "reboot", "its wave has begun and not ended"),
    Kind("to come", "…", "pending", "a wave is going to take it"),
    Kind("not touched", "–", "caution", "no wave takes it as things are"),
    Kind("pending", "R", "reboot", "passed; it still waits for a restart or a reboot"),
    Kind("not known", "~", "not-known", "part of its state could not be read or judged"),
    Kind("left out", "0", "restart", "as desired before the rollout", is_quiet=True),
    Kind("passed", "·", "ok", "done, and found as desired", is_quiet=True),
)
_LEFT_OUT = {"ok": "left out", "not known": "not known", "unreachable": "unreachable"}
_PASSED = {"ok": "passed", "not known": "not known"}
COLUMNS = ("canary", "wave", "retry")


def view(document: Mapping[str, Any]) -> View:
    """Return what the page of a rollout document shows; a host that was tried again is what the last wave says."""
    found: dict[str, list[Item]] = {}
    for wave in document["waves"]:
        for name, outcome in wave["nodes"].items():
            found.setdefault(name, []).append(_outcome(wave, outcome, call_of(document)))
    for wave in document["to_come"]:
        for name in wave["nodes"]:
            found.setdefault(name, []).append(Item(wave["kind"], "to come", f"wave {wave['number']}"))
    for name in document["untouched"]:
        found.setdefault(name, [Item("wave", "not touched", "no wave has taken it")])
    for name, left in document["left_out"].items():
        kind = _LEFT_OUT.get(left["class"], "not touched")
        told = {"why": left["reason"], "code": explained(left.get("code"))}
        found.setdefault(name, [Item("wave", kind, "left out", left["class"], told=pairs(told))])
    hosts = tuple(Host(name, items[-1].kind, tuple(items)) for name, items in found.items())
    said = _said(document, hosts)
    waves = [wave for wave in document["waves"] if wave.get("cluster") is not None]
    if items := [_outcome(wave, wave["cluster"], call_of(document)) for wave in waves] or _cluster_at_first(document):
        said += f" The cluster: {items[-1].kind}."
        hosts = (Host(cluster_title("cluster"), items[-1].kind, tuple(items), Scope.CLUSTER), *hosts)
    return View(
        "Rollout",
        document["inventory"],
        said,
        KINDS,
        COLUMNS,
        hosts,
        document["gpunode"],
        document.get("at"),
        costs=None,
    )


def _outcome(wave: Mapping[str, Any], outcome: Mapping[str, Any] | None, call: Call | None) -> Item:
    what = f"wave {wave['number']}"
    told = {"begun": in_words(wave["begun"]), "ended": wave["ended"] and in_words(wave["ended"]), "log": wave["log"]}
    if outcome is None:
        return Item(wave["kind"], "at work", what, told=pairs(told))
    return _judged(wave["kind"], what, outcome, call, told)


def _judged(column: str, what: str, outcome: Mapping[str, Any], call: Call | None, told: Mapping[str, Any]) -> Item:
    gone = outcome["class"] == "unreachable"
    kind = _PASSED.get(outcome["class"], "pending") if outcome["passed"] else "unreachable" if gone else "failed"
    code = explained(outcome.get("code"))
    told = {"why": outcome["reason"], "remedy": with_command(outcome["remedy"], call), "code": code, **told}
    return Item(column, kind, what, outcome["class"], "ok", pairs(told))


def _cluster_at_first(document: Mapping[str, Any]) -> list[Item]:
    """Return how the cluster was before the first wave; a document of an earlier version has none."""
    if (outcome := document.get("cluster")) is None:
        return []
    item = _judged("wave", "before the first wave", outcome, call_of(document), {})
    # The outcome of a cluster that a wave corrects passes with a reason.
    is_bad = outcome["passed"] and outcome["reason"] is not None
    return [replace(item, kind="to come" if document["to_come"] else "not touched") if is_bad else item]


def _said(document: Mapping[str, Any], hosts: tuple[Host, ...]) -> str:
    counts = Counter(host.kind for host in hosts)
    reason = f" ({document['reason']})" if document["reason"] else ""
    passed = f"{counts['passed']:,} of {counted(len(hosts), 'host')} passed"
    others = (f"{kind.name}: {counts[kind.name]:,}" for kind in KINDS if counts[kind.name] and kind.name != "passed")
    return f"{document['state'].capitalize()}{reason}: " + "; ".join((passed, *others)) + "."
