"""Podman: its version, and its files of settings."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.podman.state import Podman as Reading
from gpunode.podman.state import parse_podman
from gpunode.probe import shell_text


class Podman(NodeFact[Reading]):
    """Read podman's version, and which runtime its files of settings name."""

    probe = shell_text("podman/state")
    parse = staticmethod(parse_podman)
