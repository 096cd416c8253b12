"""`gpunode facts INVENTORY`: record what every node is."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gpunode.base.findings import ExitCode
from gpunode.base.folding import folded_in_a_line
from gpunode.base.importing import uncollected
from gpunode.cli.errors import NO_FACTS, complain, told
from gpunode.cli.output import error_columns, output_option, say_document
from gpunode.cli.selection import called, inventory_argument, limit_option


@click.command()
@inventory_argument()
@output_option("the same", "the same")
@limit_option
def facts(inventory: Path, limit: tuple[str, ...]) -> None:
    """Print what every node of INVENTORY is, as JSON for `gpunode plan --facts`; nothing is changed.

    It is one JSON document whatever --output says, which is about what goes to standard error beside it.

    Exits 0 where every node answered, 1 where one did not (its reason stands in the file), 3 on wrong settings.
    """
    # Imported here, fleet first: pyinfra patches the process's sockets when it is imported.
    with uncollected():
        from gpunode.fleet import nodes as fleet  # isort: skip
        from gpunode.facts.node import NodeWithCandidates
        from gpunode.node import Node
        from gpunode.node.recorded import facts_json

    with told():
        answers = fleet.read(inventory, NodeWithCandidates, limit=limit)
    found = {
        answer.name: answer.reading if isinstance(answer.reading, Node) else str(answer.reason) for answer in answers
    }
    say_document(facts_json(found, called(inventory, limit).to_json()))
    missing = {name: reason for name, reason in found.items() if isinstance(reason, str)}
    alike: dict[str, list[str]] = {}
    for name, reason in missing.items():
        alike.setdefault(reason, []).append(name)
    for reason, names in alike.items():
        complain(f"{folded_in_a_line(names, error_columns())}: no facts: {reason}", NO_FACTS)
    sys.exit(ExitCode.ERROR if missing else ExitCode.GOOD)
