"""Which hosts of an inventory a command looks at."""

from __future__ import annotations

import click

limit_option = click.option(
    "--limit",
    multiple=True,
    metavar="PATTERN",
    help="These hosts alone: a name, a glob such as 'gpu-*', or a group; may be given more than once.",
)
