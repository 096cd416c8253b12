"""Docker: versions, daemon.json, and what the running daemon says of itself."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.docker.state import Docker as Reading
from gpunode.components.docker.state import parse_docker
from gpunode.facts.base import UNITS, NodeFact


class Docker(NodeFact[Reading]):
    """Read the client's version, and of the running unit's dockerd version, file, flags and answer."""

    probe = shell_text("components/docker/state", shared=(UNITS.of("docker.service"),))
    parse = staticmethod(parse_docker)
