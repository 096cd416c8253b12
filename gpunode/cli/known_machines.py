"""The options of `gpunode init` that take machines from where they are known, and what is said of them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from gpunode.base.findings import ExitCode
from gpunode.cli.errors import NOT_READ, end, end_by, refuse_limit
from gpunode.cli.output import talk
from gpunode.cli.selection import limit_option

if TYPE_CHECKING:
    from gpunode.fleet.known.machines import Known

F = TypeVar("F", bound=Callable[..., Any])

_NEXT = """\
Next, in {directory}:
  write what the machines shall be, and who logs in, into inventories/group_data/{name}.py
  put the machines' host keys into the known hosts file that it names
  gpunode check inventories/{name}.py
  gpunode plan inventories/{name}.py"""
# Program -> what prints its document; the last is shown first.
_SOURCES = {
    "terraform": "`terraform show -json`, `terraform state pull` or `terraform output -json`",
    "kubernetes": "`kubectl get nodes -o json`",
    "ansible": "`ansible-inventory --list`",
}
_NAME = click.option("--inventory", "name", metavar="NAME", help="The inventory's name; prod by default.")
_ADDRESS = click.option(
    "--address",
    type=click.Choice(["internal", "external"]),
    help="Which address is taken of a machine that has both: of a cluster's nodes the internal one by default, of "
    "Terraform's the external one.",
)
# Inventories that a repository has besides.
_TAKEN = ("all", "ci", "lab", "group_data")


@dataclass(frozen=True)
class Choice:
    """Hold what is asked: the program, its document, the inventory's name, the hosts, which of their addresses."""

    source: str
    document: str
    name: str
    limit: tuple[str, ...]
    address: str | None

    @property
    def where(self) -> str:
        """Return where the document is."""
        return "standard input" if self.document == "-" else self.document


def options(command: F) -> F:
    """Give a command the options."""
    found: Callable[..., Any] = command
    for option in (_ADDRESS, limit_option, _NAME, *(_source(name, printed) for name, printed in _SOURCES.items())):
        found = option(found)
    return cast(F, found)


def _source(name: str, printed: str) -> Callable[[F], F]:
    kind = click.Path(allow_dash=True, dir_okay=False)
    return click.option(
        f"--from-{name}", type=kind, metavar="FILE", help=f"What {printed} printed; - is standard input."
    )


def chosen(
    from_ansible: str | None,
    from_kubernetes: str | None,
    from_terraform: str | None,
    name: str | None,
    limit: tuple[str, ...],
    address: str | None,
) -> Choice | None:
    """Return what is asked, None where no source is; raise UsageError."""
    sources = {"ansible": from_ansible, "kubernetes": from_kubernetes, "terraform": from_terraform}
    named = {source: document for source, document in sources.items() if document is not None}
    if len(named) > 1:
        raise click.UsageError(f"give one of {', '.join(f'--from-{source}' for source in named)}, and then the next")
    if not named:
        if name is not None or limit or address is not None:
            raise click.UsageError("--inventory, --limit and --address go with --from-ansible and its like")
        return None
    ((source, document),) = named.items()
    if address is not None and source == "ansible":
        raise click.UsageError("--address goes with --from-kubernetes and --from-terraform: Ansible names one address")
    name = "prod" if name is None else name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name, re.ASCII) or name in _TAKEN:
        raise click.UsageError(
            f"--inventory {name}: letters, digits, _ and - make a name, and {', '.join(_TAKEN)} are taken"
        )
    return Choice(source, document, name, limit, address)


def texts(choice: Choice, directory: Path, template: str) -> tuple[dict[Path, str], list[str]]:
    """Return path -> text of the inventory's files, and what is to be told; end the program where it is refused.

    template: the text of a group_data file with settings
    """
    from gpunode.fleet.inventory import LimitError
    from gpunode.fleet.known.machines import KnownError, only
    from gpunode.fleet.known.written import files

    folders = (directory / "inventories" / "group_data", directory / "group_data")
    stems = {"all", "ci", "lab", *(path.stem for folder in folders for path in folder.glob("*.py"))}
    try:
        known = only(_known(choice), choice.limit)
        written, told = files(known, choice.name, template, stems - {choice.name})
    except LimitError as error:
        refuse_limit(error)
    except KnownError as error:
        end_by(error, ExitCode.INPUT_REFUSED, "" if str(error).startswith(f"{choice.where} ") else f"{choice.where}: ")
    return {Path("inventories") / path: text for path, text in written.items()}, [*known.told, *told]


def _known(choice: Choice) -> Known:
    from gpunode.fleet.known import ansible, kubernetes, terraform

    document = _document(choice)
    if choice.source == "ansible":
        return ansible.known(document)
    if choice.source == "kubernetes":
        return kubernetes.known(document, choice.address or "internal")
    return terraform.known(document, choice.address or "external")


def _document(choice: Choice) -> Any:
    """Return the JSON of a file or of standard input; raise KnownError where it is none."""
    from gpunode.fleet.known import recognised
    from gpunode.fleet.known.machines import KnownError

    try:
        if choice.document == "-":
            text = sys.stdin.buffer.read().decode("utf-8")
        else:
            text = Path(choice.document).read_text(encoding="utf-8")
    except OSError as error:
        end(f"{choice.document}: {error.strerror}", NOT_READ, ExitCode.ERROR)
    except UnicodeDecodeError as error:
        raise KnownError(f"is no text in UTF-8: {error}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.strip():
            raise KnownError("is empty: did the program before it print anything?") from error
        others = None if choice.document == "-" else recognised.told(Path(choice.document))
        no_json = f"is no JSON: {error}. `gpunode init --help` has the commands that print it"
        raise KnownError(others or no_json) from error


def say_told(choice: Choice, directory: Path, told: list[str], kept: list[str]) -> None:
    """Print what was not carried over, which files stayed, and what comes next."""
    if told:
        talk("To look at:")
        for sentence in told:
            talk(f"- {sentence}")
    if kept:
        talk(f"There already, and left as they are: {', '.join(kept)}")
    talk(_NEXT.format(directory=directory, name=choice.name))
