"""`gpunode plan`: what would a run do, in which order, and what would that disturb?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpunode.base.codes import with_code
from gpunode.base.findings import ExitCode
from gpunode.base.importing import uncollected
from gpunode.base.terminal import say
from gpunode.cli.errors import told
from gpunode.cli.report_file import html_option, write_page
from gpunode.cli.selection import called, limit_option, set_option

if TYPE_CHECKING:
    from gpunode.fleet.nodes import Answer
    from gpunode.node import Node
    from gpunode.node.plan import Plan

# Host -> its plan, or why there is none.
Plans = dict[str, "Plan | str"]


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path), required=False)
@click.option("--facts", "facts_file", type=click.Path(path_type=Path), help="Decide from a file of `gpunode facts`.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="Settings as YAML, for --facts.")
@click.option("--json", "wants_json", is_flag=True, help="Print every plan as JSON.")
@html_option
@limit_option
@set_option
def plan(
    inventory: Path | None,
    facts_file: Path | None,
    settings_file: Path | None,
    wants_json: bool,
    html: Path | None,
    limit: tuple[str, ...],
) -> None:
    """Say what a run would do to every node of INVENTORY, or why it refuses one; nothing is changed.

    With --facts and --settings no machine is asked. Exits 0 where all can be done, 2 where a node is refused, 1 where
    one could not be read, 3 on wrong settings or facts.
    """
    if bool(inventory) == bool(facts_file) or bool(facts_file) != bool(settings_file):
        raise click.UsageError("give either INVENTORY, or both --facts FILE and --settings FILE")
    if limit and not inventory:
        raise click.UsageError("--limit names hosts of an inventory; of --facts all hosts are planned")
    with told():
        plans = live_plans(inventory, limit) if inventory else _offline(facts_file, settings_file)  # type: ignore[arg-type]
    named, words = str(inventory) if inventory else None, called(str(inventory)).settings
    document = as_json(plans, version("gpunode"), datetime.now(UTC), named, limit, words)
    if wants_json:
        say(json.dumps(document, indent=2))
    else:
        say(as_text(plans))
    if html is not None:
        write_page(html, "plan", document)
    sys.exit(_exit_code(plans))


def live_plans(inventory: Path, limit: tuple[str, ...]) -> Plans:
    """Return the plan of each host of an inventory, which is asked for it, or why there is none."""
    # Imported here, fleet first: pyinfra patches the process's sockets when it is imported.
    with uncollected():
        from gpunode.fleet import nodes as fleet  # isort: skip
        from gpunode.facts.candidates import NodeWithCandidates
        from gpunode.fleet.cluster import with_cluster_nodes

    answers = with_cluster_nodes(inventory, fleet.read(inventory, NodeWithCandidates, limit=limit))
    plans = {answer.name: _of(answer) for answer in answers}
    if not any(answer.settings.kubernetes.enabled for answer in answers):
        return plans
    # Late: what is in no cluster needs none of it.
    from gpunode.fleet.plan_cluster import with_restarts

    return with_restarts(inventory, answers, plans)


def _of(answer: Answer[Node]) -> Plan | str:
    from gpunode.node import Node
    from gpunode.node.plan import refused_plan

    if not isinstance(answer.reading, Node):
        return str(answer.reason)
    return refused_plan(answer.refusal) if answer.refusal else _planned(answer.settings, answer.reading)


def _offline(facts_file: Path, settings_file: Path) -> Plans:
    from gpunode.node.recorded import read_facts, read_settings

    hosts = read_facts(facts_file)
    settings = read_settings(settings_file, tuple(host.name for host in hosts))
    return {
        host.name: _planned(settings[host.name], host.node) if host.node is not None else str(host.reason)
        for host in hosts
    }


def _planned(settings: Any, node: Any) -> Plan | str:
    from gpunode.node.plan import plan as planned

    try:
        return planned(settings, node)
    except Exception as error:
        # One node's odd answer is that node's trouble.
        return f"cannot be judged: {type(error).__name__}: {error}"


def as_json(
    plans: Plans,
    version: str,
    at: datetime,
    inventory: str | None = None,
    limit: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what `--json` prints.

    version: gpunode's; at: when it was planned; inventory: its path as it was given, None of a file of facts; limit,
    settings: the patterns behind --limit, and the words behind --set as they may be shown
    """
    from gpunode.node.plan import SCHEMA, Plan

    hosts = {
        name: found.to_json() if isinstance(found, Plan) else {"verdict": "unreachable", "reason": found}
        for name, found in plans.items()
    }
    told_at = at.astimezone(UTC).isoformat(timespec="seconds")
    return {
        "schema": SCHEMA,
        "gpunode": version,
        "inventory": inventory,
        "limit": list(limit),
        "set": list(settings),
        "at": told_at,
        "hosts": hosts,
    }


def _exit_code(plans: Plans) -> ExitCode:
    if any(isinstance(found, str) for found in plans.values()):
        return ExitCode.ERROR
    refused = any(found.refusals for found in plans.values() if not isinstance(found, str))
    return ExitCode.NEGATIVE if refused else ExitCode.GOOD


def _headline(found: Plan) -> str:
    if found.steps and all(step.pending for step in found.steps):
        return "nothing that a run does now"
    return found.verdict + (f", disruption: {found.disruption.name}" if found.steps else "")


def as_text(plans: Plans) -> str:
    """Return what a person reads: each node's verdict, its steps in order or its refusals, and what to know."""
    lines: list[str] = []
    for name, found in plans.items():
        if isinstance(found, str):
            lines.append(f"{name}: no answer: {found}")
            continue
        lines.append(f"{name}: {_headline(found)}")
        if found.drains:
            lines.append("  the node is drained before the first step that says so, and given back after the verdict")
        for refusal in found.refusals:
            lines.append(with_code(f"  refused: {refusal.component}: {refusal.reason}", refusal.code))
            lines.append(f"    remedy: {refusal.remedy}")
            lines.append(f"    source: {refusal.source}")
        for number, step in enumerate(found.steps, 1):
            effect = f"; disruption: {step.disruption.name}" if step.disruption else ""
            drains = "; drains the node" if step.drains else ""
            since = f", since {step.since}" if step.since else ""
            pending = f"; PENDING: a run does not do it now{since}" if step.pending else ""
            now = f"now: {step.actual or 'none'}; desired: {step.desired}"
            lines.append(f"  {number}. {step.component}: {step.action} ({now}{effect}{drains}{pending})")
            if step.packages:
                lines.append(f"     packages: {', '.join(step.packages)}")
        for caution in found.cautions:
            told = f"  caution: {caution.component}: {caution.reason}; {caution.remedy}"
            lines.append(with_code(told, caution.code))
    return "\n".join(lines)
