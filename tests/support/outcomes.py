"""What settings, preflight and decisions come to, as plain data for the files of tests/cases."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision, marked
from gpunode.base.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.node.components import decisions, desired_files
from gpunode.node.preflight import cautions, refusals
from gpunode.settings import SettingsError, check_hosts, settings_from
from tests.support.cases import named
from tests.support.readings import encoded
from tests.support.verify import DATA, GOOD


def refused_keys(data: dict[str, Any]) -> list[str]:
    """Return the keys of the mistakes in one host's settings."""
    try:
        settings_from(data)
    except SettingsError as error:
        return [problem.key for problem in error.problems]
    return []


def refused_hosts(hosts: dict[str, dict[str, Any]]) -> list[str]:
    """Return `HOST: KEY` of the mistakes in the settings of all hosts."""
    try:
        check_hosts(hosts, {"ssh_hostname"})
    except SettingsError as error:
        return [f"{problem.host}: {problem.key}" for problem in error.problems]
    return []


def preflight(component: str, data: dict[str, Any], node: Node, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the codes of what a component is refused for, and of what is told of it, before a node is touched."""
    settings = settings_from({**DATA, **data})
    found = {"refused": refusals(settings, node), "told": cautions(settings, node)}
    own = {
        key: [each for each in every if each.component == component or each.code.startswith(f"preflight.{component}-")]
        for key, every in found.items()
    }
    text = " ".join(f"{item.reason} {item.remedy}" for every in own.values() for item in every)
    return {key: [item.code for item in every] for key, every in own.items()} | _unnamed(text, names)


def decided(component: str, data: dict[str, Any], node: Node, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return what differs of a component, each with its class, who mends it and its actual side; and what is done."""
    decision = marked(decisions(settings_from({**DATA, **data}), node).get(component, Decision(())))
    differs = [item for item in decision.findings if item.finding_class is not FindingClass.OK]
    steps = [
        [[item.code for item in step.settles], step.disruption.name, "waits" if step.waits else "now", step.change]
        for step in decision.steps
    ]
    words = [
        decision.refusal,
        *(step.waits for step in decision.steps),
        *(text for item in differs for text in (item.cause, item.remedy)),
    ]
    return {
        "differs": [[item.code, item.finding_class.value, _by(item), _value(item.actual)] for item in differs],
        "steps": steps,
        "refused": decision.refusal is not None,
        **_unnamed(" ".join(filter(None, words)), names),
    }


def _value(actual: str | None) -> str | None:
    """Return the actual side of a finding: a value, or `prose` for what may be worded otherwise."""
    return "prose" if actual is not None and re.search(r"[a-z]+ [a-z]+ [a-z]+ \S", actual) else actual


def _by(item: Finding) -> str:
    return "person" if item.by_person or item.remedy == BY_HAND else "run"


def _unnamed(text: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Return which names a text for people lacks, where some are asked for."""
    return {"unnamed": [each for each in names if each not in text]} if names else {}


def written(path: str, data: dict[str, Any]) -> list[str] | None:
    """Return the lines of one of gpunode's own files, without comments; None where it is to be gone, [] for none."""
    text = desired_files(settings_from({**DATA, **data}), GOOD).get(path, "")
    return None if text is None else [line for line in text.splitlines() if line and not line.startswith("#")]


def parsed(parser: str, lines: Iterable[str]) -> Any:
    """Return what a parser reads in a probe's lines, in which `base64(TEXT)` stands for the encoded text."""
    base64 = re.compile(r"base64\((.*)\)", re.DOTALL)
    return named(parser)([base64.sub(lambda found: encoded(found[1]), line) for line in lines])
