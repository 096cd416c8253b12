"""`gpunode agent`: nodes that ask for themselves, by signed bundles."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpunode.base.findings import ExitCode, verdict
from gpunode.base.importing import uncollected
from gpunode.base.messages import with_code
from gpunode.cli.errors import BUNDLES_NOT_WRITTEN, NUMBER_AHEAD, USER_DATA_LARGE, complain, end, end_by, told
from gpunode.cli.output import is_json, output_option, say_document, talk
from gpunode.cli.recording import history_option, recorded
from gpunode.cli.selection import called, inventory_argument, limit_option, set_option

if TYPE_CHECKING:
    from gpunode.agent.files import Install
    from gpunode.fleet.call import Call


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


@click.command("user-data")
@click.option(
    "--host", metavar="NAME",
    help="The inventory's host whose bundle the machines take, such as one that stands for a group; by default each "
    "takes that of its own name in the cloud.",
)  # fmt: skip
@click.option("--gzip", "packed", is_flag=True, help="Compress it: cloud-init takes that, and EC2 has 16 KiB for it.")
@install_options
def user_data(host: str | None, packed: bool, **asked: Any) -> None:
    """Print user data for cloud-init: a machine puts the agent on itself, and pulls at once and from time to time.

    Let it be the last part of your user data: then your lists are kept beside its own. It holds no secret. Nothing is
    contacted. There is no --output: it is what cloud-init reads, to the byte.
    """
    from gpunode.agent.bundle import MOST, compressed
    from gpunode.agent.bundle import user_data as made

    text = made(installed_with(**asked), host)
    if (size := len(compressed(text))) > MOST:
        said = f"caution: {size} bytes when it is compressed, and EC2 takes {MOST}: leave --ca out, or shorten it"
        complain(said, USER_DATA_LARGE)
    click.echo(compressed(text) if packed else text, nl=False)


SCHEMA = 1


@click.group()
def agent() -> None:
    """Nodes that ask for themselves: a timer fetches a signed bundle and brings the node to it (docs/agent.md)."""


agent.add_command(user_data)
_TIME = Time()
_NUMBER = click.IntRange(1, (1 << 63) - 1)
# Seconds by which a bundle's number may be ahead of the time: clocks differ.
_AHEAD = 86400


@agent.command()
@inventory_argument()
@click.option("--key", type=_File, required=True, help="SSH key that signs: private, or public where ssh-agent has it.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder that nodes fetch from."
)
@click.option("--valid", type=_TIME, default="30d", show_default=True, help="How long the bundles count.")
@click.option("--number", type=_NUMBER, help="Their number, larger than any before; by default the seconds since 1970.")
@click.option(
    "--withdraw", "withdrawn", type=_NUMBER, multiple=True, metavar="NUMBER",
    help="A wrong number of earlier bundles: nodes that have applied it take these bundles, and no node applies it "
    "again.",
)  # fmt: skip
@output_option("what was written (docs/output.md)", "nothing")
@limit_option
@set_option
def bundle(
    inventory: Path, key: Path, out: Path, valid: timedelta, number: int | None, withdrawn: tuple[int, ...],
    limit: tuple[str, ...],
) -> None:  # fmt: skip
    """Write a signed bundle for each host of INVENTORY into a folder that nodes fetch from; no host is contacted.

    Exits 0 where all were written, 1 where one could not be, 3 on wrong settings and on what no bundle can carry.
    """
    with uncollected():
        from gpunode.agent.bundle import BundleError, SigningError
        from gpunode.fleet.bundles import write_bundles

    now = datetime.now(UTC).replace(microsecond=0)
    seconds = int(now.timestamp())
    if number in withdrawn:
        raise click.UsageError(f"--number {number} is withdrawn by --withdraw: no node would take these bundles")
    try:
        with told():
            found = write_bundles(inventory, limit, key, out, number or seconds, now, now + valid, withdrawn)
    except BundleError as error:
        end_by(error, ExitCode.INPUT_REFUSED)
    except SigningError as error:
        end_by(error, ExitCode.ERROR)
    except OSError as error:
        end(f"{error.filename or out}: {error.strerror}", BUNDLES_NOT_WRITTEN, ExitCode.ERROR)
    if (number or 0) > seconds + _AHEAD:
        said = f"caution: number {number} is far ahead of the time ({seconds}): nodes that apply it refuse smaller ones"
        complain(said, NUMBER_AHEAD)
    if is_json():
        say_document(document(called(inventory, limit), found, now))
        return
    for line in found.cautions:
        talk(f"caution: {line}")
    many = len(found.hosts)
    talk(
        f"{many} bundle{'' if many == 1 else 's'}, number {found.number}, until {found.expires:%Y-%m-%d %H:%M} UTC: "
        f"{out}/HOST/bundle.signed"
    )


def document(call: Call, found: Any, now: datetime) -> dict[str, Any]:
    """Return what --output json prints of the bundles that were written."""
    from gpunode.base.document import head

    expires = found.expires.isoformat(timespec="seconds")
    more = {"number": found.number, "expires": expires, "program": found.program, "cautions": list(found.cautions)}
    counts = {"hosts": len(found.hosts)}
    return {**head(SCHEMA, counts, ExitCode.GOOD, call.to_json(), at=now), **more, "hosts": list(found.hosts)}


@agent.command()
@inventory_argument()
@install_options
@output_option("the hosts that it was run on", "nothing but pyinfra's words")
@limit_option
def install(inventory: Path, limit: tuple[str, ...], **asked: Any) -> None:
    """Put the agent on the nodes of INVENTORY, by pyinfra: a systemd timer, and no daemon and no open port.

    Exits 0 where all have it, 1 where one does not.
    """
    from gpunode.agent.files import INSTALL

    desired = installed_with(**asked)
    # By a file: certificates may be more than an environment takes.
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="gpunode-agent-") as file:
        file.write(desired.to_text())
        file.flush()
        _deploy(inventory, limit, {INSTALL: file.name})


@agent.command()
@inventory_argument()
@click.option("--textfile", metavar="FOLDER", help="The folder that its metric went to.")
@output_option("the hosts that it was run on", "nothing but pyinfra's words")
@limit_option
def remove(inventory: Path, textfile: str | None, limit: tuple[str, ...]) -> None:
    """Take the agent away from the nodes of INVENTORY, with all that it left; what it brought about stays."""
    from gpunode.agent import files

    _deploy(inventory, limit, {f"{files.INSTALL}_TEXTFILE": textfile} if textfile else {})


def _deploy(inventory: Path, limit: tuple[str, ...], environment: dict[str, str]) -> None:
    """Run pyinfra on the agent's own deploy, whose words go to standard error; exit as it does."""
    from gpunode import ROOMS
    from gpunode.agent.files import INSTALL
    from gpunode.base.parent_watch import bound
    from gpunode.fleet.inventory import limited, load_inventory
    from gpunode.fleet.run.child import ProgramError, ended_with_us, program

    with told():
        names = limited(load_inventory(inventory), limit)
    try:
        pyinfra = program()
    except ProgramError as error:
        end_by(error, ExitCode.ERROR)
    limits = [word for pattern in limit for word in ("--limit", pattern)]
    deploy = ROOMS / "deploys" / "agent.py"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(INSTALL)}
    words = bound([pyinfra, "-y", *limits, str(inventory), str(deploy)])
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(),
        env={**inherited, **environment},
    ) as run, ended_with_us(run):  # fmt: skip
        code = ExitCode.GOOD if run.wait() == 0 else ExitCode.ERROR
    if is_json():
        from gpunode.base.document import head

        of = called(inventory, limit).to_json()
        say_document({**head(SCHEMA, {"hosts": len(names)}, code, of), "hosts": list(names)})
    sys.exit(code)


