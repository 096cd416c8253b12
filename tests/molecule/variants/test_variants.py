"""Settings other than the default. SIMULATED: the GPUs; Docker's package is Debian's containerd REPACKAGED."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, converge, inventory_with, out

PROXY = "http://127.0.0.1:9"


@pytest.fixture
def fresh(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Return a node on which nothing was done yet."""
    yield lab_nodes.recreate(nodes[0])


def twice(path: str, *options: str) -> Run:
    """Converge, and again without a change; return the first run."""
    first = converge("--limit", "gpu-1", *options, inventory=path)
    assert first.code == 0, first.printed
    second = converge("--limit", "gpu-1", *options, inventory=path)
    assert (second.code, second.operations("success")) == (0, {}), second.printed
    return first


def test_docker_s_containerd_comes_with_its_cri_plugin_switched_off_and_is_switched_on(
    tmp_path: Path, fresh: Node
) -> None:
    path = inventory_with(
        tmp_path, {"gpu-1": {"containerd": {"source": "docker-repository", "default_runtime": "runc"}}}
    )
    twice(path)
    assert out(fresh, "dpkg-query -W -f '${Status}' containerd.io") == "install ok installed"
    dump = out(fresh, "containerd config dump")
    assert 'default_runtime_name = "runc"' in dump
    assert "nvidia-container-runtime" in dump
    assert "disabled_plugins = []" in dump
    assert "ok" in out(fresh, "ctr plugins ls | grep -E 'io.containerd.grpc.v1 +cri '")


def test_a_proprietary_driver_by_branch_alone_and_then_another_branch(tmp_path: Path, fresh: Node) -> None:
    asked: dict[str, object] = {"driver": {"branch": "570", "flavour": "proprietary"}, "cuda": {"version": "12.8"}}
    twice(inventory_with(tmp_path, {"gpu-1": asked}))
    assert out(fresh, "cat /sys/module/nvidia/version") == "570.172.08"
    assert out(fresh, "modinfo -F license nvidia") == "NVIDIA"
    # A newer branch over a loaded module: installed, and the reboot is pending, not done and not an error.
    other = {"version": "580.95.05", "flavour": "proprietary", "allow_branch_change": True}
    newer = inventory_with(tmp_path, {"gpu-1": {**asked, "driver": other}})
    run = converge("--limit", "gpu-1", inventory=newer)
    assert run.code == 0, run.printed
    assert "reboot pending" in run.stderr
    assert out(fresh, "cat /sys/module/nvidia/version") == "570.172.08"
    assert out(fresh, "modinfo -F version nvidia") == "580.95.05"


def test_what_is_present_is_verified_and_left_alone(tmp_path: Path, nodes: tuple[Node, ...]) -> None:
    node = nodes[1]
    asked: dict[str, object] = {"driver": {"source": "present"}, "containerd": {"source": "present"}}
    path = inventory_with(tmp_path, {"gpu-2": asked})
    before = out(node, "dpkg-query -W")
    run = converge("--limit", "gpu-2", inventory=path)
    assert run.code == 1
    assert "no NVIDIA driver" in run.stderr
    assert "Traceback" not in run.printed
    assert out(node, "dpkg-query -W") == before


def test_proxies_reach_apt_and_the_runtime_s_unit_and_go_again(tmp_path: Path, fresh: Node) -> None:
    twice(inventory_with(tmp_path, {}))
    asked: dict[str, object] = {"proxy": {"http": PROXY, "https": PROXY, "no_proxy": ["127.0.0.1", "deb.debian.org"]}}
    run = converge("--limit", "gpu-1", inventory=inventory_with(tmp_path, {"gpu-1": asked}))
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == {
        "Set apt's proxy",
        "Set containerd's proxy",
        "Configure containerd: default runtime nvidia",
        "Record what was applied",
    }
    assert f"HTTP_PROXY={PROXY}" in out(fresh, "tr '\\0' '\\n' < /proc/$(pidof containerd)/environ")
    assert PROXY in out(fresh, "apt-config dump Acquire::http::Proxy")
    twice(inventory_with(tmp_path, {}))
    assert "PROXY" not in out(fresh, "tr '\\0' '\\n' < /proc/$(pidof containerd)/environ")
    assert PROXY not in out(fresh, "apt-config dump Acquire::http::Proxy")


def test_containers_that_must_not_be_disturbed_keep_running_and_the_restart_is_pending(
    tmp_path: Path, fresh: Node
) -> None:
    twice(inventory_with(tmp_path, {}))
    out(fresh, "ctr run -d --rootfs /srv/gpunode-lab/rootfs work /bin/sleep 600")
    config = "/etc/containerd/config.toml"
    out(fresh, f'sed -i \'s/default_runtime_name = "nvidia"/default_runtime_name = "runc"/\' {config}')
    # Containers live on; without this the daemon would still run by what is asked, and nothing be to restart.
    out(fresh, "systemctl restart containerd")
    edited, started = out(fresh, f"cat {config}"), out(fresh, "systemctl show -p ExecMainStartTimestamp containerd")
    asked: dict[str, object] = {"disruption": {"allow": "nothing"}}
    run = converge("--limit", "gpu-1", inventory=inventory_with(tmp_path, {"gpu-1": asked}))
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == {"Record what was applied"}
    assert "restart pending" in run.stderr
    assert out(fresh, f"cat {config}") == edited
    assert out(fresh, "systemctl show -p ExecMainStartTimestamp containerd") == started
    allowed = converge("--limit", "gpu-1", inventory=inventory_with(tmp_path, {}))
    assert set(allowed.operations("success")) == {
        "Configure containerd: default runtime nvidia",
        "Record what was applied",
    }
    assert out(fresh, "systemctl show -p ExecMainStartTimestamp containerd") != started
