"""The base of every gpunode fact: a small probe, a parser, one round trip, and no exception that leaves the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from pyinfra.api import FactBase, Host
from pyinfra.api.exceptions import FactProcessError
from pyinfra.context import ctx_host

from gpunode.base import probe_output
from gpunode.base.errors import in_words
from gpunode.base.probe import Probe, Shared, shell_text
from gpunode.base.reading import Reading, Unknown
from gpunode.base.run_context import COMMAND_ERROR
from gpunode.settings.layers import Merge, layers_of

# $SHOWN, and the functions `unit` and `says`. A part says of which units it wants to know.
UNITS = Shared(shell_text("system/unit"), variable="UNITS")


T = TypeVar("T", bound=Reading)


def host_settings(component: str) -> Mapping[str, Any]:
    """Return what the data of the host that is read say of a component, which are validated; empty without a host."""
    current = ctx_host.get() if ctx_host.isset() else None
    found = Merge().component(component, layers_of(current)) if isinstance(current, Host) else None
    return found if isinstance(found, Mapping) and found.get("enabled", True) is True else {}


def driver_root() -> str:
    """Return where the driver's files stand on the host that is read."""
    root = host_settings("driver").get("root", "/")
    return root if isinstance(root, str) else "/"


def probe_command(probe: str) -> Probe:
    """Return the shell command that runs `probe` safely; see gpunode.base.probe."""
    return Probe([(None, probe)], driver_root())


def changing_command(probe: str) -> str:
    """Return the command as plain text: `probe` changes its node, which ends what was read before it."""
    return str(probe_command(probe))


def parsed(name: str, parse: Callable[[list[str]], T], output: list[str]) -> T:
    """Return what `parse` makes of a probe's output; any error becomes FactProcessError and fails this host alone."""
    try:
        return parse(probe_output.checked(output))
    except Exception as error:
        raise FactProcessError(f"{name}: {in_words(error)}") from error


class NodeFact(FactBase[Any], Generic[T]):
    """Read one thing of a node; subclasses give `probe` (POSIX shell that prints key=value lines) and `parse`."""

    probe: str = ""
    parse: Callable[[list[str]], Any]
    shell_executable = "sh"

    @classmethod
    def of_host(cls) -> str:
        """Return the probe for the host that is read: a fact whose probe depends on the host's settings has its own."""
        return cls.probe

    def command(self) -> Probe:
        """Return the probe's command."""
        return probe_command(self.of_host())

    def process(self, output: list[str]) -> Any:
        """Return the typed reading; Unknown, with the reason, where the output cannot be used."""
        # Of an exception pyinfra would log the class, and end the run with "No hosts remaining!" as the reason.
        try:
            return type(self).parse(probe_output.checked(output))
        except Exception as error:
            return Unknown(in_words(error))

    @staticmethod
    def default() -> Unknown:
        """Return Unknown: an operation that is given it fails instead of acting on a guess."""
        # pyinfra asks for it once the command has run.
        current = ctx_host.get() if ctx_host.isset() else None
        return Unknown(COMMAND_ERROR.of(current) or Unknown().reason) if isinstance(current, Host) else Unknown()
