"""The program helm: which version it is, and what differs from version to version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base.reading import ParseError
from gpunode.base.versions import parsed
from gpunode.settings.cluster import features

_PRINTED = re.compile(r"v(?P<version>(?P<major>\d{1,2})\.\d{1,3}\.\d{1,3})([-+][0-9A-Za-z.+-]*)?", re.ASCII)
# Of another major version nobody knows the options: helm 4 renamed and dropped some of helm 3.
MAJORS = (3, 4)


class HelmError(Exception):
    """Say why this helm is of no use, and what to do."""


@dataclass(frozen=True)
class Helm:
    """Hold a helm that gpunode can work with: how it is called, and its version."""

    program: str
    version: str

    @property
    def major(self) -> int:
        """Return its major version, one of MAJORS."""
        return int(self.version.partition(".")[0])


def version_command(program: str) -> tuple[str, ...]:
    """Return the command that prints a helm's version; it asks no cluster."""
    return (program, "version", "--template", "{{.Version}}")


def helm_of(program: str, printed: str) -> Helm:
    """Return the helm that printed its version so; raise ParseError, or HelmError where it is too old or too new."""
    match = _PRINTED.fullmatch(printed.strip())
    if match is None:
        raise ParseError(f"no version of helm: {printed[:80]!r}")
    version, needs = match["version"], features.known().helm["program"]
    if int(match["major"]) not in MAJORS:
        known = " and ".join(map(str, MAJORS))
        raise HelmError(f"{program} is helm {version}; gpunode knows helm {known}: set kubernetes.helm to one of these")
    if parsed(version) < parsed(needs.minimum):
        raise HelmError(f"{program} is helm {version}, and {needs.minimum} or newer is needed ({needs.source})")
    return Helm(program, version)
