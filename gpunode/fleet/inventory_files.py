"""Files given as an inventory: another program's, where Python of one fails, and group_data that counts for no host.

pyinfra reads `group_data/NAME.py` for the group NAME, in the current folder and next to the inventory, and says nothing
of a file that is for no group.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
import shlex
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from traceback import walk_tb
from typing import Any

from gpunode.base.errors import CodedError
from gpunode.base.findings import ExitCode
from gpunode.base.folding import in_one_line
from gpunode.base.messages import command_caution, command_error, with_code
from gpunode.base.structured_text import TextError, load_json, load_yaml

_FOLDER = "group_data"
UNUSED = command_caution(
    "inventory.group-data-unused", "The settings of a file in group_data count for no host.",
    "pyinfra reads group_data/NAME.py for the group NAME, in the current folder and next to the inventory. A file that "
    "bears the name of no group of any inventory there, or does not end in .py, is read for no host.",
    remedy="rename the file to a group of the inventory with the ending .py, or remove it",
)  # fmt: skip


class InventoryError(CodedError):
    """Say why an inventory could not be read."""

    code = command_error(
        "inventory.unreadable", "The inventory cannot be read, or has no host.",
        "An inventory is a Python file, or a connector of pyinfra such as @docker. No host was contacted.",
        remedy="correct what the message names; `gpunode init --from-…` makes one from Ansible, Terraform or a cluster",
    )  # fmt: skip
    status = ExitCode.ERROR


class InventoryCodeError(InventoryError):
    """Report an exception of an inventory's Python, or of its group_data, with file and line."""

    code = command_error(
        "inventory.python", "Python code of the inventory or of its group_data fails.",
        "The message has the file, the line and Python's own words. No host was contacted.",
        remedy="correct that line, or do what the inventory's own message says",
        exit="3, 1 of pyinfra's own command line",
    )  # fmt: skip
    status = ExitCode.INPUT_REFUSED


def reading_error(name: str, error: BaseException) -> InventoryError:
    """Return what to report of an exception that ended the reading of an inventory."""
    cause: BaseException = getattr(error, "exception", None) or error
    words = in_one_line(cause) or "no reason is given"
    if isinstance(cause, SyntaxError):
        words = cause.msg
    if not isinstance(cause, SystemExit):
        words = f"{type(cause).__name__}: {words}"
    elif isinstance(cause.code, int | None):
        words = f"it ends the program (exit status {cause.code or 0})"
    if (place := _place(cause)) is not None:
        return InventoryCodeError(f"{place}: {words}")
    return InventoryError(f"{name}: {words}")


