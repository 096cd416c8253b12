"""Helpers and data for the tests of verify."""

from __future__ import annotations

from dataclasses import replace

from gpunode.base.findings import Finding, FindingClass
from gpunode.components.cuda.state import CudaToolkits
from gpunode.components.driver.state import DriverState
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.containerd.effective import Runtime
from gpunode.components.runtimes.containerd.state import Containerd
from gpunode.components.runtimes.docker.state import Docker
from gpunode.components.runtimes.runtime import Runtimes
from gpunode.components.runtimes.toolkit.state import PACKAGES, ContainerToolkit
from gpunode.node import Node
from gpunode.node.recorded import _BARE
from gpunode.node.verdict import judge
from gpunode.packages.deb import AptSources
from gpunode.packages.trust import PERMISSIONS, Keyrings
from gpunode.settings import Settings, settings_from
from gpunode.system.boot import Boot
from gpunode.system.disk import Disk
from gpunode.system.gpu import Gpu, Gpus, MigMode
from gpunode.system.health import GpuHealth, Health
from gpunode.system.kubelet import Kubelet
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpu, PciGpus

DATA = {"driver": {"version": "580.95.05"}, "toolkit": {"version": "1.17.8"}}


SETTINGS = settings_from(DATA)


H100 = PciGpu("0000:1a:00.0", "2330", "GH100 [H100 SXM5 80GB]", "hopper")


GPU = Gpu(
    0,
    "GPU-1",
    "NVIDIA H100",
    "0000:1a:00.0",
    "580.95.05",
    81559,
    MigMode("Disabled", "Disabled"),
    "Default",
    "Disabled",
)


RENDERED = render(None, "1.6.20", Runtimes())


GOOD = Node(
    operating_system=OperatingSystem("debian", "12", "bookworm", (), "Debian 12", "x86_64", "6.1.0", False),
    pci=PciGpus((H100,)),
    driver=DriverState((), "580.95.05", "Dual MIT/GPL", "580.95.05", "open", "580.95.05", uvm_loaded=True),
    gpus=Gpus("ok", 0, None, (GPU,)),
    health=Health(0, (GpuHealth("0000:1a:00.0", 0, 0, False, False),), (), log_read=True),
    cuda=CudaToolkits(("12.9",), "/usr/local/cuda-12.9", "12.9.86", True),
    toolkit=ContainerToolkit(
        tuple((name, "1.17.8-1") for name in PACKAGES), "1.17.8", "/usr/bin/nvidia-container-runtime", link_rule=True,
    ),
    containerd=Containerd(
        "1.6.20", "/usr/bin/containerd", "/etc/containerd/config.toml", RENDERED, 10.0, 5.0, "nvidia",
        (
            Runtime("nvidia", "io.containerd.runc.v2", "/usr/bin/nvidia-container-runtime", True),
            Runtime("runc", "io.containerd.runc.v2", None, True),
        ),
        "ok", 0, active=True, enabled=True,
    ),
    docker=Docker(None),
    kubelet=Kubelet(None),
    keyrings=Keyrings(
        (
            ("cuda", SETTINGS.repositories.cuda.key_fingerprint),
            ("toolkit", SETTINGS.repositories.toolkit.key_fingerprint),
        ),
        (("cuda", PERMISSIONS), ("toolkit", PERMISSIONS)),
    ),
    boot=Boot("6.1.0-40-amd64"),
    disk=Disk(()),
    apt_sources=AptSources("amd64"),
)  # fmt: skip


# Its file says so, too; where it does not, no run mends it.
RUNC_BY_DEFAULT = replace(
    GOOD.containerd, default_runtime="runc", config_text=render(None, "1.6.20", Runtimes(default="runc"))
)


def bad(node: Node) -> list[tuple[str, FindingClass]]:
    return [
        (item.what, item.finding_class) for item in judge(SETTINGS, node) if item.finding_class is not FindingClass.OK
    ]


# A machine on which nobody has installed anything.
BARE = replace(GOOD, **_BARE)


def wrong(settings: Settings, node: Node) -> list[Finding]:
    """Return the findings that are not as desired."""
    return [item for item in judge(settings, node) if item.finding_class is not FindingClass.OK]
