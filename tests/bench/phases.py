"""`gpunode drift` of one node, step by step: what each step takes, as JSON on the last line.

A child of tests/bench/start.py, which runs it anew for each reading: `python -m tests.bench.phases INVENTORY`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Phase -> (processor seconds, seconds).
taken: dict[str, tuple[float, float]] = {"interpreter": (time.process_time(), 0.0)}


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Note what is taken within."""
    used, started = time.process_time(), time.monotonic()
    yield
    taken[name] = (time.process_time() - used, time.monotonic() - started)


def main(inventory: Path) -> None:
    """Do what the command does."""
    with phase("pyinfra's import"):
        from gpunode.base import fast_import  # noqa: F401
    with phase("import of ours"):
        from gpunode.base.importing import uncollected

        with uncollected():
            from pyinfra.api.facts import get_fact
            from pyinfra.context import ctx_host

            from gpunode import cli  # noqa: F401
            from gpunode.facts.node import Node
            from gpunode.fleet import drift
            from gpunode.fleet import nodes as fleet
            from gpunode.fleet.inventory import foreign_names, load_inventory
            from gpunode.settings import check_hosts
            from gpunode.settings.hosts import data_of
    with phase("inventory and settings"):
        found = load_inventory(inventory)
        settings = check_hosts({host.name: data_of(host).data for host in found}, foreign_names())
    (name,) = settings
    connecting = fleet.connected(found, [name])
    with phase("connection"):
        state = connecting.__enter__()
    host = found.get_host(name)
    with phase("probe on the node"), ctx_host.use(host):
        reading = get_fact(state, host, Node)
    with phase("judging"):
        report = drift.contained_report(fleet.Answer(name, settings[name], reading, None))
    with phase("end of the connection"):
        connecting.__exit__(None, None, None)
    if not report.findings:
        raise ValueError(f"nothing was judged of {name}")
    print("\n" + json.dumps(taken))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
