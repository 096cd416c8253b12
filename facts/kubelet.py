"""The kubelet."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.kubelet import Kubelet as Reading
from gpunode.kubelet import parse_kubelet
from gpunode.probe import shell_text


class Kubelet(NodeFact[Reading]):
    """Read the kubelet's version."""

    probe = shell_text("kubelet")
    parse = staticmethod(parse_kubelet)
