"""An image: a root directory that becomes a machine elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.facts.system import Unit
from gpunode.node.first_boot import UNIT, UNIT_FILE, files
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.files import is_written, write_command
from gpunode.settings import Settings


@node_operation
def first_boot(settings: Settings) -> Iterator[Any]:
    """Keep what verifies and records the first boot of a machine that is made from the image.

    They are no own files of a node, which a later run there would take away: the unit does nothing once it is recorded.
    """
    different = {path: text for path, text in files(settings, version("gpunode")).items() if not is_written(path, text)}
    for path, text in different.items():
        yield write_command(path, text)
    if UNIT_FILE in different or not read_fact(Unit, UNIT, unit=UNIT).enabled:
        yield StringCommand("systemctl", "enable", "--quiet", QuoteString(UNIT))
    elif not different:
        host.noop("the image verifies its first boot")
