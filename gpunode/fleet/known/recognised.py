"""What somebody gave as an inventory though it is another program's: said, with the command that makes one of it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from gpunode.base.structured_text import TextError, load_json, load_yaml

_MOST = 4 << 20
# Ansible's words for what a group has.
_GROUP = {"hosts", "children", "vars"}
_SECTION = re.compile(r"^\[[\w.:-]+\]\s*(?:[#;].*)?$", re.MULTILINE)
_VARIABLE = re.compile(r"^[^#;\n]*\bansible_\w+\s*=", re.MULTILINE)
# Files that Ansible reads as its inventory, of a folder that is given.
_IN_FOLDER = ("hosts", "*.ini", "*.yml", "*.yaml", "inventory")


def told(path: Path) -> str | None:
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
