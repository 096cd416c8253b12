"""`gpunode plan`: what would a run do, in which order, and what would that disturb?"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpunode.base.findings import ExitCode
from gpunode.base.importing import uncollected
from gpunode.base.terminal import say
from gpunode.cli.drift import watched
from gpunode.cli.engine import engine_option
from gpunode.cli.errors import told
from gpunode.cli.output import columns, is_json, is_quiet, output_option
from gpunode.cli.report_file import finish, html_option, unwritten_page
from gpunode.cli.selection import called, inventory_argument, limit_option, set_option

if TYPE_CHECKING:
    from gpunode.base.findings import Finding
    from gpunode.base.verdicts import Refusal
    from gpunode.fleet.call import Call
    from gpunode.fleet.nodes import Answer
    from gpunode.node import Node
    from gpunode.node.plan import Plan
    from gpunode.settings import Settings

# Host -> its plan, or the finding that says why there is none.
Plans = dict[str, "Plan | Finding"]


@click.command()
@inventory_argument(required=False)
@click.option("--facts", "facts_file", type=click.Path(path_type=Path), help="Plan from a file of `gpunode facts`.")
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    help="With --facts: settings as YAML, in place of an inventory's.",
)
@output_option("every plan (docs/plan.md)", "the nodes that are refused, gave no answer or are not known")
@click.option("--all", "show_all", is_flag=True, help="Name every node, however many have the same plan.")
@html_option
@engine_option
@limit_option
@set_option
def plan(
    inventory: Path | None,
    facts_file: Path | None,
    settings_file: Path | None,
    show_all: bool,
    html: Path | None,
    scheduler: str | None,
    limit: tuple[str, ...],
) -> None:
    """Say what a run would do to every node of INVENTORY, or why it refuses one; nothing is changed.

    With --facts no machine is contacted; the settings are those of INVENTORY or of --settings. Exits 0 where a run
    would end with 0, 2 where a node is refused, a run would fail or leave something pending, or something desired is
    not known, 1 where a node could not be read or has no facts, 3 on wrong settings or facts.
    """
    if bool(inventory) == bool(settings_file) or (settings_file and not facts_file):
        raise click.UsageError("give INVENTORY, or --facts FILE with either INVENTORY or --settings FILE")
    if limit and not inventory:
        raise click.UsageError("--limit names hosts of an inventory; with --settings all hosts are planned")
    with told():
        if facts_file:
            plans = _offline(facts_file, settings_file, inventory, limit)
        else:
            plans = live_plans(inventory, limit, scheduler)  # type: ignore[arg-type]
    call = called(inventory, limit)
    document = as_json(plans, call)
    if not is_json():
        say_plans(plans, call, show_all)
    finish(document, unwritten_page(html, "plan", document), _exit_code(plans), indent=2)


def live_plans(inventory: Path, limit: tuple[str, ...], scheduler: str | None = None) -> Plans:
    """Return the plan of each host of an inventory, which is asked for it, or why there is none."""
    if scheduler is not None:
        from gpunode.fleet.engine import readings

        with watched() as watch:
            return readings.plans(scheduler, inventory, watch, limit=limit)
    # Imported here, fleet first: pyinfra patches the process's sockets when it is imported.
    with uncollected():
        from gpunode.fleet import nodes as fleet  # isort: skip
        from gpunode.facts.node import NodeWithCandidates

    answers = fleet.read(inventory, NodeWithCandidates, limit=limit)
    if not any(answer.settings.kubernetes.enabled for answer in answers):
        return {answer.name: _of(answer) for answer in answers}
    # Late: what is in no cluster needs none of it.
    from gpunode.fleet.cluster import cluster_nodes, with_cluster_nodes
    from gpunode.fleet.plan_cluster import with_cluster

    nodes = cluster_nodes(inventory, (answer.settings for answer in answers))
    assert nodes is not None
    found: list[Answer[Node]] = with_cluster_nodes(answers, nodes)
    return with_cluster(inventory, found, {answer.name: _of(answer) for answer in found}, nodes)


def _of(answer: Answer[Node]) -> Plan | Finding:
    from gpunode.fleet.access import errors
    from gpunode.node import Node

    if answer.reading is None:
        return errors.unreached(answer.reason)
    if not isinstance(answer.reading, Node):
        return errors.unreadable(answer.reason)
    return planned(answer.settings, answer.reading, answer.refusal, no_cluster=answer.no_cluster)


def _offline(facts_file: Path, settings_file: Path | None, inventory: Path | None, limit: tuple[str, ...]) -> Plans:
    """Return the plan of each host of a file of facts, and the finding of a host that it or the inventory lacks."""
    from gpunode.fleet.access import errors
    from gpunode.node.recorded import read_facts, read_settings

    hosts = {host.name: host for host in read_facts(facts_file)}
    if inventory is None:
        settings = read_settings(settings_file, tuple(hosts))  # type: ignore[arg-type]
    else:
        with uncollected():
            from gpunode.fleet.inventory import checked, limited, load_inventory
        found = load_inventory(inventory)
        names, every = limited(found, limit), checked(found)[1]
        settings = {name: every[name] for name in names}
    plans: Plans = {}
    for name in settings:
        if (host := hosts.get(name)) is None:
            plans[name] = errors.unmatched("no facts", f"{facts_file} has no such host")
        elif host.node is None:
            plans[name] = errors.unreached(host.reason)
        else:
            plans[name] = planned(settings[name], host.node)
    others = () if limit else (name for name in hosts if name not in settings)
    plans |= {name: errors.unmatched("no settings", f"{inventory} has no such host") for name in others}
    if not any(each.kubernetes.enabled for each in settings.values()):
        return plans
    from gpunode.fleet.plan_cluster import not_asked

    return not_asked(plans, settings)


def planned(
    settings: Settings, node: Node, refusal: Refusal | None = None, today: date | None = None, no_cluster: bool = False
) -> Plan | Finding:
    """Return the plan of a node, with what else is found of one that is refused.

    refusal: the cluster's; no_cluster: whether its cluster does not answer
    """
    from gpunode.fleet.access import errors
    from gpunode.node.plan import Plan
    from gpunode.node.plan import plan as plan_of
    from gpunode.node.verdict import judge_apart

    try:
        made = Plan((refusal,), (), ()) if refusal else plan_of(settings, node, today, no_cluster)
        found = judge_apart(settings, node, made.refusals, errors.unjudged, no_cluster) if made.refusals else ()
    except Exception as error:
        return errors.unjudged(error)
    return replace(made, findings=found)


def say_plans(plans: Plans, call: Call, show_all: bool = False, err: bool = False) -> None:
    """Print what a person reads of plans; nothing where quiet is asked for and no node is refused."""
    # Late, as all that the help does not need.
    from gpunode.fleet.reports.plan_text import plan_text

    text = plan_text(plans, columns(), call, show_all, is_quiet() and not err)
    if text:
        say(text, err=err)


def as_json(
    plans: Plans, call: Call | None = None, version: str | None = None, at: datetime | None = None
) -> dict[str, Any]:
    """Return what `--json` prints.

    call: how the command was called, None where nobody says; version: gpunode's, of the one that runs where none is
    given; at: when it was planned, now where it is not given
    """
    from gpunode.base.document import head
    from gpunode.base.findings import CLUSTER
    from gpunode.fleet.call import SOME_CALL
    from gpunode.fleet.reports.plan_text import verdicts
    from gpunode.node.plan import SCHEMA, Plan

    hosts = {name: found.to_json() if isinstance(found, Plan) else _silent(found) for name, found in plans.items()}
    cluster = hosts.pop(CLUSTER, None)
    of, counts = (call or SOME_CALL).to_json(), {"hosts": verdicts(plans)}
    code = _exit_code(plans)
    return {**head(SCHEMA, counts, code, of, version, at), "errors": [], "cluster": cluster, "hosts": hosts}


def _silent(found: Finding) -> dict[str, Any]:
    return {"verdict": "unreachable", "reason": found.cause, "remedy": found.remedy, "code": found.code}


def _exit_code(plans: Plans) -> ExitCode:
    from gpunode.node.plan import Plan

    made = [found for found in plans.values() if isinstance(found, Plan)]
    if len(made) < len(plans):
        return ExitCode.ERROR
    return ExitCode.NEGATIVE if any(found.is_negative for found in made) else ExitCode.GOOD
