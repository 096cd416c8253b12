"""Kernel parameters that Kubernetes needs."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.sysctl import KubernetesSysctls as Reading
from gpunode.sysctl import parse_sysctls


class KubernetesSysctls(NodeFact[Reading]):
    """Read the parameters that gpunode.sysctl names."""

    probe = r"""
for name in net.bridge.bridge-nf-call-iptables net.bridge.bridge-nf-call-ip6tables net.ipv4.ip_forward; do
  value=$(cat "/proc/sys/$(printf %s "$name" | tr . /)") && echo "sysctl=$name $value"
done
"""
    parse = staticmethod(parse_sysctls)
