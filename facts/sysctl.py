"""Kernel parameters that Kubernetes needs."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.system.sysctl import KUBERNETES, parse_sysctls
from gpunode.system.sysctl import KubernetesSysctls as Reading


class KubernetesSysctls(NodeFact[Reading]):
    """Read the parameters that gpunode.system.sysctl names."""

    probe = shell_text("system/sysctl", NAMES=" ".join(KUBERNETES))
    parse = staticmethod(parse_sysctls)
