"""A converged node, looked at from outside by testinfra. Real: apt, systemd, containerd, runc. SIMULATED: the GPUs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.lab.nodes import Node
from tests.molecule.conftest import command, converge

CRI = "io.containerd.grpc.v1.cri"
CONTAINER = (
    "ctr run --rm --runc-binary /usr/bin/nvidia-container-runtime {options} --rootfs /srv/gpunode-lab/rootfs {name} "
    "/bin/ls /dev"
)


@pytest.fixture
def merged(node_host: Any) -> dict[str, Any]:
    """Return the merged CRI configuration that containerd itself prints."""
    with node_host.sudo():
        document = tomllib.loads(node_host.check_output("containerd config dump"))
    found: dict[str, Any] = document["plugins"][CRI]["containerd"]
    return found


def test_containerd_s_default_runtime_is_nvidia(merged: dict[str, Any]) -> None:
    assert merged["default_runtime_name"] == "nvidia"
    assert merged["runtimes"]["nvidia"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"


@pytest.mark.parametrize("runtime", ["runc", "nvidia"])
def test_both_runtimes_use_systemd_s_cgroups(merged: dict[str, Any], runtime: str) -> None:
    assert merged["runtimes"][runtime]["options"]["SystemdCgroup"] is True


def test_the_cri_plugin_is_ok(node_host: Any) -> None:
    rows = [line.split() for line in node_host.check_output("ctr plugins ls").splitlines()]
    assert [row[-1] for row in rows if row[:2] == ["io.containerd.grpc.v1", "cri"]] == ["ok"]


def test_containerd_runs_now_and_at_boot(node_host: Any) -> None:
    service = node_host.service("containerd")
    assert service.is_running
    assert service.is_enabled


def test_a_container_that_asks_for_gpus_sees_them(node_host: Any) -> None:
    seen = node_host.check_output(CONTAINER.format(options="--env NVIDIA_VISIBLE_DEVICES=all", name="with"))
    assert {"nvidia0", "nvidia1", "nvidiactl"} <= set(seen.split())


def test_a_container_that_does_not_ask_sees_none(node_host: Any) -> None:
    seen = node_host.check_output(CONTAINER.format(options="", name="without"))
    assert "null" in seen.split()
    assert "nvidia" not in seen


def test_the_driver_is_the_one_that_was_asked_for(node_host: Any) -> None:
    assert node_host.file("/sys/module/nvidia/version").content_string.strip() == "580.95.05"
    assert "Open Kernel Module" in node_host.file("/proc/driver/nvidia/version").content_string
    assert node_host.check_output("modinfo -F license nvidia") == "Dual MIT/GPL"
    rows = node_host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").split()
    assert rows == ["580.95.05", "580.95.05"]
    assert node_host.package("nvidia-open").version.startswith("580.95.05-")


def test_nvcc_is_on_a_login_shell_s_path(node_host: Any) -> None:
    assert "release 12.9" in node_host.check_output("bash -lc 'nvcc --version'")


def test_repositories_are_trusted_by_one_keyring_each(node_host: Any) -> None:
    for name in ("cuda", "toolkit"):
        source = node_host.file(f"/etc/apt/sources.list.d/gpunode-{name}.sources")
        assert f"Signed-By: /usr/share/keyrings/gpunode-{name}.gpg" in source.content_string
        assert source.mode == 0o644
    assert not node_host.file("/etc/apt/trusted.gpg").exists


def test_the_toolkit_s_four_packages_have_one_version(node_host: Any) -> None:
    names = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container1",
        "libnvidia-container-tools",
    )
    assert {node_host.package(name).version for name in names} == {"1.17.8-1"}


def test_the_second_run_changes_nothing_and_restarts_nothing(
    nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    before = [start_times(node) for node in nodes]
    assert all("containerd.service" in times for times in before)
    run = converge()
    assert run.code == 0, run.printed
    assert run.operations("success") == {}
    assert run.operations("error") == {}
    assert len(run.operations("no_change")) > 10
    assert [start_times(node) for node in nodes] == before


def test_a_dry_run_names_no_host_with_a_change() -> None:
    run = command("pyinfra", "--dry", "--json", "inventories/lab.py", "deploys/gpu_node.py")
    assert run.code == 0, run.printed
    assert len(run.payload["plan"]) > 10
    assert [row["name"] for row in run.payload["plan"] if row["hosts_with_change"]] == []


def test_drift_finds_nothing(nodes: tuple[Node, ...]) -> None:
    run = command("gpunode", "drift", "--json", "inventories/lab.py")
    assert run.code == 0, run.printed
    assert set(run.findings) == {node.name for node in nodes}
    assert {item["class"] for items in run.findings.values() for item in items} == {"ok"}


def test_the_requirements_are_judged_on_the_node() -> None:
    run = command("pyinfra", "inventories/lab.py", "fact", "facts.requirements.Requirements", "--json")
    assert run.code == 0, run.printed
    for reading in json.loads(run.stdout)["gpunode.facts.requirements.Requirements"].values():
        rows = {(row["component"], row["needed_by"]): row for row in reading["requirements"]}
        assert rows["driver", "device-plugin"]["status"] == "met"
        assert rows["driver", "device-plugin"]["actual"] == "580.95.05"
        assert rows["default-runtime", "device-plugin"]["status"] == "met"
        assert rows["driver", "cuda 12.9"]["status"] == "met"
        assert rows["kubernetes", "device-plugin"]["status"] == "not applicable"
        assert all(row["source"] for row in rows.values())


@pytest.mark.parametrize("component", ["driver", "cuda", "toolkit", "containerd"])
def test_each_component_also_runs_alone(component: str) -> None:
    run = command("pyinfra", "-y", "--json", "inventories/lab.py", f"deploys.{component}.{component}")
    assert run.code == 0, run.printed
    assert run.operations("success") == {}
    assert run.operations("no_change") != {}


def test_a_sudo_user_works_as_well_as_root() -> None:
    run = converge("--data", "ssh_user=operator", "--sudo")
    assert run.code == 0, run.printed
    assert run.operations("success") == {}
    assert len(run.operations("no_change")) > 10


def test_a_plan_of_a_finished_node_has_nothing_to_do_with_and_without_the_machine(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    live = command("gpunode", "plan", "--json", "inventories/lab.py")
    assert live.code == 0, live.printed
    assert {name: plan["verdict"] for name, plan in json.loads(live.stdout)["hosts"].items()} == {
        node.name: "nothing to do" for node in nodes
    }
    facts, settings = tmp_path / "facts.json", tmp_path / "settings.yaml"
    recorded = command("gpunode", "facts", "inventories/lab.py")
    assert recorded.code == 0, recorded.printed
    facts.write_text(recorded.stdout)
    host_data = json.loads(command("gpunode", "check", "--json", "inventories/lab.py").stdout)["hosts"][nodes[0].name]
    settings.write_text(yaml.safe_dump({name: part for name, part in host_data.items() if name != "digest"}))
    offline = command("gpunode", "plan", "--json", "--facts", str(facts), "--settings", str(settings))
    assert offline.code == 0, offline.printed
    for plan in json.loads(offline.stdout)["hosts"].values():
        # The texts of files, which may hold credentials, are not recorded.
        assert plan["verdict"] == "not known" and not plan["refusals"], plan
        assert {step["code"] for step in plan["steps"]} == {"containerd.configuration-files"}, plan
