"""The life of a driver on a rolling release, and the ways in which it must not end (driver_life has what others share).
 SIMULATED: the distribution, GPUs, the driver's modules and daemons; pacman, its
signatures, IgnorePkg and systemd are real. The repositories move on by another day in the node's mirrorlist.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from gpunode.lab.packages.driver import BROKEN_VERSION
from tests.molecule import driver_life as life
from tests.molecule.conftest import command, inventory_with, out, third_tier
from tests.molecule.driver_alone import LOADED, Driver
from tests.molecule.driver_packages import IGNORED, PACMAN

pytestmark = [third_tier, pytest.mark.life]

CONFIGURATION = "/etc/pacman.conf"
LOCK = "/var/lib/pacman/db.lck"
DRIVER = PACMAN.installed
SOMEBODY_S = ["bash", "linux", "linux-lts"]


@pytest.fixture(scope="module")
def node(plain: Node) -> Node:
    """Return a fresh node, of a day when the driver was older; its pacman.conf has a word of somebody's."""
    move_to(plain, "2025-09")
    out(plain, f"printf '# somebody says so\\n' >> {CONFIGURATION}")
    out(plain, f"sed -i 's/^CheckSpace/IgnorePkg = bash\\n&/' {CONFIGURATION}")
    out(plain, f"cp {CONFIGURATION} /root/before.conf")
    return plain


def move_to(node: Node, day: str) -> None:
    out(
        node,
        f"sed -i 's|pacman/2[0-9-]*/|pacman/{day}/|' /etc/pacman.d/mirrorlist; grep -q {day} /etc/pacman.d/mirrorlist",
    )


def test_a_version_that_the_repository_has_not_is_refused_with_the_one_there_is_and_the_ways_out(
    node: Node, driver: Driver
) -> None:
    life.a_version_that_is_not_there_is_refused(PACMAN, node, driver, "580.95.05")


def test_what_nvidia_has_no_repository_for_is_refused_before_anything(node: Node, driver: Driver) -> None:
    run = driver.run(node, source="cuda-repository")
    assert run.code == 1
    assert "Arch Linux" in run.printed
    assert "Refuse this node" in run.printed


def test_a_pacman_that_is_at_work_is_waited_for(node: Node, driver: Driver) -> None:
    # Whoever has the lock open is at work, and it is not taken away: until the driver's change has come to wait for it.
    comes = 'timeout 90 sh -c "until systemctl is-active --quiet gpunode-driver; do sleep 0.2; done"'
    hold = f"exec 9> {LOCK}; {comes}; sleep 4; touch /root/released; rm -f {LOCK}"
    out(node, f"systemd-run --quiet sh -c '{hold}'; until test -e {LOCK}; do sleep 0.2; done")
    run = driver.run(node, branch="580")
    assert run.code == 0, run.printed
    assert "pacman that is gone" not in run.printed
    out(node, "test /var/lib/pacman/local/nvidia-utils-580.82.07-1/desc -nt /root/released")


def test_module_and_userland_come_at_one_version_and_are_held_with_the_kernel(node: Node, driver: Driver) -> None:
    assert out(node, DRIVER) == "nvidia-open 580.82.07-14\nnvidia-utils 580.82.07-1"
    assert out(node, LOADED) == "580.82.07"
    assert PACMAN.names_held(node) == sorted([*PACMAN.names(node), *SOMEBODY_S])
    life.a_run_changes_nothing(driver, node, branch="580")


SLOW_HOOK = """[Trigger]
Operation = Upgrade
Type = Package
Target = nvidia-utils
[Action]
When = PostTransaction
Exec = /bin/sleep 200
"""


def test_a_change_that_was_killed_is_undone_by_the_next_run_though_it_left_its_lock(node: Node, driver: Driver) -> None:
    move_to(node, "2025-10")
    hook = "/etc/pacman.d/hooks/slow.hook"
    out(node, f"mkdir -p /etc/pacman.d/hooks; printf '{SLOW_HOOK}' > {hook}")
    kill = "until pgrep -f '^/bin/sleep 200'; do sleep 0.2; done; systemctl kill -s KILL gpunode-driver"
    out(node, f'systemd-run --quiet sh -c "{kill}"')
    killed = driver.run(node, version="580.95.05")
    assert killed.code == 1
    assert out(node, DRIVER) == "nvidia-open 580.95.05-14\nnvidia-utils 580.95.05-1"
    out(node, f"rm {hook}; test -e {LOCK}")
    back = driver.run(node, version="580.82.07")
    assert back.code == 0, back.printed
    assert out(node, DRIVER) == "nvidia-open 580.82.07-14\nnvidia-utils 580.82.07-1"
    assert lab_nodes.run(node, f"test -e {LOCK}").returncode == 1


def test_an_upgrade_within_the_branch_moves_module_and_userland_and_waits_for_the_boot(
    node: Node, driver: Driver
) -> None:
    # A repository that has moved on is no reason to move.
    assert set(driver.run(node, branch="580").operations("success")) <= {life.RECORD}
    life.an_upgrade_within_the_branch_waits_for_the_boot(PACMAN, node, driver, "580.82.07", version="580.95.05")
    assert out(node, DRIVER) == "nvidia-open 580.95.05-14\nnvidia-utils 580.95.05-1"
    life.the_boot_brings_it(node, driver, "580.95.05", version="580.95.05")


