"""What the plan of a node promises is how the run on it ends: the real operations run over the same readings."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.disruption import Disruption
from gpunode.components.dcgm.state import DcgmUnit
from gpunode.components.driver.state import Service
from gpunode.components.mig.state import Holder
from gpunode.node.plan import plan
from gpunode.settings import SettingsError, settings_from
from gpunode.system.health import GpuHealth
from tests.support.recorded_node import RecordedNode
from tests.support.simulated_run import Broken, BrokenNode, ended, idle, promised

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

RECORDED = Path(__file__).parent / "data" / "a2002961"
BUS = "0000:1a:00.0"
BARE: dict[str, Any] = {"packages": (), "held": ()}
NO_SERVICE: dict[str, Any] = {"version": None, "binary": None, "active": False, "enabled": False}
BROKEN = (
    Broken("driver", {"loaded_version": "570.172.08"}),
    Broken("driver", {"loaded_version": None, "loaded_flavour": None}),
    Broken("driver", {"module_version": None, "loaded_version": None, "library_version": None, **BARE}, "nvidia-o"),
    Broken("driver", {"module_version": None, "loaded_version": None, "loaded_flavour": None}),
    Broken("driver", {"module_version": None}),
    Broken("driver", {"library_version": "570.172.08"}),
    Broken("driver", {"uvm_loaded": False}),
    Broken("driver", {"uvm_without_device": True}),
    Broken("driver", {"loaded_flavour": "proprietary", "module_license": "NVIDIA"}),
    Broken("driver", {"nouveau_bound": True}),
    Broken("driver", {"runfile": True, **BARE}, "nvidia-o"),
    Broken("gpus", {"status": "hangs", "gpus": ()}),
    Broken("gpus", {"status": "no driver", "gpus": ()}),
    Broken("health", {"gpus": (GpuHealth(BUS, remap_pending=True),)}),
    Broken("health", {"gpus": (GpuHealth(BUS, remap_failed=True),)}),
    Broken("cuda", {"versions": (), "nvcc_version": None}, "cuda-toolkit"),
    Broken("cuda", {"default_path": "/usr/local/cuda-11.8"}),
    Broken("cuda", {"default_path": "/usr/local/cuda"}),
    Broken("cuda", {"profile": False}, files=("/etc/profile.d/cuda.sh",)),
    Broken("cuda", {"nvcc_version": None}),
    Broken("toolkit", {"runtime_path": None}),
    Broken("toolkit", {"link_rule": False}, files=("/etc/udev/rules.d/71-gpunode-nvidia-dev-char.rules",)),
    Broken("toolkit", {"unlinked": ("/dev/nvidia0",)}),
    Broken("toolkit", {"config_text": "= nonsense"}),
    Broken("toolkit", {"packages": (), "version": None, "runtime_path": None}, "nvidia-container"),
    Broken("containerd", NO_SERVICE, "containerd"),
    Broken("containerd", {"active": False}),
    Broken("containerd", {"enabled": False}),
    Broken("containerd", {"masked": True, "active": False}),
    Broken("containerd", {"configured_at": 99.0}),
    Broken("containerd", {"configured_at": 99.0, "shims": 2}),
    Broken("containerd", {"default_runtime": "runc"}),
    Broken("containerd", {"cri_plugin": "error"}),
    Broken("containerd", {"config_text": "version = ["}),
    Broken("containerd", {"config_text": ""}),
    Broken("docker", {"config_text": "{"}),
    Broken("docker", {"config_text": ""}),
    Broken("docker", {"active": False}),
    Broken("docker", {"masked": True, "active": False}),
    Broken("docker", NO_SERVICE, "docker"),
    Broken("docker", {"default_runtime": None}),
    Broken("keyrings", {"keys": (), "permissions": ()}),
    Broken("mig", {"status": "hangs", "message": None, "gpus": ()}),
    Broken("mig", {"holders": tuple(Holder(gpu, 4615, "trainer", "root") for gpu in ("GPU-0", "GPU-1"))}),
    Broken("mig_boot", {"enabled": False}),
    Broken("mig_boot", {"failed": True}),
    Broken("mps", {"daemons": ()}),
    Broken("mps", {"daemons": (), "program": None}),
    Broken("dcgm", {"packages": ()}, "datacenter-gpu"),
    Broken("boot", {"secure_boot": True}),
    Broken("apt_sources", {"errors": ("the signature of the list is not valid",)}),
    Broken("driver", {"services": (Service("nvidia-persistenced", active=False, enabled=False, masked=True),)}),
    Broken("driver", {"services": (Service("nvidia-persistenced", active=False, enabled=False),)}),
    *(Broken("dcgm", {unit: DcgmUnit(masked=True)}) for unit in ("engine", "exporter")),
    *(Broken("dcgm", {unit: DcgmUnit()}) for unit in ("engine", "exporter")),
    Broken("power", {"enabled": False}),
)
UNREACHABLE = {"enabled": True, "node_name": "gpu-1", "kubeconfig": "/nowhere/admin.conf"}
CHANGED: tuple[dict[str, Any], ...] = (
    *({"disruption": {"allow": each.name}} for each in Disruption),
    *({"driver": each} for each in ({"branch": "575"}, {"hold": False}, {"source": "present"}, {"enabled": False})),
    *({"cuda": each} for each in ({"version": "13.0"}, {"version": "12.8"}, {"enabled": False})),
    *({"toolkit": each} for each in ({"version": "1.18.0"}, {"enabled": False}, {"preset": "shared"})),
    *({"containerd": each} for each in ({"enabled": False}, {"enabled": True}, {"default_runtime": "runc"})),
    *({name: {"enabled": each}} for name in ("docker", "podman", "crio", "mps", "dcgm") for each in (True, False)),
    *({"mig": {"config": each}} for each in (None, "all-disabled", "all-1g.10gb")),
    *({"power": each} for each in ({"limit": 500}, {"limit": None}, {"ecc": True})),
    {"kubernetes": {"kubelet": {"cpu_manager_policy": "static"}}},
)  # fmt: skip


@pytest.fixture(scope="module")
def nodes() -> dict[str, RecordedNode]:
    """Return the recorded nodes."""
    return {name: RecordedNode(RECORDED / "nodes" / name) for name in ("containerd-mig", "docker-mps", "rocky")}


@given(
    name=st.sampled_from(["containerd-mig", "docker-mps", "rocky"]),
    broken=st.lists(st.sampled_from(BROKEN), max_size=3, unique_by=lambda each: (each.part, *each.fields)),
    changed=st.lists(st.sampled_from(CHANGED), max_size=2),
    in_cluster=st.sampled_from([False, False, True]),
)
def test_a_run_ends_as_the_plan_promises(
    nodes: dict[str, RecordedNode], name: str, broken: list[Broken], changed: list[dict[str, Any]], in_cluster: bool
) -> None:
    data = deepcopy(nodes[name].data)
    for change in changed:
        for component, settings in change.items():
            data[component] = {**data.get(component, {}), **settings}
    if in_cluster:
        data |= {"kubernetes": {**UNREACHABLE, **data.get("kubernetes", {})}, "sharing": {"mig_strategy": "mixed"}}
    with pytest.MonkeyPatch.context() as patched:
        # The settings name files.
        patched.chdir(RECORDED)
        try:
            desired = settings_from(data)
        except SettingsError:
            # Checked before any node is read.
            return
        node = BrokenNode(nodes[name], broken)
        made = plan(desired, node.node, no_cluster=in_cluster)
        end = ended(node, data)
        if in_cluster and promised(made) in ("good", "waits"):
            # What the cluster is needed for fails behind all that the node itself needs.
            assert end.how == "failed" and "Device plugin" in end.why[0], (end.why, made.steps)
        else:
            assert promised(made) == end.how, (end.why, made.steps)
        assert promised(made) in ("failed", "refused") or idle(made, end) == []
        for failed in end.changes[:1]:
            # A run refuses what failed before, and its plan says so.
            node = BrokenNode(nodes[name], broken, [failed])
            made = plan(desired, node.node, no_cluster=in_cluster)
            assert promised(made) == ended(node, data).how == "failed"
