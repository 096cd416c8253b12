"""The kubelet."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.kubelet import Kubelet as Reading
from gpunode.kubelet import parse_kubelet


class Kubelet(NodeFact[Reading]):
    """Read the kubelet's version."""

    probe = 'command -v kubelet >/dev/null && echo "kubelet=$(timeout -k 2 10 kubelet --version)"'
    parse = staticmethod(parse_kubelet)
