"""`gpunode facts INVENTORY`: record what every node is."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import click

from gpunode.base.codes import with_code
from gpunode.base.findings import ExitCode
from gpunode.base.importing import uncollected
from gpunode.base.terminal import say
from gpunode.cli.errors import NO_FACTS, told
from gpunode.cli.selection import limit_option


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@limit_option
def facts(inventory: Path, limit: tuple[str, ...]) -> None:
    """Print what every node of INVENTORY is, as JSON for `gpunode plan --facts`; nothing is changed.

    Exits 0 where every node answered, 1 where one did not (its reason stands in the file), 3 on wrong settings.
    """
    # Imported here, fleet first: pyinfra patches the process's sockets when it is imported.
    with uncollected():
        from gpunode.fleet import nodes as fleet  # isort: skip
        from gpunode.facts.candidates import NodeWithCandidates
        from gpunode.node import Node
        from gpunode.node.recorded import facts_json

    with told():
        answers = fleet.read(inventory, NodeWithCandidates, limit=limit)
    found = {
        answer.name: answer.reading if isinstance(answer.reading, Node) else str(answer.reason) for answer in answers
    }
    say(json.dumps(facts_json(found, version("gpunode")), indent=2))
    missing = {name: reason for name, reason in found.items() if isinstance(reason, str)}
    for name, reason in missing.items():
        say(with_code(f"{name}: no facts: {reason}", NO_FACTS), err=True)
    sys.exit(ExitCode.ERROR if missing else ExitCode.GOOD)