@agent.command()
@inventory_argument()
@click.option(
    "--silent-after", type=_TIME, default="1d", show_default=True, help="How old the last pull, and success, may be."
)
@output_option("what the agents found, as `gpunode drift` tells it (docs/drift.md)", "what is not as desired")
@click.option("--all", "show_all", is_flag=True, help="Show what is as desired, too, and each node's name.")
@history_option
@limit_option
def collect(inventory: Path, silent_after: timedelta, show_all: bool, limit: tuple[str, ...]) -> None:
    """Read what the agents of INVENTORY's nodes said last, in one round trip each, and whether they still pull.

    Exits as `gpunode drift` does: 0 where all is as desired, 2 on drift, 1 where an agent failed or was silent.
    """
    with uncollected():
        from gpunode.fleet.bundles import collected
    from gpunode.cli.drift import print_reports, watched
    from gpunode.fleet.reports.document import document as of_reports

    call = called(inventory, limit)
    with told(), watched() as watch:
        reports = collected(inventory, watch, datetime.now(UTC), silent_after, limit)
    found = of_reports(reports, call)
    # null would say that there is no cluster.
    del found["cluster"]
    if is_json():
        say_document(found, indent=None)
    else:
        print_reports(reports, show_all, call)
    recorded(found, "agent")
    sys.exit(verdict(item for report in reports for item in report.findings))
