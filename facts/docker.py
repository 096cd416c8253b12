"""Docker."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.docker.state import Docker as Reading
from gpunode.docker.state import parse_docker


class Docker(NodeFact[Reading]):
    """Read the docker client's version."""

    probe = 'command -v docker >/dev/null && echo "docker=$(timeout -k 2 10 docker --version)"'
    parse = staticmethod(parse_docker)
