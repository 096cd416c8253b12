"""Which boot of a node is running."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.system.running_boot import RECORD, parse_running_boot
from gpunode.system.running_boot import RunningBoot as Reading


class RunningBoot(NodeFact[Reading]):
    """Read what tells this boot from another: the kernel's boot_id, and when pid 1 began, which tells a container's.

    A record that is older than the module on disk is of another installation, and no longer counts.
    """

    probe = shell_text("system/running_boot", RECORD=RECORD)
    parse = staticmethod(parse_running_boot)
