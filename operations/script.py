"""POSIX shell scripts as one command: stop at the first error, values never become shell text."""

from __future__ import annotations

import base64

from pyinfra.api import QuoteString, StringCommand

from gpunode.base.shell_file import ENVIRONMENT

# Prints the text that stands as base64 in the one line of standard input. A line without its end is one of which the
# connection was cut: what came of it is no text, and an empty file is none either. It ends the script itself: `set -e`
# goes on behind what fails on the left of a &&, though it is the last of its group.
TEXT = '{ IFS= read -r encoded || exit 1; printf %s "$encoded" | base64 -d; }'
# As a function: standard_input.
STANDARD_INPUT = f"\nstandard_input() {TEXT}\n"
# needrestart's hook in apt restarts services that the plan does not name. Hooks of other package managers that call
# needrestart read its mode alone: with l it lists services.
QUIET_HOOKS = "export NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l"


def script(body: str) -> str:
    """Return `body` as the text of a script that stops at the first error, speaks the C locale and restarts no service
    by a hook of the package manager.
    """
    return f"set -eu\n{ENVIRONMENT}\n{QUIET_HOOKS}\n{body.strip()}\n"


def script_command(body: str, *arguments: str, **variables: str) -> StringCommand:
    """Return a command that runs `body` under sh with `set -eu`.

    `variables` are shell variables of the script and `arguments` its $1, $2, … They stand in the node's list of
    processes while it runs; what others must not read there is `command_with_input`'s.
    """
    settings = (QuoteString(f"{name}={value}") for name, value in variables.items())
    return StringCommand(
        "env",
        *settings,
        "sh",
        "-c",
        QuoteString(script(body)),
        "gpunode",
        *(QuoteString(argument) for argument in arguments),
    )


def encoded(text: str) -> str:
    """Return a text as base64, in one line without blanks."""
    return base64.b64encode(text.encode()).decode()


def command_with_input(command: StringCommand, text: str) -> StringCommand:
    """Return `command` with a text on its standard input, as one line of base64; no list of processes shows it."""
    command.connector_arguments["_stdin"] = [encoded(text)]
    return command
