"""Which hosts of an inventory a command looks at, and what it takes for their settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpunode.base.codes import with_code

if TYPE_CHECKING:
    from gpunode.fleet.call import Call

limit_option = click.option(
    "--limit",
    multiple=True,
    # What is given by --set is for these hosts.
    is_eager=True,
    metavar="PATTERN",
    help="These hosts alone: a name, a glob such as 'gpu-*', or a group; may be given more than once.",
)


def _set(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    # Where a shell completes a line, nothing is done of what stands in it.
    if not words or context.resilient_parsing:
        return words
    # Late, so that the commands' help needs none of it.
    from gpunode.settings import overrides

    try:
        # Now: what reads settings, in this process and in its children, finds them there.
        overrides.give(words, context.params.get("limit", ()))
    except overrides.OverrideError as error:
        raise click.BadParameter(with_code(str(error), error.code)) from None
    return words


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_set,
    expose_value=False,
    help="This setting for all hosts (with --limit: for those alone), above what the inventory says: "
    "driver.version=580.95.05; may be given more than once. Lists and mappings as JSON.",
)


def called(inventory: str | Path, limit: tuple[str, ...] = ()) -> Call:
    """Return how a command was called, for the commands that it suggests."""
    # Late, as above.
    from gpunode.fleet.call import Call
    from gpunode.settings import overrides

    return Call(str(inventory), limit, overrides.shown())
