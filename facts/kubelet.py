"""The kubelet."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import UNITS, NodeFact
from gpunode.system.kubelet import NOTED, parse_kubelet
from gpunode.system.kubelet import Kubelet as Reading


class Kubelet(NodeFact[Reading]):
    """Read the kubelet's version, and of one that runs what GPUs need to know of its configuration."""

    probe = shell_text("system/kubelet", NOTED=NOTED, shared=(UNITS.of("kubelet.service"),))
    parse = staticmethod(parse_kubelet)
