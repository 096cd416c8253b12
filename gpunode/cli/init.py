"""`gpunode init DIRECTORY`: a repository of the user's own, and its inventory from where the machines are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from gpunode import REPOSITORY, ROOMS
from gpunode.base.findings import ExitCode
from gpunode.cli import known_machines
from gpunode.cli.errors import ALREADY_THERE, NOT_MADE, end
from gpunode.cli.output import is_json, output_option, say_document, talk
from gpunode.cli.selection import tell_of

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
@known_machines.options
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
    choice = known_machines.chosen(**chosen)  # type: ignore[arg-type]
    source = None if choice is None else choice.where
    tell_of(source=source)
    if choice is None:
        if directory is None:
            raise click.UsageError("name the DIRECTORY to write into, or a source of machines by --from-ansible FILE")
        texts = {**_texts(), Path(".gitignore"): _IGNORED}
        _write(directory, texts)
        _say(directory, texts)
        talk(_NEXT.format(directory=directory))
        talk(_SHELL)
        return
    directory = directory or Path()
    texts = {path: text for path, text in {**_texts(), Path(".gitignore"): _IGNORED}.items() if path.stem != "prod"}
    own, told = known_machines.texts(choice, directory, _texts()[Path("inventories/group_data/prod.py")])
    kept = {path for path in texts if (directory / path).exists() or (directory / path).is_symlink()}
    new = {path: text for path, text in texts.items() if path not in kept} | own
    _write(directory, new, "inventory by --inventory")
    _say(directory, new, source, told, sorted(map(str, kept)))
    known_machines.say_told(choice, directory, told, sorted(map(str, kept)))
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
    """Name the files that were written."""
    names = [str(directory / path) for path in written]
    if is_json():
        say_document(document(names, source, told, kept))
    else:
        talk("\n".join(names))


def document(written: Sequence[str], source: str | None, told: Sequence[str], kept: Sequence[str]) -> dict[str, Any]:
    """Return what --output json prints: the files, what could not be carried over, and what was there already.

    source: where the machines are from, None where they are nobody's
    """
    from gpunode.base.document import head

    counts = {"written": len(written), "to_look_at": len(told), "kept": len(kept)}
    lists = {"written": list(written), "to_look_at": list(told), "kept": list(kept)}
    return {**head(SCHEMA, counts, ExitCode.GOOD, {"source": source}), **lists}


def _texts() -> dict[Path, str]:
    """Return path -> text of each file that is written."""
    deploy = Path("deploys/gpu_node.py")
    inventories = REPOSITORY / "inventories"
    found = [*sorted(inventories.glob("*.py")), *sorted((inventories / "group_data").glob("*.py"))]
    sources = {path.relative_to(REPOSITORY): path for path in (REPOSITORY / "config.py", *found)}
    sources |= {deploy: ROOMS / deploy}
    return {path: source.read_text(encoding="utf-8") for path, source in sources.items()}
