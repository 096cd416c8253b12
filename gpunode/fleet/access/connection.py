"""Hooks into pyinfra's connections, so that a node that runs commands by other means than most is reached all the same.

- `any_login_shell`, `exec_command`: a login shell that is none of sh's kin. sshd hands every command to it, and pyinfra
  writes for sh. tcsh and csh end no quoted text at another line: they print a complaint, and run each further line of
  the script as a command of their own, as root. fish knows other escapes. So a first line of every command ends it
  there before anything has run; from then on that connection's commands travel in a form that all of them read alike.
- `Askpass`: sudo's password where /tmp is mounted noexec.
- `asks_on_a_terminal`: where nobody can be asked for sudo's password, the node fails with sudo's own words; pyinfra
  prints a traceback, and keeps no reason.
- `explained`: what such a node says is told with cause and remedy, see gpunode.fleet.access.errors.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

from gevent import Timeout  # type: ignore[import-untyped]
from paramiko import SSHException
from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.command_output import TooLarge, output_limit
from gpunode.base.folding import in_one_line
from gpunode.base.messages import REMEDY
from gpunode.base.probe import shell_text
from gpunode.base.probe_output import ANSWER_SIZE
from gpunode.base.run_context import COMMAND_ERROR, FAILURE_REASONS
from gpunode.fleet.access import connecting, errors

Method = Callable[..., Any]

# Connections whose login shell was found not to read sh's commands.
_foreign: WeakSet[SSHClient] = WeakSet()
# Processes that read an inventory side by side have one terminal between them.
_asks = True
# What a csh says of itself; a node can print it, too, and then gets a command once more.
MARK = "gpunode: this login shell is a csh"
# In a csh, $?shell is 1: it has such a variable. In sh it is a status and a word. fish knows no $?, and runs nothing of
# a text with any mistake in it, of which it tells the first. Each refuses a command behind this, whole.
GUARD = f"""test "$?shell" = 1 && exec sh -c "echo '{MARK}'; exit 97"\n"""
_FISH = "fish: "
# Seconds for a command without a _timeout of its own: one that reads before a run; and one of the run, which is longer
# than what a transaction may take, undone or not (templates/scripts/transaction_unit.sh).
_READING_SECONDS, _RUN_SECONDS = 600.0, 12600.0
# Host -> since when its command runs, in seconds since 1970.
waited_for: dict[str, float] = {}
# csh on BSD ends a word at 1024 characters ("Word too long.").
_WORD = 900


def refused(stdout: Sequence[str], stderr: Sequence[str]) -> bool:
    """Say whether that is what became of a guarded command: nothing of it has run."""
    if stdout:
        return stdout[-1].rstrip("\r") == MARK
    return any(line.startswith(_FISH) for line in stderr)


def neutral(command: str) -> str:
    """Return sh's command in words that csh, tcsh, fish and sh read alike."""
    return """sh -c 'eval "$(printf %b "$@")"' gpunode """ + " ".join(f"'{word}'" for word in _words(command))


def _words(command: str) -> Iterator[str]:
    """Yield what printf's %b makes the command of: printable ASCII without quotes, `!` and line ends."""
    word = ""
    for sign in command:
        plain = sign.isascii() and sign.isprintable() and sign not in "'!\\"
        added = sign if plain else "".join(f"\\0{byte:03o}" for byte in sign.encode())
        if len(word) + len(added) > _WORD:
            yield word
            word = ""
        word += added
    yield word


class Askpass(str):
    """Be the text of which pyinfra makes its command by `format`: one that finds a place where programs may be run."""

    def format(self, folder: str, variable: str) -> str:  # type: ignore[override]
        """Return the command that makes the program and prints its path."""
        return shell_text("fleet/access/askpass", FOLDER=folder, VARIABLE=variable)


def exec_command(method: Method, self: SSHClient, command: str, *args: Any, **kwargs: Any) -> Any:
    """Run a connection's command guarded, or written for any shell once it is known to need that."""
    return method(self, neutral(command) if self in _foreign else GUARD + command, *args, **kwargs)


def any_login_shell(run_shell_command: Method, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a command; one that the login shell refused again, in words that it reads."""
    succeeded, output = run_shell_command(self, *args, **kwargs)
    if self.client in _foreign or not refused(output.stdout_lines, output.stderr_lines):
        return succeeded, output
    _foreign.add(self.client)
    return run_shell_command(self, *args, **kwargs)


def explained(run_shell_command: Method, self: Any, *args: Any, **kwargs: Any) -> tuple[bool, CommandOutput]:
    """Run a command; where none runs or it does not end, the output ends with cause and remedy: pyinfra prints it."""
    said: str | None = None
    limit = _RUN_SECONDS if self.state.is_executing else _READING_SECONDS
    try:
        with _waiting(self.host.name), Timeout(None if kwargs.get("_timeout") else limit) as timeout:
            succeeded, output = run_shell_command(self, *args, **kwargs)
    except Timeout as passed:
        if passed is not timeout:
            raise
        found = errors.hung(f"a command did not end within {limit / 60:g} minutes on {self.host.name}")
        FAILURE_REASONS.of(self.host).append(found)
        succeeded, output, said = False, CommandOutput([]), f"{found.cause}{REMEDY}{found.remedy}"
    # EOFError is none of the errors that pyinfra expects of a connection, and would end the whole run.
    except (OSError, EOFError, SSHException) as error:
        COMMAND_ERROR.set(self.host, str(error))
        if isinstance(error, EOFError | TooLarge):
            # A command could not be written; paramiko's reader has perhaps not met the end yet.
            connecting.close(self, error)
        if not connecting.is_broken(self):
            raise
        succeeded, output = False, CommandOutput([])
    if not succeeded and connecting.is_broken(self):
        said = connecting.why_broken(self, f"before {self.host.name} answered")
    elif not succeeded and (explanation := errors.explained(output.output_lines)) is not None:
        said = f"{explanation.cause}{REMEDY}{explanation.remedy}"
    reason = said or in_one_line("; ".join(line for line in output.output_lines if line.strip()))
    COMMAND_ERROR.set(self.host, "" if succeeded else reason)
    return succeeded, CommandOutput([*output, OutputLine("stderr", said)]) if said else output


def as_change(execute: Method, *args: Any, **kwargs: Any) -> Any:
    """Execute an operation's command: a change does not break off; of what it prints, the newest part is kept."""
    with output_limit(ANSWER_SIZE, keeps_newest=True):
        return execute(*args, **kwargs)


@contextmanager
def _waiting(name: str) -> Iterator[None]:
    # A command that another one needs runs within that.
    since = waited_for.setdefault(name, now := time.time())
    try:
        yield
    finally:
        if since is now:
            del waited_for[name]


def carried(method: Method, *args: Any, **kwargs: Any) -> bool:
    """Carry a file to or from a host; it fails as a command does where the connection breaks."""
    return explained(lambda *given, **named: (method(*given, **named), CommandOutput([])), *args, **kwargs)[0]


def asks_on_a_terminal(with_sudo_retry: Method, host: Any, arguments: Any, execute: Callable[[], Any]) -> Any:
    """Have sudo's password asked for only where somebody can answer."""
    return with_sudo_retry(host, arguments, execute) if _has_terminal() else execute()


def ask_nobody() -> None:
    """Take it from now on that there is no terminal: this process is one of several."""
    global _asks
    _asks = False


def _has_terminal() -> bool:
    if not _asks:
        return False
    # As getpass looks for one: its own terminal, whatever standard input is.
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return True
    return sys.stdin is not None and sys.stdin.isatty()
