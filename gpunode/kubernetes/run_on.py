"""A command for the cluster, run where `kubernetes.run_on` says: on this machine, or on a host of an inventory.

It drives pyinfra's connection to that host, and knows of no run.
"""

from __future__ import annotations

import os
from tempfile import TemporaryFile
from typing import Any

from gevent import Timeout, subprocess  # type: ignore[import-untyped]
from gevent.lock import BoundedSemaphore  # type: ignore[import-untyped]
from paramiko import SSHException
from pyinfra.api import Host, QuoteString, StringCommand
from pyinfra.api.exceptions import PyinfraError

from gpunode.base.command_output import CLUSTER_SIZE, TooLarge, output_limit, read_output
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output

# Any host's operation may be the first that asks.
_CONNECTING = BoundedSemaphore(1)
# sshd takes ten sessions of one connection (MaxSessions), one of which is the host's own operation's; and each kubectl
# takes 50 MB. What waits long, a drain say, holds up no question.
_LONG_SECONDS = 180
_QUESTIONS, _WAITS = BoundedSemaphore(6), BoundedSemaphore(3)
# As which user its own operations run.
_PRIVILEGES = ("_sudo", "_sudo_user", "_use_sudo_login", "_su_user", "_doas", "_doas_user")


def here(command: Command) -> Output:
    """Run a command on this machine."""
    environment = {name: value for name, value in os.environ.items() if name not in command.unset}
    environment |= command.environment
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        with _turn(command), output_limit(CLUSTER_SIZE), TemporaryFile() as stdin:
            stdin.write((command.stdin or "").encode())
            stdin.seek(0)
            with subprocess.Popen(command.words, stdin=stdin, env=environment, **pipes) as process:
                try:
                    with Timeout(command.seconds, TimeoutError):
                        output = read_output(process.stdout, process.stderr, None)
                        process.wait()
                finally:
                    process.kill()
    except TimeoutError:
        return Output(124, "", f"Error: timed out after {command.seconds} s")
    except TooLarge as error:
        return Output(255, "", f"Error: {command.words[0]}: {error}")
    except OSError as error:
        return Output(127, "", f"Error: {command.words[0]}: {error.strerror}")
    return Output(process.returncode, output.stdout, output.stderr)


def over_ssh(name: str, actual: Host | None, command: Command) -> Output:
    """Run a command on a host of the inventory, which need not be the one whose operation asks."""
    if actual is None:
        return Output(255, "", f"Error: {name} (kubernetes.run_on) is not connected")
    try:
        _connect(actual)
    except PyinfraError as error:
        return Output(255, "", f"Error: {name} (kubernetes.run_on) is not connected: {error}")
    unset = (QuoteString(f"--unset={each}") for each in command.unset)
    environment = (QuoteString(f"{each}={value}") for each, value in command.environment.items())
    words = (QuoteString(word) for word in command.words)
    text = StringCommand("env", *unset, *environment, *words)
    privileges = {key: value for key in _PRIVILEGES if (value := actual.data.get(key))}
    try:
        with _turn(command), output_limit(CLUSTER_SIZE):
            well, output = actual.run_shell_command(
                text, _stdin=[command.stdin or ""], _timeout=command.seconds, **privileges
            )
    except (OSError, EOFError, SSHException) as error:
        # A connection that broke, or a command that hangs: pyinfra would end the run of every host for it.
        why = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "the connection broke")
        return Output(255, "", f"Error: {name} (kubernetes.run_on): {why}")
    return Output(0 if well else 1, output.stdout, output.stderr)


def _turn(command: Command) -> Any:
    return _WAITS if command.seconds > _LONG_SECONDS else _QUESTIONS


def _connect(actual: Host) -> None:
    """Connect to a host that `--limit` leaves out of the run, or that was not reached before; raise PyinfraError."""
    with _CONNECTING:
        if not actual.connected:
            actual.connect(reason="for the cluster", raise_exceptions=True)