def _place(cause: BaseException) -> str | None:
    """Return file and line of the user's code that raised an exception; None where no such code did."""
    if isinstance(cause, SyntaxError) and cause.filename:
        return f"{cause.filename}, line {cause.lineno or 1}"
    # Late: the help of commands needs no pyinfra.
    import pyinfra

    libraries = [path for name in ("stdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))]
    libraries += [str(Path(__file__).parents[1]), str(Path(pyinfra.__file__).parent)]
    found = None
    for frame, line in walk_tb(cause.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith(("<", *libraries)):
            found = f"{file}, line {line}"
        elif frame.f_code.co_name == "exec_file" and found is None and not isinstance(cause, OSError):
            # A file that is no text, or no source, has no frame of its own.
            found = str(frame.f_locals.get("filename"))
    return found


def unused_group_data(inventory: str, groups: Mapping[str, Collection[object]]) -> Iterator[str]:
    """Yield a caution for each file in group_data that is for no group; groups: of the inventory, with their hosts."""
    file = Path(inventory)
    if not file.is_file():
        return
    live = {str(name) for name, hosts in groups.items() if hosts}
    for folder in dict.fromkeys((Path.cwd() / _FOLDER, file.parent.resolve() / _FOLDER)):
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        # To parse inventories of many hosts takes a while.
        if all(each.suffix == ".py" and each.stem in {*live, "all"} for each in files):
            continue
        known = live | {"all"} | _groups_near(folder, file)
        for each in files:
            if (reason := _unused(each, known, live)) is not None:
                yield with_code(f"{os.path.relpath(each)}: its settings count for no host: {reason}", UNUSED)


def _unused(file: Path, known: Collection[str], live: Collection[str]) -> str | None:
    name, ending = file.stem, file.suffix
    if name.startswith(("_", ".")) or not file.is_file():
        return None
    if ending.lower() in (".py", ".yaml", ".yml", ".json") and ending != ".py":
        # Other names are files that Python code in the folder may read.
        is_for_group = name in known and not file.with_suffix(".py").exists()
        why = f"pyinfra reads files that end in .py alone; write them in {name}.py as NAME = VALUE"
        return why if is_for_group else None
    if ending != ".py" or name in known or _is_imported(file):
        return None
    lower = {each.lower(): each for each in sorted(live)}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    meant = f"did you mean {lower[near[0]]}.py?" if near else f"groups are {', '.join(sorted(live)[:10])}"
    return f"no inventory here has a group {name}; {meant}"


def _is_imported(file: Path) -> bool:
    """Say whether another file of the folder imports this one: then its settings may count."""
    pattern = re.compile(rf"^\s*(from|import)\b.*\b{re.escape(file.stem)}\b", re.MULTILINE)
    others = (each for each in file.parent.glob("*.py") if each != file)
    return any(pattern.search(each.read_text(encoding="utf-8", errors="replace")) for each in others)


def _groups_near(folder: Path, inventory: Path) -> set[str]:
    """Return the names that the inventories next to a group_data folder may give groups, without executing them."""
    places = {inventory.parent.resolve(), folder.parent, folder.parent / "inventories"}
    names: set[str] = set()
    for file in (file for place in places if place.is_dir() for file in place.glob("*.py")):
        names.add(file.stem)
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        names |= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return names


_MOST = 4 << 20
# Ansible's words for what a group has.
_GROUP = {"hosts", "children", "vars"}
_SECTION = re.compile(r"^\[[\w.:-]+\]\s*(?:[#;].*)?$", re.MULTILINE)
_VARIABLE = re.compile(r"^[^#;\n]*\bansible_\w+\s*=", re.MULTILINE)
# Files that Ansible reads as its inventory, of a folder that is given.
_IN_FOLDER = ("hosts", "*.ini", "*.yml", "*.yaml", "inventory")


def recognised(path: Path) -> str | None:
    """Return what a file or folder is, and the command that makes an inventory of pyinfra's of it.

    None where it is none that is known. Nothing of it is run.
    """
    try:
        source = None if path.suffix == ".py" else _of_folder(path) if path.is_dir() else _of_file(path)
    except (OSError, ValueError):
        # A list of many hosts' names is no path.
        return None
    if source is None:
        return None
    what, option, printed = source
    stem = re.sub(r"[^A-Za-z0-9_-]", "-", path.name.partition(".")[0]).strip("-_") or "machines"
    name = stem if stem not in ("all", "ci", "lab", "prod", "group_data") else f"{stem}-machines"
    given = shlex.quote(str(path))
    command = (
        f"gpunode init . {option} {given} --inventory {name}"
        if printed
        else f"ansible-inventory -i {given} --list | gpunode init . {option} - --inventory {name}"
    )
    return (
        f"{path} is {what}, and an inventory here is a file of Python's, as pyinfra reads it. Make one of it: "
        f"`{command}`, then name inventories/{name}.py"
    )


def _of_folder(path: Path) -> tuple[str, str, bool] | None:
    files = sorted(each for pattern in _IN_FOLDER for each in path.glob(pattern) if each.is_file())
    found = (_of_file(each) for each in files)
    return next((("a folder of Ansible's inventories", "--from-ansible", False) for each in found if each), None)


def _of_file(path: Path) -> tuple[str, str, bool] | None:
    """Return what it is, the option that takes it, and whether that takes the file as it is."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST:
            return None
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if text.lstrip().startswith("{"):
        return _of_json(text)
    if path.suffix in (".yml", ".yaml", ""):
        try:
            # Tags of Ansible's, such as !vault, are not looked at.
            document = load_yaml(text, _MOST, tolerant=True)
        except TextError:
            document = None
        if _is_ansibles(document):
            return "an inventory of Ansible's", "--from-ansible", False
    if path.suffix in (".ini", ".cfg", "") and (_SECTION.search(text) or _VARIABLE.search(text)):
        return "an inventory of Ansible's", "--from-ansible", False
    return None


def _of_json(text: str) -> tuple[str, str, bool] | None:
    try:
        document = load_json(text)
    except TextError:
        return None
    if not isinstance(document, dict):
        return None
    if document.get("kind") in ("List", "NodeList", "Node"):
        return "a list of a cluster's nodes", "--from-kubernetes", True
    if "terraform_version" in document:
        return "Terraform's state", "--from-terraform", True
    if "_meta" in document or _is_ansibles(document):
        return "what ansible-inventory printed", "--from-ansible", True
    return None


def _is_ansibles(document: Any) -> bool:
    if not isinstance(document, dict) or not document:
        return False
    # The configuration of an inventory plugin.
    if isinstance(document.get("plugin"), str):
        return True
    groups = [group for group in document.values() if group is not None]
    return bool(groups) and all(isinstance(group, dict) and group and set(group) <= _GROUP for group in groups)
