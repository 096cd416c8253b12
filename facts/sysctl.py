"""Kernel parameters that Kubernetes needs."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.probe import shell_text
from gpunode.sysctl import KUBERNETES, parse_sysctls
from gpunode.sysctl import KubernetesSysctls as Reading


class KubernetesSysctls(NodeFact[Reading]):
    """Read the parameters that gpunode.sysctl names."""

    probe = shell_text("sysctl", NAMES=" ".join(KUBERNETES))
    parse = staticmethod(parse_sysctls)
