"""RDMA devices of a node."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.rdma.decide import Rdma as Reading
from gpunode.components.rdma.decide import parse_rdma
from gpunode.facts.base import NodeFact


class Rdma(NodeFact[Reading]):
    """Read the node's RDMA devices from sysfs, their ports, interfaces and character devices; by no program."""

    probe = shell_text("components/rdma/state", SYS="/sys", DEV="/dev")
    parse = staticmethod(parse_rdma)