def test_the_other_flavour_takes_the_place_of_the_one_that_is_there(node: Node, driver: Driver) -> None:
    life.the_other_flavour_takes_the_place(PACMAN, node, driver, "580.95.05", others=SOMEBODY_S)
    assert out(node, DRIVER) == "nvidia 580.95.05-14\nnvidia-utils 580.95.05-1"


def test_another_kernel_than_arch_s_two_has_its_module_by_dkms(node: Node, driver: Driver) -> None:
    base = '"/usr/lib/modules/$(uname -r)/pkgbase"'
    out(node, f"echo linux-zen > {base}")
    run = driver.run(node, version="580.95.05")
    assert run.code == 0, run.printed
    assert out(node, DRIVER) == "nvidia-open-dkms 580.95.05-1\nnvidia-utils 580.95.05-1"
    # DKMS builds it for whatever comes: the kernel is not held.
    assert "linux" not in out(node, "pacman-conf IgnorePkg").split()
    out(node, f"echo linux > {base}")
    back = driver.run(node, version="580.95.05")
    assert back.code == 0, back.printed
    assert out(node, DRIVER) == "nvidia-open 580.95.05-14\nnvidia-utils 580.95.05-1"
    lab_nodes.reboot(node)
    assert driver.run(node, version="580.95.05").code == 0


def test_a_partial_upgrade_is_refused_before_anything_is_touched_with_the_way_out(node: Node, driver: Driver) -> None:
    move_to(node, "2025-12")
    state = f"pacman -Q; cat {CONFIGURATION} {IGNORED}; ls -R /var/lib/pacman"
    before = out(node, state)
    run = driver.run(node, branch="590", allow_branch_change=True)
    assert run.code == 1
    assert "partial upgrade" in run.printed
    assert "linux 6.16.8.arch1-1 (the repositories have 6.17.9.arch1-1)" in run.printed
    assert "glibc 2.41-1 (the repositories have 2.42-1)" in run.printed
    assert "pacman -Syu glibc linux nvidia-open nvidia-utils" in run.printed
    assert out(node, state) == before


def test_other_packages_are_no_partial_upgrade_either(node: Node, tmp_path: Path) -> None:
    off: dict[str, object] = {name: {"enabled": False} for name in ("driver", "toolkit", "containerd")}
    path = inventory_with(tmp_path, {node.name: {**off, "cuda": {"version": "13.0"}}})
    run = command("pyinfra", "-y", "--json", path, "deploys/gpu_node.py")
    assert run.code == 1
    assert "partial upgrade" in run.printed
    assert "glibc 2.41-1 (there is 2.42-1)" in run.printed
    assert lab_nodes.run(node, "pacman -Q cuda").returncode == 1


def test_an_upgrade_of_the_system_does_not_move_what_is_held(node: Node) -> None:
    # Without our file the driver and its kernel would come along.
    own = "pacman --config /root/loose.conf"
    out(node, f"grep -v gpunode {CONFIGURATION} > /root/loose.conf; {own} -Sy")
    loose = out(node, f"{own} -Sup --print-format '%n %v'")
    assert {"nvidia-open 590.48.01-7", "linux 6.17.9.arch1-1"} <= set(loose.splitlines())
    said = out(node, "pacman -Syu --noconfirm 2>&1")
    assert "nvidia-utils: ignoring package upgrade" in said
    assert out(node, "pacman -Q curl glibc linux nvidia-open nvidia-utils").splitlines() == [
        "curl 1.1-1", "glibc 2.42-1", "linux 6.16.8.arch1-1", "nvidia-open 580.95.05-14", "nvidia-utils 580.95.05-1",
    ]  # fmt: skip


def test_another_branch_is_refused_until_the_settings_allow_it(node: Node, driver: Driver) -> None:
    # Named, so that it comes though it is held; pacman leaves the driver as it is.
    out(node, "pacman -S --noconfirm linux")
    life.another_branch_is_refused_until_the_settings_allow_it(PACMAN, node, driver, branch="590")
    assert out(node, DRIVER) == "nvidia-open 590.48.01-7\nnvidia-utils 590.48.01-1"
    life.the_boot_brings_it(node, driver, "590.48.01", branch="590")


def test_a_module_that_does_not_load_is_rolled_back_from_saved_files(node: Node, driver: Driver) -> None:
    move_to(node, "2026-01")
    life.a_module_that_does_not_load_is_rolled_back(PACMAN, node, driver, "590.48.01")


def test_a_driver_that_could_not_come_back_is_not_changed(node: Node, driver: Driver) -> None:
    asked = {"version": BROKEN_VERSION, "allow_branch_change": True}
    life.a_driver_that_could_not_come_back_is_not_changed(PACMAN, node, driver, **asked)
    assert out(node, DRIVER) == "nvidia-open 590.48.01-7\nnvidia-utils 590.48.01-1"


def test_holds_that_are_not_wanted_any_more_leave_nothing_behind_but_somebody_else_s(
    node: Node, driver: Driver
) -> None:
    move_to(node, "2025-12")
    run = driver.run(node, version="590.48.01", hold=False)
    assert run.code == 0, run.printed
    assert out(node, f"cmp {CONFIGURATION} /root/before.conf; test ! -e {IGNORED} && pacman-conf IgnorePkg") == "bash"
