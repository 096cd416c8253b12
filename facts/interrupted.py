"""Changes that an earlier run began and did not end."""

from __future__ import annotations

from facts.base import NodeFact
from facts.transaction import FOLDER
from gpunode.interrupted import Interrupted as Reading
from gpunode.interrupted import parse_interrupted
from gpunode.probe import shell_text


class Interrupted(NodeFact[Reading]):
    """Read which transactions of gpunode's have begun and not ended, and whether their units are at work."""

    probe = shell_text("interrupted", FOLDER=FOLDER)
    parse = staticmethod(parse_interrupted)
