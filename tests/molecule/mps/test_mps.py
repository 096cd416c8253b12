"""The life of an MPS control daemon on the host.

The daemon is NVIDIA's own (Debian's package nvidia-cuda-mps, unpacked on the node); no GPU is real, so that no server
of it ever runs. SIMULATED: GPUs, driver, nvidia-smi.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.changed_settings import differences
from tests.molecule.conftest import LAB, Run, command, inventory_with, tried_before
from tests.molecule.mps.mps_nodes import PROGRAM, UNPACK
from tests.support.changed_settings import changes as changed_settings

pytestmark = pytest.mark.life

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
ASKED: dict[str, object] = {"enabled": True, "active_thread_percentage": "50", "memory_limit": "8G", "clients": 8}


# Another program in its place, which passes on what it is told, but for one percentage.
MEDDLE = f"""
mv {PROGRAM} {PROGRAM}.real
cat > {PROGRAM} <<'END'
#!/bin/sh
if [ $# -gt 0 ]; then exec {PROGRAM}.real "$@"; fi
sed 's/percentage 77/percentage 150/' | exec {PROGRAM}.real
END
chmod 755 {PROGRAM}
"""


# A client of the daemon's, SIMULATED: it uses a GPU for as long as the daemon runs.
CLIENT = """
cat > /etc/systemd/system/mps-client.service <<END
[Unit]
BindsTo=nvidia-mps.service
After=nvidia-mps.service
[Service]
ExecStart=/usr/sbin/gpunode-lab-hold 0 --name mps-client
END
mkdir -p /etc/systemd/system/nvidia-mps.service.wants
ln -s ../mps-client.service /etc/systemd/system/nvidia-mps.service.wants/
systemctl daemon-reload
"""


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node with two GPUs and no MPS."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"))


class Mps:
    """Ask for MPS on the node, and for the driver that it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def inventory(self, asked: dict[str, object], mig: object = None) -> str:
        divided = {"mig": {"config": mig}} if mig else {}
        return inventory_with(self.folder, {"gpu-1": {**ALONE, "mps": asked, **divided}})

    def run(self, mig: object = None, **asked: object) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(asked, mig), "deploys/gpu_node.py")

    def drift(self, mig: object = None, **asked: object) -> dict[str, tuple[str, str]]:
        """Return what -> (class, found) of what is not as desired."""
        (findings,) = command("gpunode", "drift", "--json", self.inventory(asked, mig)).findings.values()
        return {item["what"]: (item["class"], item["actual"]) for item in findings if item["class"] != "ok"}


@pytest.fixture
def mps(tmp_path: Path) -> Mps:
    return Mps(tmp_path)


def on(node: Node, line: str) -> str:
    return lab_nodes.run(node, line).stdout.strip()


def answer(node: Node, question: str, instance: str = "") -> str:
    """Return what the daemon says to a question."""
    pipe = f"/run/nvidia-mps{instance and '/' + instance}"
    return on(node, f"echo {question} | CUDA_MPS_PIPE_DIRECTORY={pipe} {PROGRAM}")


def started(node: Node, unit: str = "nvidia-mps") -> str:
    return on(node, f"systemctl show -p MainPID -p ExecMainStartTimestampMonotonic {unit}")


def settings_of(node: Node) -> tuple[str, str, str]:
    return (
        answer(node, "get_default_active_thread_percentage"),
        answer(node, "get_default_device_pinned_mem_limit 0"),
        answer(node, "get_default_device_pinned_mem_limit 1"),
    )


def compute_modes(node: Node) -> set[str]:
    return set(on(node, "nvidia-smi --query-gpu=compute_mode --format=csv,noheader").splitlines())


def changes(run: Run) -> set[str]:
    return set(run.operations("success")) - {"Record what was applied"}


