"""The kubelet on a node."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.probe_output import values
from gpunode.base.reading import Reading
from gpunode.base.versions import program_version


@dataclass(frozen=True)
class Kubelet(Reading):
    """Hold the kubelet's version; None where there is no kubelet."""

    version: str | None


def parse_kubelet(lines: list[str]) -> Kubelet:
    """Parse `kubelet=Kubernetes v1.29.3`."""
    return Kubelet(program_version(values(lines).get("kubelet")))
