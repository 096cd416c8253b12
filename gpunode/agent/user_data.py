"""User data by which cloud-init has a machine pull its bundle at first boot: the agent's files, and who begins. Pure.

It holds no secret: on most clouds every process of a machine may read its user data, pods too.
"""

from __future__ import annotations

import gzip
import json
from importlib.resources import files as package_files
from typing import Any

import yaml

from gpunode.agent.files import FIRST_PULL, Install, texts

# What EC2 takes, the least of the clouds, in bytes; it may be compressed.
MOST = 16384
_HEAD = """\
#cloud-config
# Made by `gpunode agent user-data`: at first boot this machine pulls its signed bundle, and from time to time after it.
# It holds no secret. Let it be the last part of the user data: then lists of earlier parts are kept beside its own.
"""
# cloud-init renders jinja, by which it puts in the name that the cloud gave the machine; all the rest is none of it.
_TEMPLATE, _RAW, _END = "## template: jinja\n", "# {% raw %}\n", "# {% endraw %}\n"
_NAME = "{% endraw %}{{ v1.local_hostname }}{% raw %}"
# No host of an inventory is called this.
_STANDS_FOR_NAME = "NAME OF THE MACHINE"
# By the later part's word its lists go behind those of earlier ones; else they would take their place.
_MERGED = [
    {"name": "list", "settings": ["append"]},
    {"name": "dict", "settings": ["no_replace", "recurse_list"]},
]


def user_data(desired: Install, host: str | None) -> str:
    """Return the user data of machines that take one bundle.

    host: the inventory's host whose bundle they take; None: each machine takes that of its own name in the cloud
    """
    found = texts(desired, _STANDS_FOR_NAME if host is None else host)
    begins = (package_files("gpunode") / "agent" / "first_pull.sh").read_text(encoding="utf-8")
    found[FIRST_PULL] = (f"#!/bin/sh\n{begins}", "755")
    entries = [{"path": path, "permissions": f"0{mode}", "content": text} for path, (text, mode) in found.items()]
    document = {"merge_how": _MERGED, "write_files": entries}
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    if host is not None:
        return _HEAD + text
    return _TEMPLATE + _HEAD + _RAW + text.replace(json.dumps(_STANDS_FOR_NAME), f'"{_NAME}"') + _END


def compressed(text: str) -> bytes:
    """Return user data as cloud-init takes it as well, and the same for the same."""
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


class _Dumper(yaml.SafeDumper):
    """Write texts of several lines as they are, so that a person can read what is put on the machine."""


def _string(dumper: yaml.SafeDumper, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _string)
