"""Which engine reads, or changes, the nodes of a command: processes here, or Dask's workers."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpunode.base.messages import with_code

if TYPE_CHECKING:
    from gpunode.base.findings import NodeReport
    from gpunode.fleet.nodes import Watch


def _engine(context: click.Context, option: click.Parameter, text: str) -> str | None:
    # Late, so that the commands' help needs none of it.
    from gpunode.fleet.engine.parts import EngineError, engine_of

    try:
        return engine_of(text)
    except EngineError as error:
        raise click.BadParameter(with_code(str(error), error.code)) from None


engine_option = click.option(
    "--engine",
    "scheduler",
    metavar="local|dask://HOST:PORT",
    default="local",
    show_default=True,
    envvar="GPUNODE_ENGINE",
    show_envvar=True,
    callback=_engine,
    help="Who does it: processes of this machine, or the workers of a Dask cluster, each from a checkout of its own "
    "(docs/scale.md).",
)


def inspected(
    inventory: Path,
    scheduler: str | None,
    watch: Watch | None = None,
    seconds: float | None = None,
    processes: int | None = None,
    *,
    limit: Collection[str] = (),
    only: Collection[str] | None = None,
    whole: bool = False,
) -> tuple[NodeReport, ...]:
    """Return a report for each node, read by this machine, or by a scheduler's workers.

    seconds: within which a node has to answer; processes: of this machine; only: these nodes, by name; whole: raise
    EngineError where workers could not read some of them
    """
    from gpunode.fleet import nodes as fleet

    watch, seconds = watch or fleet.unwatched, seconds or fleet.ANSWER_SECONDS
    if scheduler is None:
        from gpunode.fleet.drift import inspect

        return inspect(inventory, watch, seconds, processes, only=only, limit=limit)
    from gpunode.fleet.engine import readings

    return readings.reports(scheduler, inventory, watch, seconds, limit=limit, only=only, whole=whole)
