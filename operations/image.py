"""An image: a root directory that becomes a machine elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.facts.file import File
from gpunode.facts.system import Unit
from gpunode.node.first_boot import UNIT, UNIT_FILE, files
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.files import write_command
from gpunode.settings import Settings

_MODE = "644"


@node_operation
def first_boot(settings: Settings) -> Iterator[Any]:
    """Keep what verifies and records the first boot of a machine that is made from the image.

    They are no own files of a node, which a later run there would take away: the unit does nothing once it is recorded.
    """
    different = [path for path, text in files(settings, version("gpunode")).items() if _differs(path, text)]
    for path in different:
        yield write_command(path, files(settings, version("gpunode"))[path], _MODE)
    if UNIT_FILE in different or not read_fact(Unit, UNIT, unit=UNIT).enabled:
        yield StringCommand("systemctl", "enable", "--quiet", QuoteString(UNIT))
    elif not different:
        host.noop("the image verifies its first boot")


def _differs(path: str, text: str) -> bool:
    present = read_fact(File, path, path=path)
    desired = hashlib.sha256(text.encode()).hexdigest()
    return (present.sha256, present.mode, present.owner, present.group) != (desired, _MODE, "root", "root")
