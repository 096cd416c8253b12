"""Whether a machine has come up."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.system.readiness import Readiness as Reading
from gpunode.system.readiness import parse_readiness

# Seconds that systemd and cloud-init are given, and what does not end then until it is killed.
_SYSTEM, _CLOUD_INIT, _KILL = 10, 20, 2
# Within which the probe is answered by any machine, with some for its shell and the way there.
LONGEST = _SYSTEM + _CLOUD_INIT + 2 * _KILL + 5


class Readiness(NodeFact[Reading]):
    """Read cloud-init's status and systemd's state."""

    probe = rf"""
echo "system=$(timeout -k {_KILL} {_SYSTEM} systemctl is-system-running)"
command -v cloud-init >/dev/null && echo cloud_init= &&
  timeout -k {_KILL} {_CLOUD_INIT} cloud-init status --long 2>&1 | sed 's/^/cloud_init=/'
"""
    parse = staticmethod(parse_readiness)
