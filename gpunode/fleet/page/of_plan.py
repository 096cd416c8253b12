"""The page of `gpunode plan`: what a run would do to each host, coloured by what that disturbs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpunode.base.findings import cluster_title
from gpunode.base.messages import Scope
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
)

KINDS = (
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
_OTHERS = ("would fail", "waits", "not known", "nothing to do", "refused", "unreachable")
_STEPS = {"reboot": "reboot", "reset": "reset", "restart": "restart", "nothing": "step"}


def view(document: Mapping[str, Any]) -> View:
    """Return what the page of a plan document shows."""
    call = call_of(document)
    hosts = tuple(_host(name, plan) for name, plan in document["hosts"].items())
    shown, cluster = hosts, document.get("cluster")
    if cluster is not None:
        shown = (replace(_host(cluster_title(cluster["name"]), cluster), scope=Scope.CLUSTER), *hosts)
    verdicts = Counter(plan["verdict"] for plan in document["hosts"].values())
    done = f"{verdicts['can be done']:,} of {counted(len(hosts), 'host')} can be done"
    others = (f"{each}: {verdicts[each]:,}" for each in _OTHERS if verdicts[each])
    return View(
        "Plan",
        document.get("inventory"),
        "; ".join((done, *others, *(() if cluster is None else (f"the cluster: {cluster['verdict']}",)))) + ".",
        KINDS,
        columns(shown),
        shown,
        document.get("gpunode"),
        document.get("at"),
        "A run, by host",
        healing(call),
        heal_all=call.run if call else None,
    )


def _host(name: str, plan: Mapping[str, Any]) -> Host:
    if plan["verdict"] == "unreachable":
        # A document of an earlier version has the reason alone.
        told = {"why": plan["reason"], "remedy": plan.get("remedy"), "code": explained(plan.get("code"))}
        return Host(name, "unreachable", (Item("node", "unreachable", "no answer", told=pairs(told)),))
    items = tuple(_items(plan))
    kinds = {item.kind for item in items}
    gravest = next((kind.name for kind in KINDS if kind.name in kinds and kind.name != CAUTION), "nothing to do")
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
        yield Item(
            step["component"],
            kind,
            step["action"],
            step["actual"],
            step["desired"],
            pairs(told),
            cost,
            step["since"] and in_words(step["since"]),
        )
    for caution in plan["cautions"]:
        yield Item(caution["component"], CAUTION, caution["reason"], told=_told(caution))


def _told(verdict: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    told = {"remedy": verdict["remedy"], "source": verdict["source"], "code": explained(verdict.get("code"))}
    return pairs(told)
