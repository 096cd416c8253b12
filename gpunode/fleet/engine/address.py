"""What --engine names: processes of this machine, or the scheduler of a Dask cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error

LOCAL = "local"
_SCHEME = "dask"
_SHAPES = "give local, or dask://HOST:PORT of a Dask scheduler"


class EngineError(CodedError):
    """Say why an engine cannot be used, and what to do."""

    code = command_error(
        "engine.refused", "The engine of --engine cannot be used.",
        "It is unknown, its scheduler does not answer, Dask is not installed, or the connection to another machine "
        "would not be encrypted. Nothing was started. docs/scale.md describes how to set up an engine.",
        remedy="do what the message says, or leave out --engine",
    )  # fmt: skip


@dataclass(frozen=True)
class Scheduler:
    """Hold where a Dask scheduler listens."""

    host: str
    port: int

    @property
    def is_here(self) -> bool:
        """Say whether nobody else's machine carries what is said to it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        """Return it as it is given."""
        return f"{_SCHEME}://{_bracketed(self.host)}:{self.port}"

    def for_dask(self, encrypted: bool) -> str:
        """Return it as Dask names it."""
        return f"{'tls' if encrypted else 'tcp'}://{_bracketed(self.host)}:{self.port}"


def engine_of(text: str) -> Scheduler | None:
    """Return the scheduler that an engine names, None where it is this machine; raise EngineError."""
    if text == LOCAL:
        return None
    try:
        found = urlsplit(text)
        host, port = found.hostname, found.port
    except ValueError as error:
        raise EngineError(f"--engine {text}: {error}; {_SHAPES}") from None
    if found.username is not None or found.password is not None:
        # Never shown again: somebody put it where every list of processes has it.
        raise EngineError(f"--engine: no name and no password stands in an address; {_SHAPES}")
    if found.scheme != _SCHEME or not host or not port or found.path or found.query or found.fragment:
        raise EngineError(f"--engine {text}: there is no such engine; {_SHAPES}")
    return Scheduler(host, port)


def is_loopback(host: str) -> bool:
    """Say whether an address, as it is written, is of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_guarded(address: str) -> bool:
    """Say whether nobody on the way can read or alter what is said to a Dask address: `tls://…`, or this machine."""
    found = urlsplit(address)
    return found.scheme == "tls" or is_loopback(found.hostname or "")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
