"""One reading of a node serves many operations: each host's snapshot, and the hooks by which pyinfra reads from it.

gpunode.fleet.snapshot says why a shared reading is never an outdated one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyinfra.api.host import Host
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.probe import Announced, Probe
from gpunode.base.run_context import ANNOUNCING, Slot
from gpunode.fleet.snapshot import Changes, Snapshot

Method = Callable[..., Any]

# Of all hosts: whatever changes one may change what another one says.
changes = Changes()
_snapshot: Slot[Snapshot[CommandOutput]] = Slot(lambda: Snapshot(changes))


def snapshot(host: Host) -> Snapshot[CommandOutput]:
    """Return the host's snapshot."""
    return _snapshot.of(host)


def read_anew(host: Host) -> None:
    """Have the host's next question answered by the host, whatever is known of it."""
    snapshot(host).forget()


def changing(method: Method, *args: Any, **kwargs: Any) -> Any:
    """Call what may change the node, behind which no answer counts any more."""
    with changes.change():
        return method(*args, **kwargs)


def shared(run_shell_command: Method, self: Host, command: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a command; what only reads is answered from the snapshot where that knows it."""
    if not isinstance(command, Probe):
        return changing(run_shell_command, self, command, *args, **kwargs)
    known = snapshot(self)
    if ANNOUNCING.of(self):
        known.announce(command)
        raise Announced
    return known.read(
        command,
        stage="execute" if self.state is not None and self.state.is_executing else "prepare",
        # A run that shows no plan which somebody may think over before it is carried out (`pyinfra -y`).
        across=self.state is not None and not self.state.should_check_for_changes(),
        # How it is printed makes no difference to what is read.
        arguments=repr(sorted((key, value) for key, value in kwargs.items() if not key.startswith("print_"))),
        run=lambda text: run_shell_command(self, text, *args, **kwargs),
        lines_of=lambda output: output.stdout_lines,
        answer_of=as_output,
    )


def as_output(lines: list[str]) -> CommandOutput:
    """Return lines as what a command printed."""
    return CommandOutput([OutputLine("stdout", line) for line in lines])
