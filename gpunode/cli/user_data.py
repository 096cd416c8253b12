"""`gpunode agent user-data`: what a cloud hands a new machine, so that it pulls its bundle at first boot."""

from __future__ import annotations

from typing import Any

import click

from gpunode.cli.agent_options import install_options, installed_with
from gpunode.cli.errors import USER_DATA_LARGE, complain


@click.command("user-data")
@click.option(
    "--host", metavar="NAME",
    help="The inventory's host whose bundle the machines take, such as one that stands for a group; by default each "
    "takes that of its own name in the cloud.",
)  # fmt: skip
@click.option("--gzip", "packed", is_flag=True, help="Compress it: cloud-init takes that, and EC2 has 16 KiB for it.")
@install_options
def user_data(host: str | None, packed: bool, **asked: Any) -> None:
    """Print user data for cloud-init: a machine puts the agent on itself, and pulls at once and from time to time.

    Let it be the last part of your user data: then your lists are kept beside its own. It holds no secret. Nothing is
    contacted. There is no --output: it is what cloud-init reads, to the byte.
    """
    from gpunode.agent.user_data import MOST, compressed
    from gpunode.agent.user_data import user_data as made

    text = made(installed_with(**asked), host)
    if (size := len(compressed(text))) > MOST:
        said = f"caution: {size} bytes when it is compressed, and EC2 takes {MOST}: leave --ca out, or shorten it"
        complain(said, USER_DATA_LARGE)
    click.echo(compressed(text) if packed else text, nl=False)
