"""The kubelet."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.system.kubelet import Kubelet as Reading
from gpunode.system.kubelet import parse_kubelet


class Kubelet(NodeFact[Reading]):
    """Read the kubelet's version."""

    probe = shell_text("system/kubelet")
    parse = staticmethod(parse_kubelet)