def test_somebody_else_s_unit_of_that_name_is_left_alone(node: Node, mps: Mps) -> None:
    unit = "/etc/systemd/system/nvidia-mps.service"
    on(node, f"printf '[Service]\\nExecStart=/bin/sleep 1000000\\n' > {unit}; systemctl start nvidia-mps")
    run = mps.run(enabled=False)
    assert run.code == 0 and on(node, "systemctl is-active nvidia-mps") == "active", run.printed
    on(node, f"systemctl stop nvidia-mps; rm {unit}; systemctl daemon-reload")


def test_without_the_program_the_run_says_which_package_has_it(node: Node, mps: Mps) -> None:
    run = mps.run(**ASKED)
    assert run.code != 0 and "nvidia-cuda-mps-control" in run.printed
    assert on(node, "ls /etc/systemd/system/nvidia-mps* 2>/dev/null || true") == ""
    lab_nodes.run(node, UNPACK)


def test_the_daemon_runs_with_its_settings_and_the_second_run_changes_nothing(node: Node, mps: Mps) -> None:
    run = mps.run(**ASKED)
    assert run.code == 0, run.printed
    assert settings_of(node) == ("50.0", "8G", "8G")
    assert compute_modes(node) == {"Exclusive_Process"}
    assert on(node, "systemctl is-enabled nvidia-mps") == "enabled"
    before = started(node)
    again = mps.run(**ASKED)
    assert again.code == 0 and changes(again) == set(), again.printed
    assert started(node) == before and mps.drift(**ASKED) == {}


def test_a_changed_setting_is_the_same_difference_for_drift_plan_and_the_next_run(node: Node, tmp_path: Path) -> None:
    asked = changed_settings({"mps": ASKED}, "mps")
    assert len(asked) > 6
    assert differences(tmp_path, {**ALONE, "mps": ASKED}, asked, together=False) == []


def test_another_percentage_and_limit_come_without_a_restart(node: Node, mps: Mps) -> None:
    before = started(node)
    run = mps.run(**{**ASKED, "active_thread_percentage": "33.3", "memory_limits": {"1": "512M"}})
    assert run.code == 0, run.printed
    assert settings_of(node) == ("33.3", "8G", "512M") and started(node) == before
    assert mps.run(**ASKED).code == 0
    assert settings_of(node) == ("50.0", "8G", "8G") and started(node) == before


def test_a_daemon_of_the_device_plugin_s_is_read_back_beside_the_host_s(node: Node, mps: Mps) -> None:
    """Told as the plugin tells its own for 10 replicas of 40 GiB; the plugin's pod is SIMULATED by a process."""
    root = "/run/nvidia/mps/nvidia.com/gpu"
    variables = f"CUDA_MPS_PIPE_DIRECTORY={root}/pipe CUDA_MPS_LOG_DIRECTORY={root}/log"
    on(node, f"mkdir -p {root}/pipe {root}/log && {variables} {PROGRAM} -d")
    for limit in ("active_thread_percentage 10", "device_pinned_mem_limit 0 4096M", "device_pinned_mem_limit 1 4096M"):
        on(node, f"printf 'set_default_{limit}' | {variables} {PROGRAM}")
    assert _plugin_daemons(mps) == [("nvidia.com/gpu", True, "10.0", [[0, "4G"], [1, "4G"]], [])]
    # The host's own daemon is another one, and as it was.
    assert mps.drift(**ASKED) == {} and settings_of(node) == ("50.0", "8G", "8G")
    on(node, f"echo quit | {variables} {PROGRAM}")
    assert _plugin_daemons(mps) == [("nvidia.com/gpu", False, None, [], [])]
    on(node, "rm -r /run/nvidia/mps")
    assert _plugin_daemons(mps) == []


def _plugin_daemons(mps: Mps) -> list[tuple[object, ...]]:
    """Return resource, whether it answers, percentage, limits and servers of each of the plugin's daemons."""
    asked = command("gpunode", "facts", mps.inventory(ASKED))
    assert asked.code == 0, asked.printed
    (host,) = asked.payload["hosts"].values()
    keys = ("resource", "answers", "percentage", "limits", "servers")
    return [tuple(each[key] for key in keys) for each in host["facts"]["plugin_mps"]["daemons"]]


