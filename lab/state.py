"""A lab's folder in the checkout: who its nodes are, and what each was given."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpunode.lab.errors import LabError

CHECKOUT = Path(__file__).resolve().parents[1]

DEFAULT = "default"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def given(asked: str | None = None) -> str:
    """Return the name that was given to a lab, right or wrong: the one asked for, else $GPUNODE_LAB, else `default`."""
    return asked or os.environ.get("GPUNODE_LAB") or DEFAULT


def lab_name(asked: str | None = None) -> str:
    """Return the lab's name as `given` has it; raise LabError if it could not be part of a container's name."""
    name = given(asked)
    if not _NAME.fullmatch(name):
        raise LabError(
            f"lab name {name!r}: not allowed; allowed are lower-case letters, digits and hyphens, at most 32, "
            "the first no hyphen (option --lab or variable GPUNODE_LAB)"
        )
    return name


def labs_folder() -> Path:
    """Return the folder of the checkout that holds all labs."""
    return CHECKOUT / ".lab"


def labs_owner() -> str:
    """Return the checkout that these labs belong to."""
    return str(labs_folder().parent)


def lab_folder(lab: str) -> Path:
    """Return the folder of one lab; it exists only while the lab is up."""
    return labs_folder() / lab


def told_command(lab: str, verb: str, *words: str) -> str:
    """Return a command on a lab as it can be pasted: `gpunode lab ssh --lab demo gpu-1`; the option where it counts."""
    option = [] if lab == DEFAULT == (os.environ.get("GPUNODE_LAB") or DEFAULT) else ["--lab", lab]
    return " ".join(["gpunode", "lab", verb, *option, *words])


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file as `write_whole` does."""
    write_whole(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file that a reader finds either as it was or complete, never half written; mode 0644."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file; an empty one if the file is absent.

    Raises LabError if the file holds anything else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise LabError(f"{path} is not valid JSON ({error}): {removal(path)}") from error
    if not isinstance(value, dict):
        raise LabError(f"{path} holds no JSON object: {removal(path)}")
    return value


def removal(path: Path) -> str:
    """Return how the lab is removed that a file is of: `remove the lab with …`."""
    of_a_lab = path.is_relative_to(labs_folder()) and path != labs_folder()
    lab = path.relative_to(labs_folder()).parts[0] if of_a_lab else DEFAULT
    return f"remove the lab with `{told_command(lab, 'down')}`"
