"""`gpunode init DIRECTORY`: a repository of the user's own, and its inventory from where the machines are known."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from gpunode import REPOSITORY, ROOMS
from gpunode.base.findings import ExitCode
from gpunode.base.structured_text import load_json
from gpunode.cli.errors import ALREADY_THERE, NOT_MADE, NOT_READ, end, end_by, refuse_limit
from gpunode.cli.output import is_json, output_option, say_document, talk
from gpunode.cli.selection import limit_option, tell_of

if TYPE_CHECKING:
    from gpunode.fleet.known.machines import Known


F = TypeVar("F", bound=Callable[..., Any])

_NEXT_OF_SOURCE = """\
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


def _options(command: F) -> F:
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


def _chosen(
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


def _texts_of(choice: Choice, directory: Path, template: str) -> tuple[dict[Path, str], list[str]]:
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
    from gpunode.fleet.inventory_files import recognised
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
        return load_json(text)
    except ValueError as error:
        if not text.strip():
            raise KnownError("is empty: did the program before it print anything?") from error
        others = None if choice.document == "-" else recognised(Path(choice.document))
        no_json = f"cannot be read as JSON: {error}. `gpunode init --help` has the commands that print it"
        raise KnownError(others or no_json) from error


def _say_told(choice: Choice, directory: Path, told: list[str], kept: list[str]) -> None:
    """Print what was not carried over, which files stayed, and what comes next."""
    if told:
        talk("To look at:")
        for sentence in told:
            talk(f"- {sentence}")
    if kept:
        talk(f"There already, and left as they are: {', '.join(kept)}")
    talk(_NEXT_OF_SOURCE.format(directory=directory, name=choice.name))


# Raised when a key of the document goes away or changes its meaning; a new key raises nothing.
SCHEMA = 1
_IGNORED = "/.apply/\n/.lab/\n/.rollout/\n__pycache__/\npyinfra-debug.log\n"
_NEXT = """\
Next, in {directory}:
  put your machines into inventories/prod.py, and what they shall be into inventories/group_data/prod.py
  gpunode check inventories/prod.py
  gpunode plan inventories/prod.py
  gpunode apply inventories/prod.py"""
_SHELL = """\
For your shell:
  gpunode completion --help             how TAB completes commands, options and files"""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@_options
@output_option("what was written (docs/output.md)", "nothing")
def init(directory: Path | None, **chosen: object) -> None:
    """Write a repository of your own into DIRECTORY: config.py, inventories/ and deploys/gpu_node.py.

    DIRECTORY may exist and have other files. Where one of the files is there already, nothing is written.

    With one of --from-…, the machines that another program knows become inventories/NAME.py and
    inventories/group_data/NAME.py; DIRECTORY is the current one unless given, and what it has of a repository stays.
    What could not be carried over is told, passwords are never copied, and no machine is contacted:

    \b
      ansible-inventory -i hosts.ini --list | gpunode init --from-ansible -
      kubectl get nodes -l nvidia.com/gpu.present=true -o json | gpunode init --from-kubernetes -
      terraform show -json | gpunode init --from-terraform -

    Exit status: 0 written, 1 it could not be written, 3 a file is there already or the document is refused, 64 usage.
    """
    choice = _chosen(**chosen)  # type: ignore[arg-type]
    source = None if choice is None else choice.where
    tell_of(source=source)
    if choice is None:
        if directory is None:
            raise click.UsageError("name the DIRECTORY to write into, or a source of machines by --from-ansible FILE")
        texts = _texts()
        _write(directory, texts)
        _say(directory, texts)
        talk(_NEXT.format(directory=directory))
        talk(_SHELL)
        return
    directory = directory or Path()
    every = _texts()
    texts = {path: text for path, text in every.items() if path.stem != "prod"}
    own, told = _texts_of(choice, directory, every[Path("inventories/group_data/prod.py")])
    kept = {path for path in texts if (directory / path).exists() or (directory / path).is_symlink()}
    new = {path: text for path, text in texts.items() if path not in kept} | own
    _write(directory, new, "inventory by --inventory")
    _say(directory, new, source, told, sorted(map(str, kept)))
    _say_told(choice, directory, told, sorted(map(str, kept)))
    talk(_SHELL)


def _write(directory: Path, texts: dict[Path, str], what: str = "directory") -> None:
    """Write all files, or none, and name them; end the program where one is there already or cannot be written."""
    written: list[Path] = []
    try:
        actual = sorted(str(path) for path in texts if (directory / path).exists() or (directory / path).is_symlink())
        if actual:
            said = f"{directory} has {', '.join(actual)} already; nothing was written. Name another {what}"
            end(said, ALREADY_THERE, ExitCode.INPUT_REFUSED)
        for path, text in texts.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            with (directory / path).open("x", encoding="utf-8") as file:
                written.append(directory / path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        said = f"cannot write {error.filename or directory}: {error.strerror}; no file was left behind"
        end(said, NOT_MADE, ExitCode.ERROR)


def _say(
    directory: Path,
    written: Iterable[Path],
    source: str | None = None,
    told: Sequence[str] = (),
    kept: Sequence[str] = (),
) -> None:
    """Name the files that were written; in JSON also what could not be carried over, and what was there already.

    source: where the machines are from, None where they are nobody's
    """
    from gpunode.base.document import head

    names = [str(directory / path) for path in written]
    if not is_json():
        talk("\n".join(names))
        return
    lists = {"written": names, "to_look_at": list(told), "kept": list(kept)}
    counts = {name: len(each) for name, each in lists.items()}
    say_document({**head(SCHEMA, counts, ExitCode.GOOD, {"source": source}), **lists})


def _texts() -> dict[Path, str]:
    """Return path -> text of each file that is written."""
    deploy = Path("deploys/gpu_node.py")
    inventories = REPOSITORY / "inventories"
    found = [*sorted(inventories.glob("*.py")), *sorted((inventories / "group_data").glob("*.py"))]
    sources = {path.relative_to(REPOSITORY): path for path in (REPOSITORY / "config.py", *found)}
    sources |= {deploy: ROOMS / deploy}
    texts = {path: source.read_text(encoding="utf-8") for path, source in sources.items()}
    return {**texts, Path(".gitignore"): _IGNORED}