def test_programs_are_told_of_the_daemon_without_its_restart_and_no_longer_where_nobody_asks(
    node: Node, mps: Mps
) -> None:
    script, conf = "/etc/profile.d/gpunode-mps.sh", "/etc/environment.d/50-gpunode-mps.conf"
    asked = {**ASKED, "environment": True}
    before = started(node)
    run = mps.run(**asked)
    assert run.code == 0, run.printed
    assert on(node, "sh -lc 'echo $CUDA_MPS_PIPE_DIRECTORY'") == "/run/nvidia-mps"
    generator = "/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator"
    assert "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps" in on(node, f"env -i {generator}").splitlines()
    assert on(node, f"stat -c %a /etc/environment.d {conf}").split() == ["755", "644"]
    again = mps.run(**asked)
    assert again.code == 0 and changes(again) == set() and mps.drift(**asked) == {}, again.printed
    on(node, f"rm {script}")
    assert mps.drift(**asked) == {f"CUDA_MPS_PIPE_DIRECTORY in {script}": ("drift", "none")}
    assert mps.run(**ASKED).code == 0 and mps.drift(**ASKED) == {}
    assert on(node, f"ls {script} {conf} 2>/dev/null || true") == "" and started(node) == before


def test_a_daemon_that_was_killed_is_back_with_its_settings(node: Node, mps: Mps) -> None:
    before = started(node)
    on(node, "systemctl kill -s KILL nvidia-mps; sleep 1; for n in 1 2 3 4 5 6 7 8 9; do "
             "systemctl is-active -q nvidia-mps && break; sleep 1; done")  # fmt: skip
    assert started(node) != before and settings_of(node) == ("50.0", "8G", "8G")
    assert mps.drift(**ASKED) == {}


def test_no_socket_is_left_of_a_daemon_that_was_stopped(node: Node, mps: Mps) -> None:
    on(node, "systemctl stop nvidia-mps")
    assert on(node, "ls -d /run/nvidia-mps 2>/dev/null || true") == "" and compute_modes(node) == {"Default"}
    assert mps.drift(**ASKED)["service nvidia-mps.service"] == ("drift", "stopped")
    assert mps.run(**ASKED).code == 0
    assert settings_of(node) == ("50.0", "8G", "8G") and compute_modes(node) == {"Exclusive_Process"}


def test_what_somebody_told_the_daemon_is_found_by_name_and_told_again(node: Node, mps: Mps) -> None:
    answer(node, "set_default_active_thread_percentage 10")
    answer(node, "set_default_device_pinned_mem_limit 1 0G")
    on(node, "nvidia-smi -i 0 -c DEFAULT")
    assert mps.drift(**ASKED) == {
        "daemon node, active_thread_percentage": ("drift", "10.0"),
        "daemon node, device_pinned_mem_limit 1": ("drift", "none"),
        "compute mode of GPU 0": ("drift", "Default"),
    }
    before = started(node)
    assert mps.run(**ASKED).code == 0
    assert settings_of(node) == ("50.0", "8G", "8G") and started(node) == before and mps.drift(**ASKED) == {}


def test_a_setting_that_the_daemon_does_not_take_leaves_the_old_ones_and_is_not_tried_again(
    node: Node, mps: Mps
) -> None:
    on(node, MEDDLE)
    asked = {**ASKED, "active_thread_percentage": "77"}
    before = started(node)
    run = mps.run(**asked)
    assert run.code != 0 and "answers '50.0', not '77.0'" in run.printed, run.printed
    assert settings_of(node) == ("50.0", "8G", "8G") and started(node) == before
    assert tried_before(mps.run(**asked), "mps")
    on(node, f"mv {PROGRAM}.real {PROGRAM}")
    assert mps.run(**ASKED).code == 0 and mps.drift(**ASKED) == {}


