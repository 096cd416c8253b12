"""DKMS at work: what it builds, how far it is, and what becomes of the node when it cannot build.

Real: dkms, gcc, make, linux-headers of Debian, and the module that comes of them (nvidia-current; it drives nothing and
says SIMULATED). SIMULATED: GPUs, and /boot/vmlinuz-*: a container has no kernel of its own, so that nothing is loaded.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from gpunode.lab.packages.archive import BUILT_VERSION, UNBUILDABLE_VERSION
from tests.molecule.apt_distro.archive_nodes import SET, Driver, debian_with_dkms, ended
from tests.molecule.conftest import LAB, command, out, third_tier, tried_before

pytestmark = pytest.mark.life

# Debian's smallest kernel; its metapackage tells the release that there is today.
RELEASE = """apt-get update -q > /dev/null
apt-cache depends linux-headers-cloud-amd64 | sed -n 's/.*Depends: linux-headers-//p'"""
NEXT = "6.1.0-9999-cloud-amd64"
ASKED: dict[str, Any] = {"version": BUILT_VERSION, "flavour": "proprietary", "kernel_headers": "install"}


def with_kernel(node: Node) -> str:
    """Give a node a kernel's image, as far as a boot loader would look; return the release."""
    release = out(node, RELEASE)
    out(node, f"echo SIMULATED > /boot/vmlinuz-{release}")
    return release


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node with GPUs, a kernel to build for, and the real Debian's dkms, gcc and headers."""
    fresh = debian_with_dkms(lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="h100-80gb", gpus=2))
    with_kernel(fresh)
    return fresh


@pytest.fixture
def release(node: Node) -> str:
    return out(node, "ls /boot | sed -n 's/^vmlinuz-//p' | head -n 1")


@pytest.fixture
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("inventory"))


def builds(node: Node, driver: Driver) -> list[tuple[str, str, str | None, str]]:
    """Return what the fact reads of DKMS: module, version, kernel, state."""
    done = command("pyinfra", "--json", driver.inventory(node), "fact", "facts.system.Boot")
    assert done.code == 0, done.printed
    (boot,) = _answers(done.payload)
    return [(row["module"], row["version"], row["kernel"], row["state"]) for row in boot["dkms"]]


def _answers(payload: Any) -> list[Any]:
    """Return the dictionaries of a fact's answer that tell of DKMS, wherever pyinfra puts them."""
    if isinstance(payload, dict):
        return [payload] if "dkms" in payload else [item for value in payload.values() for item in _answers(value)]
    return [item for value in payload for item in _answers(value)] if isinstance(payload, list) else []


def test_the_module_is_built_for_the_kernel_that_boots_next_and_twice_is_nothing(
    node: Node, driver: Driver, release: str
) -> None:
    first = driver.run(node, **ASKED)
    assert first.code == 0, first.printed
    # Nothing was built for the host's kernel, which runs: the module waits for the boot.
    pending = f"reboot pending: loaded module is none, {BUILT_VERSION} with kernel {release} is to come"
    assert pending in first.stderr, first.printed
    assert out(node, f"modinfo -k {release} -F version nvidia-current") == BUILT_VERSION
    assert f"nvidia-current/{BUILT_VERSION}, {release}, x86_64: installed" in out(node, "dkms status")
    second = driver.run(node, **ASKED)
    assert (second.code, second.operations("success")) == (0, {}), second.printed


def test_facts_tell_how_far_dkms_is_and_for_which_kernel(node: Node, driver: Driver, release: str) -> None:
    module = f"nvidia-current/{BUILT_VERSION}"
    added = ("nvidia-current", BUILT_VERSION, None, "added")
    assert builds(node, driver) == [added, ("nvidia-current", BUILT_VERSION, release, "installed")]
    out(node, f"dkms uninstall {module} -k {release}")
    assert builds(node, driver) == [added, ("nvidia-current", BUILT_VERSION, release, "built")]
    out(node, f"dkms unbuild {module} -k {release}")
    assert builds(node, driver) == [added]
    drift = driver.drift(node, **ASKED)
    assert drift.code == 2
    assert "module on disk" in drift.printed
    out(node, f"dkms install {module} -k {release}")
    assert driver.drift(node, **ASKED).code == 2, "a reboot is pending"


def test_a_module_that_does_not_build_is_told_with_its_log_s_end_and_the_one_of_before_comes_back(
    node: Node, driver: Driver, release: str
) -> None:
    before = out(node, SET)
    failed = driver.run(node, **{**ASKED, "version": UNBUILDABLE_VERSION})
    assert failed.code == 1
    log = f"/var/lib/dkms/nvidia-current/{UNBUILDABLE_VERSION}/build/make.log"
    assert f"{log}:" in failed.printed
    assert "#error SIMULATED" in failed.printed
    assert out(node, SET) == before
    assert out(node, f"modinfo -k {release} -F version nvidia-current") == BUILT_VERSION
    again = driver.run(node, **{**ASKED, "version": UNBUILDABLE_VERSION})
    assert tried_before(again, "driver")
    settled = driver.run(node, **ASKED)
    assert settled.code == 0, settled.printed


def test_a_next_kernel_without_headers_is_refused_before_anybody_reboots_into_it(node: Node, driver: Driver) -> None:
    out(node, f"echo SIMULATED > /boot/vmlinuz-{NEXT}")
    refused = driver.run(node, **{**ASKED, "kernel_headers": "require"})
    assert refused.code == 1
    assert f"kernel {NEXT} boots next" in refused.printed
    assert f"install linux-headers-{NEXT}, or set driver.kernel_headers = 'install'" in refused.printed
    drift = driver.drift(node, **ASKED)
    assert drift.code == 2 and "module on disk" in drift.printed
    # There are no such headers: the second gate says so, and nothing is changed.
    lacking = driver.run(node, **ASKED)
    assert lacking.code == 1
    assert f"linux-headers-{NEXT}" in lacking.printed
    out(node, f"rm /boot/vmlinuz-{NEXT}")


# It compiles Debian's whole driver: up to a quarter of an hour.
@third_tier
def test_debian_s_real_driver_is_built_for_debian_s_real_headers(driver: Driver) -> None:
    bare = lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpus=0)
    release = with_kernel(bare)
    asked: dict[str, Any] = {"flavour": "proprietary", "without_gpu": "install", "kernel_headers": "install"}
    run = driver.run(bare, **asked)
    assert ended(run, "Error") == ["Verify the node"], run.printed
    assert "GPU is no GPU" in run.printed
    version = out(bare, "dpkg-query -W -f '${Version}' nvidia-kernel-dkms").split("-")[0]
    assert ("nvidia-current", version, release, "installed") in builds(bare, driver)
    modules = out(bare, f"ls /lib/modules/{release}/updates/dkms").split()
    assert {f"nvidia-current{part}.ko" for part in ("", "-drm", "-modeset", "-peermem", "-uvm")} == set(modules)
    assert out(bare, f"modinfo -k {release} -F license nvidia-current") == "NVIDIA"
    again = driver.run(bare, **asked)
    assert (again.code, ended(again, "Success")) == (1, []), again.printed
