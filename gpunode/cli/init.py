"""`gpunode init DIRECTORY`: write a repository of the user's own, from the files that gpunode's own checkout has."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import click

from gpunode.base.findings import ExitCode
from gpunode.base.terminal import say

_IGNORED = "/.apply/\n/.lab/\n/.rollout/\n__pycache__/\npyinfra-debug.log\n"
_NEXT = """\
Next, in {directory}:
  put your machines into inventories/prod.py, and what they shall be into inventories/group_data/prod.py
  gpunode check inventories/prod.py
  gpunode plan inventories/prod.py
  pyinfra inventories/prod.py deploys/gpu_node.py"""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
def init(directory: Path) -> None:
    """Write a repository of your own into DIRECTORY: config.py, inventories/ and deploys/gpu_node.py.

    DIRECTORY may exist and have other files. Where one of the files is there already, nothing is written. Exit status:
    0 written, 1 it could not be written, 3 a file is there already, 64 usage.
    """
    texts = {**_texts(), Path(".gitignore"): _IGNORED}
    written: list[Path] = []
    try:
        actual = sorted(str(path) for path in texts if (directory / path).exists() or (directory / path).is_symlink())
        if actual:
            say(f"{directory} has {', '.join(actual)} already; nothing was written. Name another directory", err=True)
            sys.exit(ExitCode.INPUT_REFUSED)
        for path, text in texts.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            with (directory / path).open("x", encoding="utf-8") as file:
                written.append(directory / path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        say(f"cannot write {error.filename or directory}: {error.strerror}; no file was left behind", err=True)
        sys.exit(ExitCode.ERROR)
    say("\n".join(f"{directory / path}" for path in texts))
    say(_NEXT.format(directory=directory))


def _texts() -> dict[Path, str]:
    """Return path -> text of each file that is written."""
    with_files = Path(str(files("gpunode"))) / "repository"
    # The checkout has links there, to the files that it uses itself.
    folders = [with_files, *(with_files / name for name in ("deploys", "inventories", "inventories/group_data"))]
    paths = (path for folder in folders for path in sorted(folder.glob("*.py")))
    return {path.relative_to(with_files): path.read_text(encoding="utf-8") for path in paths}
