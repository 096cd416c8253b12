"""Whether a machine has come up."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.ci.readiness import Readiness as Reading
from gpunode.ci.readiness import parse_readiness


class Readiness(NodeFact[Reading]):
    """Read cloud-init's status and systemd's state."""

    probe = r"""
echo "system=$(timeout -k 2 10 systemctl is-system-running)"
command -v cloud-init >/dev/null && echo cloud_init= &&
  timeout -k 2 20 cloud-init status --long 2>&1 | sed 's/^/cloud_init=/'
"""
    parse = staticmethod(parse_readiness)