def test_each_gpu_may_have_a_daemon_of_its_own(node: Node, mps: Mps) -> None:
    asked = {**ASKED, "daemons": "gpu", "memory_limits": {"1": "16G"}}
    refused = mps.run(**asked)
    assert refused.code != 0 and "8 clients with 16G each are 131072 MiB, and GPU 1 has 81920 MiB" in refused.printed
    asked = {**asked, "clients": 4}
    run = mps.run(**asked)
    assert run.code == 0, run.printed
    assert [answer(node, "get_default_device_pinned_mem_limit 0", gpu) for gpu in ("0", "1")] == ["8G", "16G"]
    assert on(node, "systemctl is-active nvidia-mps || true") == "inactive"
    assert on(node, "ls /etc/systemd/system/nvidia-mps.service 2>/dev/null || true") == ""
    again = mps.run(**asked)
    assert again.code == 0 and changes(again) == set(), again.printed
    other = started(node, "nvidia-mps@1")
    on(node, "systemctl restart nvidia-mps@0")
    assert started(node, "nvidia-mps@1") == other and mps.drift(**asked) == {}


def test_what_is_not_asked_for_any_more_leaves_nothing_behind(node: Node, mps: Mps) -> None:
    assert "service nvidia-mps@0.service" in mps.drift(enabled=False)
    run = mps.run(enabled=False)
    assert run.code == 0, run.printed
    left = (
        "ls -d /etc/systemd/system/nvidia-mps* /etc/nvidia-mps/* /run/nvidia-mps/* /usr/local/lib/gpunode/nvidia-mps*"
    )
    assert on(node, f"{left} 2>/dev/null || true") == "" and compute_modes(node) == {"Default"}
    assert on(node, "systemctl list-units --all --plain --no-legend 'nvidia-mps*'") == ""
    again = mps.run(enabled=False)
    assert again.code == 0 and changes(again) == set() and mps.drift(enabled=False) == {}


def mig_modes(node: Node) -> set[str]:
    return set(on(node, "nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader").splitlines())


def test_from_mps_to_mig_the_daemon_goes_before_the_gpus_are_divided(node: Node, mps: Mps) -> None:
    on(node, CLIENT)
    assert mps.run(**ASKED).code == 0
    assert on(node, "systemctl is-active mps-client") == "active"
    both = mps.run(mig="all-balanced", **ASKED)
    assert both.code != 0 and "mig.config 'all-balanced' divides GPUs" in both.printed, both.printed
    assert settings_of(node) == ("50.0", "8G", "8G") and mig_modes(node) == {"Disabled, Disabled"}
    run = mps.run(mig="all-balanced", enabled=False)
    assert run.code == 0, run.printed
    assert mig_modes(node) == {"Enabled, Enabled"} and on(node, "nvidia-smi -L | grep -c '  MIG '") == "8"
    assert on(node, "systemctl is-active nvidia-mps || true") == "inactive"
    again = mps.run(mig="all-balanced", enabled=False)
    assert again.code == 0 and changes(again) == set() and mps.drift(mig="all-balanced", enabled=False) == {}


def test_from_mig_to_mps_the_gpus_are_whole_before_the_daemon_comes(node: Node, mps: Mps) -> None:
    run = mps.run(mig="all-disabled", **ASKED)
    assert run.code == 0, run.printed
    assert mig_modes(node) == {"Disabled, Disabled"} and compute_modes(node) == {"Exclusive_Process"}
    assert settings_of(node) == ("50.0", "8G", "8G") and on(node, "systemctl is-active mps-client") == "active"
    again = mps.run(mig="all-disabled", **ASKED)
    assert again.code == 0 and changes(again) == set() and mps.drift(mig="all-disabled", **ASKED) == {}
