"""Commands whose failure is reported with cause and remedy, which are the last lines that they print."""

from __future__ import annotations

import re
from typing import Any

from paramiko import SSHException
from pyinfra.api import Host, State, StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.explanations import Explanation, failure
from gpunode.base.run_context import FAILURE_REASONS

# What an undoing says of what somebody wrote since (templates/scripts/keeping.sh).
KEPT = "; what it said is kept as "
_LOST = Explanation(
    "the connection to the node broke before its answer came, or the node went down",
    "run again when the node answers; what was begun on it goes on, and the next run waits for its end, or undoes it "
    "where it was interrupted",
)
# pyinfra reports that a command failed, not its exit status; a full file system is often named by no program.
ENDING = """|| { status=$?; { echo "gpunode: exit status $status"
timeout 5 df -lP 2>/dev/null | awk '$5 == "100%" {print "gpunode: no space is left at " $6}'; } >&2; exit $status; }"""
_PROGRAM = re.compile(r"(?:env |\w+=\S* )*(?P<name>[\w./-]+)")


class ExplainedCommand(StringCommand):
    """A command; where it fails, pyinfra prints its output, and then cause and remedy."""

    def execute(self, state: State, host: Host, connector_arguments: Any) -> tuple[bool, CommandOutput]:
        """Run the command on the host; return whether it succeeded, and its output with the explanation."""
        running = StringCommand(*self.bits, ENDING, _separator=self.separator, **self.connector_arguments)
        try:
            succeeded, output = running.execute(state, host, connector_arguments)
        # EOFError is none of the errors that pyinfra (3.10) expects of a connection, and would end the whole run.
        except (OSError, EOFError, SSHException) as error:
            succeeded, output = False, CommandOutput([OutputLine("stderr", str(error) or _LOST.cause)])
            found: tuple[Explanation, ...] = (_LOST,)
        else:
            # A command that ends by itself prints at least its exit status.
            found = self._explanations(output) if any(line.line.strip() for line in output) else (_LOST,)
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
        # What the script itself printed of both is in these.
        others = [line for line in output if not line.line.startswith(("gpunode: cause:", "gpunode: remedy:"))]
        return False, CommandOutput([*others, *(OutputLine("stderr", text) for text in told)])

    def _explanations(self, output: CommandOutput) -> tuple[Explanation, ...]:
        lines = [line.line for line in output]
        match = _PROGRAM.match(self.get_masked_value())
        name = match["name"] if match and match["name"] != "sh" else "the operation's script"
        return failure(lines, name)


def explained_command(command: StringCommand) -> ExplainedCommand:
    """Return `command` as one whose failure is explained."""
    return ExplainedCommand(*command.bits, _separator=command.separator, **command.connector_arguments)
