"""POSIX shell scripts as one command: stop at the first error, values never become shell text."""

from __future__ import annotations

import base64

from pyinfra.api import QuoteString, StringCommand

TRANSACTIONS = "/var/lib/gpunode/transactions"


def _script(body: str) -> str:
    return f"set -eu\nexport LC_ALL=C\n{body.strip()}\n"


def script_command(body: str, *arguments: str, **variables: str) -> StringCommand:
    """Return a command that runs `body` under sh with `set -eu`.

    `variables` are shell variables of the script and `arguments` its $1, $2, …
    """
    settings = (StringCommand(f"{name}=", QuoteString(value), _separator="") for name, value in variables.items())
    return StringCommand(
        "env", *settings, "sh", "-c", QuoteString(_script(body)), "gpunode",
        *(QuoteString(argument) for argument in arguments),
    )  # fmt: skip


# The unit writes to a file, never to the connection: a broken pipe would kill it between two steps.
_RUN_AS_UNIT = """
umask 077
mkdir -p "$folder"
printf '%s' "$encoded" | base64 -d > "$folder/$unit.sh"
code=0
systemd-run --quiet --wait --collect --unit="$unit" "$@" \\
  /bin/sh -c "exec /bin/sh $folder/$unit.sh > $folder/$unit.log 2>&1" || code=$?
cat "$folder/$unit.log"
exit "$code"
"""


def transaction_command(transaction: str, body: str, **variables: str) -> StringCommand:
    """Return a command that runs `body` as a unit of systemd's, so that a cut connection does not end it half-way.

    The unit is `gpunode-TRANSACTION`; while one of that name runs, a second one fails: two at once would undo each
    other. Script and output stay in /var/lib/gpunode/transactions; the exit status is the script's. Variables reach
    the script by its environment.
    """
    settings = [f"--setenv={name}={value}" for name, value in variables.items()]
    encoded = base64.b64encode(_script(body).encode()).decode()
    return script_command(_RUN_AS_UNIT, *settings, folder=TRANSACTIONS, unit=f"gpunode-{transaction}", encoded=encoded)
