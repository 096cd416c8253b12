"""What the pages of `gpunode drift`, `plan` and `rollout` show of their JSON documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpunode.base.findings import CLUSTER, cluster_title
from gpunode.base.messages import Scope
from gpunode.fleet.call import Call
from gpunode.fleet.page.view import (
    CAUTION,
    COSTS,
    Host,
    Item,
    Kind,
    View,
    call_of,
    columns,
    counted,
    explained,
    healing,
    in_words,
    pairs,
    with_command,
)

DRIFT_KINDS = (
    Kind("error", "!", "error", "answered, and cannot be judged, or no run can mend it"),
    Kind("unreachable", "?", "unreachable", "did not answer: nothing is known"),
    Kind("unsupported", "×", "unsupported", "cannot be what is asked; no run will try"),
    Kind("drift", "≠", "drift", "differs; a run heals it"),
    Kind("reboot pending", "B", "reboot", "right on disk; the machine has to boot"),
    Kind("restart pending", "R", "restart", "right on disk; a service has to start anew"),
    Kind("not known", "~", "not-known", "could not be read or judged: neither good nor different"),
    Kind(CAUTION, "i", "caution", "as desired, and worth to know"),
    Kind("ok", "·", "ok", "as the settings say", is_quiet=True),
)


_CLUSTER_STATES = {"ok": "as desired", "not known": "not known"}


def drift_view(document: Mapping[str, Any]) -> View:
    """Return what the page of a drift document shows."""
    call, since = call_of(document), document.get("history", {})
    hosts = tuple(_drift_host(name, host, call, since.get(name, {})) for name, host in document["hosts"].items())
    good, unknown = (sum(host.kind == kind for host in hosts) for kind in ("ok", "not known"))
    said = f"{good:,} of {counted(len(hosts), 'host')} {'is' if len(hosts) == 1 else 'are'} as desired"
    said += f", {unknown:,} not known." if unknown else "."
    # A document of an earlier version has none.
    if (cluster := document.get("cluster")) is not None:
        name = cluster_title(cluster["name"])
        found = _drift_host(cluster["name"], cluster, call, since.get(CLUSTER, {}))
        said += f" T{name[1:]} is {_CLUSTER_STATES.get(found.kind, 'not as desired')}."
        hosts = (replace(found, name=name, scope=Scope.CLUSTER), *hosts)
    return View(
        "Drift",
        document.get("inventory"),
        said,
        DRIFT_KINDS,
        columns(hosts),
        hosts,
        document["gpunode"],
        document["at"],
        heal=healing(call),
        heal_all=call.run if call else None,
    )


def _drift_host(name: str, host: Mapping[str, Any], call: Call | None, since: Mapping[str, str]) -> Host:
    return Host(name, host["class"], tuple(_drift_item(each, call, since) for each in host["findings"]))


def _drift_item(finding: Mapping[str, Any], call: Call | None, since: Mapping[str, str]) -> Item:
    """Return a finding; since: `component: what` -> since when the history says that it is so."""
    is_caution = finding["class"] == "ok" and finding["cause"] is not None
    told = {"why": finding["cause"], "remedy": with_command(finding["remedy"], call), "source": finding["source"]}
    told |= {"log": finding.get("log")}
    told["code"] = explained(finding.get("code")) if finding["class"] != "ok" or is_caution else None
    kind, sides = CAUTION if is_caution else finding["class"], (finding["what"], finding["actual"], finding["desired"])
    so = since.get(f"{finding['component']}: {finding['what']}") or finding["since"]
    return Item(finding["component"], kind, *sides, pairs(told), finding["disruption"], so and in_words(so))


PLAN_KINDS = (
    Kind("unreachable", "?", "unreachable", "did not answer: nothing is known"),
    Kind("refused", "×", "unsupported", "cannot be what is asked; nothing is done to it"),
    Kind("would fail", "!", "error", "a run does not do it, and fails by it"),
    Kind("reboot", "B", "reboot", "a step boots the node"),
    Kind("reset", "G", "drift", "a step resets a GPU"),
    Kind("restart", "R", "restart", "a step restarts a service"),
    Kind("step", "+", "change", "a step that disturbs nothing"),
    Kind("pending", "…", "pending", "a step that a run does not do now"),
    Kind("not known", "~", "not-known", "could not be read or judged: no run acts on it"),
    Kind(CAUTION, "i", "caution", "worth to know"),
    Kind("nothing to do", "·", "ok", "as the settings say", is_quiet=True),
)
_PLAN_OTHERS = ("would fail", "waits", "not known", "nothing to do", "refused", "unreachable")
_STEPS = {"reboot": "reboot", "reset": "reset", "restart": "restart", "nothing": "step"}


def plan_view(document: Mapping[str, Any]) -> View:
    """Return what the page of a plan document shows."""
    call = call_of(document)
    hosts = tuple(_plan_host(name, plan) for name, plan in document["hosts"].items())
    shown, cluster = hosts, document.get("cluster")
    if cluster is not None:
        shown = (replace(_plan_host(cluster_title(cluster["name"]), cluster), scope=Scope.CLUSTER), *hosts)
    verdicts = Counter(plan["verdict"] for plan in document["hosts"].values())
    done = f"{verdicts['can be done']:,} of {counted(len(hosts), 'host')} can be done"
    others = (f"{each}: {verdicts[each]:,}" for each in _PLAN_OTHERS if verdicts[each])
    return View(
        "Plan",
        document.get("inventory"),
        "; ".join((done, *others, *(() if cluster is None else (f"the cluster: {cluster['verdict']}",)))) + ".",
        PLAN_KINDS,
        columns(shown),
        shown,
        document.get("gpunode"),
        document.get("at"),
        "A run, by host",
        healing(call),
        heal_all=call.run if call else None,
    )


def _plan_host(name: str, plan: Mapping[str, Any]) -> Host:
    if plan["verdict"] == "unreachable":
        # A document of an earlier version has the reason alone.
        told = (("why", plan["reason"]), *_told(plan))
        return Host(name, "unreachable", (Item("node", "unreachable", "no answer", told=told),))
    items = tuple(_items(plan))
    kinds = {item.kind for item in items}
    gravest = next((kind.name for kind in PLAN_KINDS if kind.name in kinds and kind.name != CAUTION), "nothing to do")
    return Host(name, gravest, items)


def _items(plan: Mapping[str, Any]) -> Iterator[Item]:
    for refusal in plan["refusals"]:
        yield Item(refusal["component"], "refused", refusal["reason"], told=_told(refusal))
    # A document of an earlier version has none.
    for finding in plan.get("findings", ()):
        if finding["class"] != "ok":
            kind = "not known" if finding["class"] == "not known" else "pending"
            why = pairs({"found": finding["class"], "cause": finding["cause"]})
            sides = finding["what"], finding["actual"], finding["desired"]
            yield Item(finding["component"], kind, *sides, told=(*why, *_told(finding)))
    for number, step in enumerate(plan["steps"], 1):
        # A document of an earlier version knows no such step.
        unknown, fails = step.get("not_known", False), step.get("fails", False)
        told = {
            "compared": step.get("what"),
            "cause": step.get("cause"),
            "order": f"step {number} of {len(plan['steps'])}",
            "packages": ", ".join(step["packages"]),
            "drains": "the node is drained before it" if step["drains"] else None,
            "pending": "a run does not do it now: the settings do not allow it, or a person has to"
            if step["pending"] and not (unknown or fails)
            else None,
        }
        left = "not known" if unknown else "would fail" if fails else "pending" if step["pending"] else None
        kind = left or _STEPS[step["disruption"]]
        cost = step["disruption"] if step["disruption"] in COSTS else None
        sides, since = (step["action"], step["actual"], step["desired"]), step["since"] and in_words(step["since"])
        yield Item(step["component"], kind, *sides, pairs(told), cost, since)
    for caution in plan["cautions"]:
        yield Item(caution["component"], CAUTION, caution["reason"], told=_told(caution))


def _told(verdict: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    remedy, code = with_command(verdict.get("remedy"), None), explained(verdict.get("code"))
    return pairs({"remedy": remedy, "source": verdict.get("source"), "code": code})


ROLLOUT_KINDS = (
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


def rollout_view(document: Mapping[str, Any]) -> View:
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
    said = _rollout_said(document, hosts)
    waves = [wave for wave in document["waves"] if wave.get("cluster") is not None]
    if items := [_outcome(wave, wave["cluster"], call_of(document)) for wave in waves] or _cluster_at_first(document):
        said += f" The cluster: {items[-1].kind}."
        hosts = (Host(cluster_title("cluster"), items[-1].kind, tuple(items), Scope.CLUSTER), *hosts)
    return View(
        "Rollout",
        document["inventory"],
        said,
        ROLLOUT_KINDS,
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


def _rollout_said(document: Mapping[str, Any], hosts: tuple[Host, ...]) -> str:
    counts = Counter(host.kind for host in hosts)
    reason = f" ({document['reason']})" if document["reason"] else ""
    passed = f"{counts['passed']:,} of {counted(len(hosts), 'host')} passed"
    others = (
        f"{kind.name}: {counts[kind.name]:,}" for kind in ROLLOUT_KINDS if counts[kind.name] and kind.name != "passed"
    )
    return f"{document['state'].capitalize()}{reason}: " + "; ".join((passed, *others)) + "."
