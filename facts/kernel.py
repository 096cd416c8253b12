"""Kernel features that containers and NVLink's switches need, judged by their effect."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.system.kernel import KernelFeatures as Reading
from gpunode.system.kernel import parse_kernel_features


class KernelFeatures(NodeFact[Reading]):
    """Read whether overlay, br_netfilter and ib_umad are there.

    A module that is built in shows neither in lsmod nor, without parameters, in /sys/module: ask for its effect.
    """

    probe = r"""
grep -qw overlay /proc/filesystems && echo feature=overlay
[ -d /proc/sys/net/bridge ] && echo feature=br_netfilter
[ -d /sys/module/ib_umad ] || [ -e /dev/infiniband/umad0 ] && echo feature=ib_umad
"""
    parse = staticmethod(parse_kernel_features)
