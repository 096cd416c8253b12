"""Podman: its version, and its files of settings."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.podman.state import Podman as Reading
from gpunode.components.podman.state import parse_podman
from gpunode.facts.base import NodeFact


class Podman(NodeFact[Reading]):
    """Read podman's version, and which runtime its files of settings name."""

    probe = shell_text("components/podman/state")
    parse = staticmethod(parse_podman)
