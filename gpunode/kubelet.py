"""The kubelet on a node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.probe_output import values
from gpunode.reading import Reading

_VERSION = re.compile(r"(\d+\.\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Kubelet(Reading):
    """Hold the kubelet's version; None where there is no kubelet."""

    version: str | None


def program_version(printed: str | None) -> str | None:
    """Return the first dotted number of what `PROGRAM --version` printed."""
    match = _VERSION.search(printed or "")
    return match[1] if match else None


def parse_kubelet(lines: list[str]) -> Kubelet:
    """Parse `kubelet=Kubernetes v1.29.3`."""
    return Kubelet(program_version(values(lines).get("kubelet")))
