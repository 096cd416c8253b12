"""`gpunode completion`: what a shell reads so that TAB completes gpunode's commands, options and files."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what SHELL reads to complete gpunode's commands, options and files.

    It is installed by one line:

    \b
      gpunode completion bash > ~/.local/share/bash-completion/completions/gpunode
      gpunode completion zsh > "${fpath[1]}/_gpunode"
      gpunode completion fish > ~/.config/fish/completions/gpunode.fish

    Make the folder first where it is not there. bash reads that folder where the package bash-completion is installed;
    elsewhere ~/.bashrc has `eval "$(gpunode completion bash)"`. A new shell completes, `.venv/bin/gpunode` too.

    Exit status: 0, or 64 on wrong usage.
    """
    # Late, as all that only some calls need.
    from click.shell_completion import get_completion_class

    from gpunode.cli import gpunode

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(gpunode, {}, "gpunode", "_GPUNODE_COMPLETE").source())
