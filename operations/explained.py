"""Commands whose failure is told with cause and remedy, as the last that is said of it."""

from __future__ import annotations

from typing import Any

from paramiko import SSHException
from pyinfra.api import Host, State, StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.explanations import Explanation
from gpunode.base.run_context import FAILURE_REASONS
from gpunode.packages.apt_errors import explained as explained_by_apt
from gpunode.packages.families.zypper_errors import explained as explained_by_zypper

# What a transaction says when it begins to put things back: of what fails after that, the cause stands before it.
UNDOING = "putting back what was there before"
# What an undoing says of what somebody wrote since (templates/scripts/keeping.sh).
KEPT = "; what it said is kept as "
_LOST = Explanation(
    "the connection to the node broke before its answer came, or the node went down",
    "run again when the node answers; what was begun on it goes on, and the next run waits for its end, or undoes it "
    "where it was interrupted",
)


class ExplainedCommand(StringCommand):
    """A command of a package manager; where it fails, pyinfra prints its output, and then cause and remedy."""

    def execute(self, state: State, host: Host, connector_arguments: Any) -> tuple[bool, CommandOutput]:
        """Run the command on the host; return whether it succeeded, and its output with the explanation."""
        try:
            succeeded, output = super().execute(state, host, connector_arguments)
        # EOFError is none of the errors that pyinfra (3.10) expects of a connection, and would end the whole run.
        except (OSError, EOFError, SSHException) as error:
            succeeded, output = False, CommandOutput([OutputLine("stderr", f"{type(error).__name__}: {error}")])
            found: tuple[Explanation, ...] = (_LOST,)
        else:
            # A script of ours never fails without a word.
            causes = _causes(output)
            said = (*explained_by_apt(causes), *explained_by_zypper(causes))
            found = said if any(line.line.strip() for line in output) else (_LOST,)
        if succeeded:
            # What a command prints is not shown where it succeeds.
            for line in output:
                if KEPT in line.line and not state.print_output:
                    host.log_styled(line.line, fg="yellow")
            return True, output
        told = [text for item in found for text in (f"gpunode: cause: {item.cause}", f"gpunode: remedy: {item.remedy}")]
        FAILURE_REASONS.of(host).extend(told)
        if state.print_output:
            for text in told:
                host.log_styled(text, fg="red")
        return False, CommandOutput([*output, *(OutputLine("stderr", text) for text in told)])


def explained_command(command: StringCommand) -> ExplainedCommand:
    """Return `command` as one whose failure is explained."""
    return ExplainedCommand(*command.bits, _separator=command.separator, **command.connector_arguments)


def _causes(output: CommandOutput) -> list[str]:
    lines = [line.line for line in output]
    undoing = next((number for number, line in enumerate(lines) if UNDOING in line), len(lines))
    return lines[:undoing]
