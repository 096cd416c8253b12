"""The life of a driver that NVIDIA's .run file installs, and the ways in which it must not end.
 SIMULATED: GPUs, the .run files and the installer in them, the compiler, make and
dkms (which the installer only looks for), and the distribution of the nodes with dnf; curl, the web server, apt, dpkg,
dnf, rpm, systemd and the transaction are real.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from gpunode.lab.packages.driver import BROKEN_VERSION
from tests.molecule.conftest import CHECKOUT, out, thinned, tried_before
from tests.molecule.runfile.runfile_nodes import TOOLS, Driver, node, seen, with_tools

pytestmark = pytest.mark.life

# Fixtures.
__all__ = ["node"]

LOADED = "cat /sys/module/nvidia/version"
ON_DISK = "modinfo -F version nvidia"
KEPT = "cd /var/lib/gpunode/runfiles && ls"
# Of each package manager: the driver's packages; what holds them, and the stream that they are of; what else they and
# their repository leave behind.
PACKAGES = {
    "apt": "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' '*nvidia*' 2>/dev/null |"
    " grep -v '^not-' | sort",
    "dnf": "rpm -qa '*nvidia*' 'cuda-drivers*' | sort",
}
HELD = {
    "apt": "apt-mark showhold",
    "dnf": "cat /etc/dnf/modules.d/nvidia-driver.module /etc/dnf/plugins/versionlock.list 2>/dev/null",
}
LEFT = {
    "apt": "ls /etc/apt/preferences.d/gpunode-driver /etc/apt/apt.conf.d/52gpunode-driver"
    " /etc/apt/preferences.d/*nvidia*",
    "dnf": "ls /etc/yum.repos.d/gpunode-cuda.repo /etc/pki/rpm-gpg/gpunode-cuda.asc; dnf -q check",
}
INSTALL = {"apt": "apt-get install gcc make", "dnf": "dnf install gcc make"}
# What a .run file leaves on a disk, and nothing else does.
TRACES = (
    "ls -d /usr/bin/nvidia-installer /usr/bin/nvidia-uninstall /var/lib/nvidia /var/lib/dkms/nvidia /usr/src/nvidia-* "
    "2>/dev/null; "
    # Packages have it, too.
    "for file in /usr/lib/x86_64-linux-gnu/libcuda.so.1 /usr/lib64/libcuda.so.1; do [ ! -e $file ] || "
    "dpkg -S $file >/dev/null 2>&1 || rpm -qf $file >/dev/null 2>&1 || echo $file; done"
)


@pytest.fixture(scope="module", params=thinned(PACKAGES, "dnf"))
def other(request: pytest.FixtureRequest) -> Node:
    """Return another one, with each package manager."""
    return with_tools("gpu-2", request.param)


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def test_the_first_run_installs_and_the_second_changes_and_restarts_nothing(
    node: Node, driver: Driver, start_times: Callable[[Node], str]
) -> None:
    first = driver.install(node, "570.124.06")
    assert first.code == 0, first.printed
    assert (out(node, LOADED), out(node, ON_DISK)) == ("570.124.06", "570.124.06")
    assert seen(node, PACKAGES[node.family]) == ""
    assert out(node, "ls /var/lib/dkms/nvidia") == "570.124.06"
    assert out(node, "head -n 3 /var/log/nvidia-installer.log | grep -c -- --kernel-module-type=open") == "1"
    assert out(node, "runuser -u operator -- grep -c SIMULATED $(modinfo -F filename nvidia)") == "1"
    settled = start_times(node)
    second = driver.install(node, "570.124.06")
    assert (second.code, second.operations("success")) == (0, {}), second.printed
    assert start_times(node) == settled
    assert driver.drift(node, driver.runfile(node, "570.124.06")).code == 0


def test_an_upgrade_keeps_the_file_of_before_and_waits_for_the_boot(node: Node, driver: Driver) -> None:
    run = driver.install(node, "570.172.08")
    assert run.code == 0, run.printed
    assert "reboot pending" in run.stderr
    assert (out(node, LOADED), out(node, ON_DISK)) == ("570.124.06", "570.172.08")
    assert [name for name in out(node, KEPT).split() if name.endswith(".run")] == [
        "NVIDIA-Linux-x86_64-570.124.06.run", "NVIDIA-Linux-x86_64-570.172.08.run",
    ]  # fmt: skip
    again = driver.install(node, "570.172.08")
    assert (again.code, again.operations("success")) == (0, {}), again.printed


def test_another_branch_is_refused_until_the_settings_allow_it(node: Node, driver: Driver) -> None:
    refused = driver.install(node, "580.95.05")
    assert refused.code == 1
    assert "driver.allow_branch_change = True" in refused.printed
    assert out(node, ON_DISK) == "570.172.08"
    run = driver.install(node, "580.95.05", allow_branch_change=True)
    assert run.code == 0, run.printed
    lab_nodes.reboot(node)
    assert out(node, LOADED) == "580.95.05"
    # The boot has loaded the new module: now it is proven.
    settled = driver.install(node, "580.95.05")
    assert settled.code == 0, settled.printed
    assert "Install NVIDIA driver 580.95.05 (open) by its runfile" not in settled.operations("success")
    assert driver.drift(node, driver.runfile(node, "580.95.05")).code == 0


def test_an_older_version_of_the_branch_comes_the_same_way(node: Node, driver: Driver) -> None:
    run = driver.install(node, "580.82.07")
    assert run.code == 0, run.printed
    assert (out(node, LOADED), out(node, ON_DISK)) == ("580.95.05", "580.82.07")
    back = driver.install(node, "580.95.05")
    assert back.code == 0, back.printed


def test_without_dkms_and_with_the_other_module_it_is_installed_again(node: Node, driver: Driver) -> None:
    run = driver.install(node, "580.95.05", dkms=False)
    assert run.code == 0, run.printed
    assert seen(node, "ls /var/lib/dkms/nvidia") == ""
    assert "kernel/drivers/video" in out(node, "modinfo -F filename nvidia")
    assert driver.drift(node, driver.runfile(node, "580.95.05")).code == 2
    assert driver.install(node, "580.95.05").code == 0


@pytest.mark.parametrize("fault", ["build", "files"])
def test_an_installer_that_exits_1_has_its_log_in_our_error_and_the_driver_of_before_stays(
    node: Node, driver: Driver, fault: str
) -> None:
    lab_nodes.set_fault(node, installer=fault)
    failed = driver.install(node, "580.82.07")
    lab_nodes.clear_faults(node)
    assert failed.code == 1
    assert "NVIDIA-Linux-x86_64-580.82.07.run exits 1; the end of /var/log/nvidia-installer.log" in failed.printed
    assert "ERROR: SIMULATED fault" in failed.printed
    # In the middle of it the old files were gone already, and the old file cannot work under this fault either.
    if fault == "build":
        assert out(node, ON_DISK) == "580.95.05"
        again = driver.install(node, "580.82.07")
        assert again.code == 1
        assert tried_before(again, "driver") and "580.82.07 exits 1" in again.printed
        out(node, "rm /var/lib/gpunode/transactions/driver.json")
    healed = driver.install(node, "580.95.05")
    assert healed.code == 0, healed.printed
    assert (out(node, ON_DISK), out(node, LOADED)) == ("580.95.05", "580.95.05")


def test_a_wrong_checksum_is_an_error_and_nothing_is_run_or_kept(node: Node, driver: Driver) -> None:
    asked = {**driver.runfile(node, "580.82.07"), "runfile_sha256": "0" * 64}
    failed = driver.run(node, asked)
    assert failed.code == 1
    assert f"{'0' * 64} is asked for" in failed.printed
    assert "driver.runfile_sha256" in failed.printed
    assert (out(node, ON_DISK), "580.82.07" in out(node, KEPT)) == ("580.95.05", False)


def test_a_file_that_was_altered_on_the_node_is_removed_and_not_run(node: Node, driver: Driver) -> None:
    path = "/var/lib/gpunode/runfiles/NVIDIA-Linux-x86_64-580.95.05.run"
    out(node, f"echo 'touch /root/was-run' >> {path}")
    failed = driver.install(node, "580.95.05", dkms=False)
    assert failed.code == 1
    assert "was removed" in failed.printed
    assert seen(node, f"ls /root/was-run {path}") == ""
    assert driver.install(node, "580.95.05").code == 0
    assert out(node, f"ls {path}") == path


def test_a_download_that_was_cut_is_resumed_by_the_next_run(node: Node, driver: Driver) -> None:
    lab_nodes.set_fault(node, cut_transfer=100_000)
    failed = driver.install(node, "580.82.07")
    lab_nodes.clear_faults(node)
    assert failed.code == 1
    assert "100000 bytes" in failed.printed
    assert out(node, ON_DISK) == "580.95.05"
    run = driver.install(node, "580.82.07")
    assert run.code == 0, run.printed
    asked = [line for line in out(node, "cat /var/log/gpunode-lab.log").splitlines() if "580.82.07.run from" in line]
    assert asked[-1].endswith("from byte 100000")
    assert out(node, ON_DISK) == "580.82.07"


def test_a_module_that_does_not_load_after_the_boot_is_undone_by_the_file_of_before(node: Node, driver: Driver) -> None:
    pending = driver.install(node, BROKEN_VERSION, allow_branch_change=True)
    assert pending.code == 0, pending.printed
    lab_nodes.reboot(node)
    assert seen(node, LOADED) == ""
    failed = driver.install(node, BROKEN_VERSION, allow_branch_change=True)
    assert failed.code == 1
    assert "undone" in failed.printed
    assert "loaded is 580.82.07" in failed.printed
    again = driver.install(node, BROKEN_VERSION, allow_branch_change=True)
    assert again.code == 1
    assert tried_before(again, "driver") and f"module {BROKEN_VERSION}" in again.printed
    assert out(node, ON_DISK) == "580.82.07"


def test_an_installer_that_was_killed_in_the_middle_is_undone_by_the_next_run(node: Node, driver: Driver) -> None:
    lab_nodes.set_fault(node, installer="hang")
    path = driver.inventory(node, driver.runfile(node, "580.95.05"))
    program = Path(sys.executable).parent / "pyinfra"
    run = subprocess.Popen(
        [program, "-y", path, "deploys/gpu_node.py"], cwd=CHECKOUT, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while "half" not in seen(node, "cat /usr/bin/nvidia-smi 2>/dev/null | head -c 30"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    out(node, "systemctl kill --signal=KILL gpunode-driver")
    assert run.communicate(timeout=60) and run.returncode == 1
    lab_nodes.clear_faults(node)
    healed = driver.install(node, "580.82.07")
    assert healed.code == 0, healed.printed
    assert "undone first" in healed.printed
    assert (out(node, ON_DISK), out(node, LOADED)) == ("580.82.07", "580.82.07")


@pytest.mark.parametrize(
    "harm",
    [
        "rmmod nvidia_uvm; rmmod nvidia; rm /var/lib/gpunode/runfiles/*",
        "ln -sfn libnvidia-ml.so.1.2 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "rm $(modinfo -F filename nvidia)",
        "nvidia-uninstall --silent --skip-module-unload",
    ],
)
def test_a_driver_that_strays_is_healed_by_the_next_run(node: Node, driver: Driver, harm: str) -> None:
    out(node, harm)
    healed = driver.install(node, "580.82.07")
    assert healed.code == 0, healed.printed
    assert healed.operations("success"), "nothing was done"
    assert driver.drift(node, driver.runfile(node, "580.82.07")).code == 0


def test_a_new_kernel_without_dkms_gets_its_module_by_the_next_run(node: Node, driver: Driver) -> None:
    kernel = "6.99.0-lab"
    folder = f"/lib/modules/{kernel}/build"
    assert driver.install(node, "580.82.07", dkms=False).code == 0
    out(node, f"mkdir -p {folder} && touch {folder}/Makefile /boot/vmlinuz-{kernel}")
    asked = driver.runfile(node, "580.82.07", dkms=False)
    assert driver.drift(node, asked).code == 2
    run = driver.run(node, asked)
    assert run.code == 0, run.printed
    assert (out(node, f"modinfo -k {kernel} -F version nvidia"), out(node, ON_DISK)) == ("580.82.07", "580.82.07")
    again = driver.run(node, asked)
    assert (again.code, again.operations("success")) == (0, {}), again.printed


def test_a_first_driver_whose_module_does_not_load_leaves_nothing_behind(other: Node, driver: Driver) -> None:
    failed = driver.install(other, BROKEN_VERSION)
    assert failed.code == 1
    assert f"module {BROKEN_VERSION} is" in failed.printed
    assert (seen(other, TRACES), seen(other, ON_DISK), seen(other, LOADED)) == ("", "", "")


def test_without_a_compiler_the_node_is_refused_with_what_to_install(other: Node, driver: Driver) -> None:
    out(other, "rm /usr/local/bin/gcc /usr/local/bin/make")
    refused = driver.install(other, "580.95.05")
    out(other, TOOLS)
    assert refused.code == 1
    assert INSTALL[other.family] in refused.printed
    assert seen(other, TRACES) == ""


def packages(version: str, **more: object) -> dict[str, object]:
    return {"version": version, **more}


def test_a_runfile_over_packages_is_refused_until_a_migration_is_asked_for(other: Node, driver: Driver) -> None:
    first = driver.run(other, packages("580.82.07"))
    assert first.code == 0, first.printed
    before = out(other, PACKAGES[other.family])
    refused = driver.install(other, "580.95.05")
    assert refused.code == 1
    assert "driver.migrate = True" in refused.printed
    assert out(other, PACKAGES[other.family]) == before
    run = driver.install(other, "580.95.05", migrate=True)
    assert run.code == 0, run.printed
    # Nothing of the packages is left: neither files of their configuration, nor holds, nor pins, nor their repository.
    left = (seen(other, PACKAGES[other.family]), seen(other, HELD[other.family]), seen(other, LEFT[other.family]))
    assert left == ("", "", "")
    assert (out(other, ON_DISK), out(other, LOADED)) == ("580.95.05", "580.82.07")
    again = driver.install(other, "580.95.05", migrate=True)
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    lab_nodes.reboot(other)
    assert driver.install(other, "580.95.05").code == 0


def test_packages_over_a_runfile_are_refused_until_a_migration_is_asked_for(other: Node, driver: Driver) -> None:
    refused = driver.run(other, packages("580.82.07"))
    assert refused.code == 1
    assert "driver.migrate = True" in refused.printed
    assert out(other, ON_DISK) == "580.95.05"
    run = driver.run(other, packages("580.82.07", migrate=True))
    assert run.code == 0, run.printed
    assert seen(other, TRACES) == ""
    assert (out(other, ON_DISK), out(other, LOADED)) == ("580.82.07", "580.95.05")
    again = driver.run(other, packages("580.82.07", migrate=True))
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    lab_nodes.reboot(other)
    assert driver.run(other, packages("580.82.07")).code == 0


def test_packages_come_back_where_the_runfile_s_module_does_not_load(other: Node, driver: Driver) -> None:
    state = f"{PACKAGES[other.family]}; {HELD[other.family]}"
    before = out(other, state)
    out(other, "rmmod nvidia_uvm; rmmod nvidia")
    failed = driver.install(other, BROKEN_VERSION, migrate=True, allow_branch_change=True)
    assert failed.code == 1
    assert f"module {BROKEN_VERSION} is" in failed.printed
    assert (out(other, state), seen(other, TRACES)) == (before, "")
    assert out(other, LOADED) == "580.82.07"
    assert driver.drift(other, packages("580.82.07")).code == 0
