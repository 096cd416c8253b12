"""Docker on a node."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.probe_output import values
from gpunode.reading import Reading
from gpunode.versions import program_version


@dataclass(frozen=True)
class Docker(Reading):
    """Hold the docker client's version; None where there is no docker."""

    version: str | None


def parse_docker(lines: list[str]) -> Docker:
    """Parse `docker=Docker version 20.10.24+dfsg1, build 297e128`."""
    return Docker(program_version(values(lines).get("docker")))
