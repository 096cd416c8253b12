"""What an agent is installed with, as options: `gpunode agent install` and `gpunode agent user-data` take the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpunode.base.messages import with_code

if TYPE_CHECKING:
    from gpunode.agent.files import Install

_Command = TypeVar("_Command", bound=Callable[..., Any])
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_File = click.Path(exists=True, dir_okay=False, path_type=Path)
# What systemd and a shell take as it is.
_PATH = re.compile(r"/[A-Za-z0-9._+/-]+")


class Time(click.ParamType[timedelta]):
    """A length of time, as systemd writes it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return it; fail with what is allowed."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"([1-9][0-9]{0,5})(s|min|h|d)", value)
        if found is None:
            self.fail(f"{value!r}: give a number with its unit (s, min, h or d), such as 30min", param, ctx)
        return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


class NodePath(click.ParamType[str]):
    """A path on the nodes."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it; fail with what is allowed."""
        if not _PATH.fullmatch(value) or ".." in value.split("/"):
            self.fail(f"{value!r}: give a path from the root, of letters, digits and . _ + - /", param, ctx)
        return str(value)


_OPTIONS = (
    click.option(
        "--from", "source", required=True, metavar="URL",
        help="Where bundles are: https://HOST/FOLDER or file:///FOLDER.",
    ),
    click.option("--public-key", type=_File, required=True, help="The key (.pub) whose bundles the nodes take."),
    click.option("--every", type=Time(), default="30min", show_default=True, help="Time between two pulls."),
    click.option(
        "--spread", type=Time(), help="How far pulls are spread; by default as far as a pull is from the next."
    ),
    click.option(
        "--ca", type=_File, help="Certificates (PEM) that the server's is judged by, instead of the nodes' own."
    ),
    click.option("--textfile", type=NodePath(), help="Folder of node_exporter's textfile collector on the nodes."),
    click.option(
        "--python", type=NodePath(), default="/usr/bin/python3", show_default=True,
        help="Python on the nodes, of this minor version.",
    ),
    click.option(
        "--gate", metavar="URL",
        help="API server of the cluster: where a pull was good, the taint gpunode/unverified is taken off the node.",
    ),
    click.option(
        "--gate-ca", type=NodePath(), default="/etc/kubernetes/pki/ca.crt", show_default=True,
        help="Certificates on the nodes that the API server's is judged by.",
    ),
    click.option(
        "--gate-token", type=NodePath(), default="/etc/gpunode/gate-token", show_default=True,
        help="File on the nodes with the token that takes the taint off; it is never brought by gpunode.",
    ),
)  # fmt: skip


def install_options(command: _Command) -> _Command:
    """Give a command all of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def installed_with(
    source: str, public_key: Path, every: timedelta, spread: timedelta | None, ca: Path | None, textfile: str | None,
    python: str, gate: str | None, gate_ca: str, gate_token: str,
) -> Install:  # fmt: skip
    """Return what they ask for; raise click.UsageError."""
    from gpunode.agent import files
    from gpunode.agent.bundle import SigningError, signers
    from gpunode.agent.gate import Gate

    try:
        return files.Install(
            source=files.source(source),
            signers=signers(_text(public_key, "--public-key")),
            every=int(every.total_seconds()),
            spread=int((spread or every).total_seconds()),
            ca=None if ca is None else _text(ca, "--ca"),
            textfile=textfile,
            python=python,
            gate=None if gate is None else Gate(files.api_server(gate), gate_ca, gate_token),
        )
    except (files.SourceError, files.GateError, SigningError) as error:
        raise click.UsageError(with_code(str(error), error.code)) from None


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise click.UsageError(f"{option} {path}: {why}") from None
