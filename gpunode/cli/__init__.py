"""The gpunode command line; each command's module is loaded only when it is called."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click

from gpunode.cli.interruption import documented, ended

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Command -> (module, attribute, one line for --help).
_COMMANDS = {
    "agent": ("gpunode.cli.agent", "agent", "Nodes that ask for themselves: signed bundles, and who pulls them."),
    "apply": ("gpunode.cli.apply", "apply", "Show the plan, ask, bring nodes to what is asked, and say how they are."),
    "check": ("gpunode.cli.check", "check", "Validate an inventory's settings; no connection is made."),
    "ci": ("gpunode.cli.ci", "ci", "Provision and verify the test machines of a CI job."),
    "cluster": ("gpunode.cli.cluster", "cluster", "Show what a Kubernetes cluster is to get: values, labels."),
    "completion": ("gpunode.cli.completion", "completion", "Print what bash, zsh or fish reads to complete gpunode."),
    "drift": ("gpunode.cli.drift", "drift", "Compare every node with its settings; nothing is changed."),
    "explain": (
        "gpunode.cli.explain",
        "explain",
        "Say what a code such as driver.loaded-module means, and the remedy.",
    ),
    "facts": ("gpunode.cli.facts", "facts", "Record what every node is, as JSON; nothing is changed."),
    "history": ("gpunode.cli.history", "history", "Say since when a host is not as desired, and what changed."),
    "init": ("gpunode.cli.init", "init", "Write a repository of your own: settings, inventories, the main job."),
    "mig": ("gpunode.cli.mig", "mig", "Multi-Instance GPU: judge a declaration, and where its instances go."),
    "plan": ("gpunode.cli.plan", "plan", "Say what a run would do to every node, or why not; nothing is changed."),
    "rollout": ("gpunode.cli.rollout", "rollout", "Bring nodes to what is asked in waves, with a gate between them."),
    "runtime": ("gpunode.cli.runtime", "runtime", "Show what a container runtime's file would become."),
    "lab": ("gpunode.cli.lab", "lab", "Throwaway nodes on this machine, with simulated GPUs."),
}


# Where the words of the command line stand in click's context.
_WORDS = "gpunode.words"


class _LazyGroup(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = tuple(args)
        with documented(ctx, ctx.meta[_WORDS]):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with documented(ctx, ctx.meta[_WORDS]):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            # click looks for a near name among the commands that it has imported, which are none here.
            from difflib import get_close_matches

            near = get_close_matches(name, _COMMANDS, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][2]) for name in sorted(_COMMANDS)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name from the table: a group of click's would import each of them for its help."""
        from click.shell_completion import CompletionItem

        names = [name for name in sorted(_COMMANDS) if name.startswith(incomplete)]
        own = [CompletionItem(name, help=_COMMANDS[name][2]) for name in names]
        return own + super(click.Group, self).shell_complete(ctx, incomplete)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpunode")
def gpunode() -> None:
    """Turn machines into verified GPU nodes, and see that they stay so.

    Exit codes: 0 good, 1 error, 2 negative verdict, 3 input refused, 64 usage.
    What a message means that ends in [CODE]: gpunode explain CODE.
    """


def main() -> None:
    """Run the command line and exit with one of gpunode's exit codes."""
    with ended():
        gpunode.main(standalone_mode=False)
