"""A host of pyinfra's, SIMULATED: it answers with readings that a test made up, and keeps what an operation says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyinfra.api import FunctionCommand, StringCommand

from gpunode.base.explanations import ENDING


class State:
    """Stand in for pyinfra's state: a run that is being carried out, by this host alone."""

    is_executing = True
    failed_hosts: frozenset[Any] = frozenset()


@dataclass(eq=False)
class Host:
    """Stand in for pyinfra's host: it answers with readings, and keeps what it is told."""

    readings: dict[type, Any]
    name: str = "gpu-1"
    state: Any = field(default_factory=State)
    noops: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    # None of a real connection's: no node is locked.
    connector: Any = None

    def get_fact(self, fact: type, **_: Any) -> Any:
        """Return the reading of a fact."""
        return self.readings[fact]

    def noop(self, said: str) -> None:
        """Keep why there is nothing to do."""
        self.noops.append(said)

    def log(self, _: str) -> None:
        """Take a line that is for people alone."""

    def log_styled(self, said: str, **_: Any) -> None:
        """Keep a line of a refusal."""
        self.refusals.append(said)


def commands(operation: Any, host: Host, **arguments: Any) -> list[str]:
    """Return an operation's commands, each as `told` has it; what it refuses is then in `host.refusals`."""
    found = []
    for command in operation._inner(**arguments):
        if isinstance(command, FunctionCommand):
            assert command.function(host.state, host) is False
        else:
            found.append(told(command))
    return found


def told(command: StringCommand) -> str:
    """Return a command's text without what an operation ends it with, and its standard input, as `<<< LINE`."""
    given = command.connector_arguments.get("_stdin", [])
    return " ".join([command.get_raw_value().removesuffix(f" {ENDING}"), *(f"<<< {line}" for line in given)])
