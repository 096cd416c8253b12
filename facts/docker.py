"""docker: versions, daemon.json, and what `docker info` answers."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.runtimes.docker import state
from gpunode.facts.base import UNITS, NodeFact


class Docker(NodeFact[state.Docker]):
    """Read the client's version, and the version, file, flags and answer of the running unit's dockerd."""

    probe = shell_text("components/runtimes/docker/state", shared=(UNITS.of("docker.service"),))
    parse = staticmethod(state.parse_docker)
