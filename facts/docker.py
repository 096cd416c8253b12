"""Docker: versions, daemon.json, and what the running daemon says of itself."""

from __future__ import annotations

from gpunode.docker.state import Docker as Reading
from gpunode.docker.state import parse_docker
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import UNITS
from gpunode.probe import shell_text


class Docker(NodeFact[Reading]):
    """Read the client's version, and of the running unit's dockerd version, file, flags and answer."""

    probe = shell_text("docker/state", shared=(UNITS.of("docker.service"),))
    parse = staticmethod(parse_docker)
