"""Which hosts of an inventory a command looks at, and what it takes for their settings."""

from __future__ import annotations

import click

from gpunode.base.codes import with_code

limit_option = click.option(
    "--limit",
    multiple=True,
    metavar="PATTERN",
    help="These hosts alone: a name, a glob such as 'gpu-*', or a group; may be given more than once.",
)


def _set(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    if not words:
        return words
    # Late, so that the commands' help needs none of it.
    from gpunode.settings import overrides

    try:
        # Now: what reads settings, in this process and in its children, finds them there.
        overrides.give(words)
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
    help="This setting for all hosts, above what the inventory says: driver.version=580.95.05; may be given more than "
    "once. Lists and mappings as JSON.",
)
