"""Kernel features on a node, and the kernel parameters that Kubernetes needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpunode.base.probe_output import repeated
from gpunode.base.reading import Reading

# Kubernetes' documentation, Container Runtimes: IPv4 forwarding and bridged traffic that iptables sees.
KUBERNETES: Mapping[str, str] = {
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.bridge.bridge-nf-call-ip6tables": "1",
    "net.ipv4.ip_forward": "1",
}


@dataclass(frozen=True)
class KubernetesSysctls(Reading):
    """The (name, value) of those parameters, without those that the kernel does not have (yet)."""

    values: tuple[tuple[str, str], ...] = ()

    def compared(self) -> Iterator[tuple[str, str | None, str]]:
        """Yield name, actual and desired value of each parameter."""
        actual = dict(self.values)
        yield from ((name, actual.get(name), desired) for name, desired in KUBERNETES.items())


def parse_sysctls(lines: list[str]) -> KubernetesSysctls:
    """Parse `sysctl=NAME VALUE` lines."""
    rows = (line.partition(" ") for line in repeated(lines, "sysctl"))
    return KubernetesSysctls(tuple((name, value.strip()) for name, _, value in rows))


@dataclass(frozen=True)
class KernelFeatures(Reading):
    """Hold the names of modules whose effect is there: overlay, br_netfilter, ib_umad."""

    present: tuple[str, ...]


def parse_kernel_features(lines: list[str]) -> KernelFeatures:
    """Parse `feature=NAME` lines."""
    return KernelFeatures(tuple(repeated(lines, "feature")))
