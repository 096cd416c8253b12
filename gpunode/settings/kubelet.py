"""Settings of the kubelet that runs on a node of a cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpunode.settings.component import Component, matching

_AMOUNT = r"\d{1,18}(\.\d{1,9})?(m|[kMGTPE]|[KMGTPE]i)?"
_Amount = Annotated[str, matching(_AMOUNT, "an amount such as '500m' (CPUs), '1Gi' or '2000' (processes)")]
_Threshold = Annotated[
    str, matching(rf"{_AMOUNT}|(\d|[1-9]\d)(\.\d{{1,3}})?%", "an amount such as '500Mi', or a share such as '10%'")
]
_Reserved = Annotated[
    str, matching("cpu|memory|ephemeral-storage|pid", "one of cpu, memory, ephemeral-storage and pid")
]
_Signal = Annotated[
    str,
    matching(
        r"memory\.available|pid\.available|(nodefs|imagefs)\.(available|inodesFree)",
        "a signal: memory.available, pid.available, or available and inodesFree of nodefs and imagefs",
    ),
]
_Reservations = dict[_Reserved, _Amount]


class KubeletSettings(Component):
    """The kubelet that runs on the node (docs/how-to/kubelet.md): what it keeps from pods, and how it places them. What
    is not given stays as it is, and what gpunode set goes when its setting goes. The kubelet is restarted where it is
    to run by something else; a node is drained first where pods would feel that."""

    system_reserved: _Reservations = Field(default_factory=dict, max_length=4)
    """What is kept for the operating system, such as `{'cpu': '500m', 'memory': '1Gi'}`: pods are not promised it."""
    kube_reserved: _Reservations = Field(default_factory=dict, max_length=4)
    """What is kept for the kubelet and the container runtime."""
    eviction_hard: dict[_Signal, _Threshold] = Field(default_factory=dict, max_length=6)
    """Below which of these pods are evicted, such as `{'memory.available': '500Mi'}`. Where nobody else says one, the
    kubelet's own defaults stay for the others."""
    max_pods: int | None = Field(None, ge=1, le=5000)
    """How many pods the node takes; the kubelet's own number is 110."""
    cpu_manager_policy: Literal["none", "static"] | None = None
    """`static`: pods of the class Guaranteed with whole CPUs have these alone; takes a reserved `cpu`. gpunode removes
    the kubelet's cpu_manager_state with a change, for the kubelet would not start by the former policy's."""
    topology_manager_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    """How near each other a pod's CPUs and GPUs have to be."""

    @property
    def asks(self) -> bool:
        """Say whether anything is asked of the kubelet."""
        return any(value not in (None, {}) for _, value in self)
