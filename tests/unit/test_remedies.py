"""Remedies name the programs and packages of the node's own package manager, and of no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.components.cuda.state import CudaToolkits
from gpunode.node.preflight import refusals
from gpunode.node.reboot import obstacles, target
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.running_boot import RunningBoot
from tests.support.preflight import DEBIAN, NO_DRIVER, OPEN_550, machine
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

WORDS = {
    "apt": r"apt|apt-\w+|dpkg\S*|linux-headers\S*|linux-image\S*|update-initramfs",
    "dnf": r"dnf|yum|rpm|kernel-devel\S*|dracut|EPEL",
    "dnf5": r"dnf|rpm|kernel-devel\S*|dracut",
    "zypper": r"zypper|rpm|kernel-default-devel\S*|dracut",
    "pacman": r"pacman|mkinitcpio|linux-zen-headers",
}
SHA = "0123456789abcdef" * 4
RUNFILE: dict[str, Any] = {"source": "runfile", "version": "580.95.05", "runfile_sha256": SHA}
KERNEL = "6.1.0-1"


def systems() -> list[OperatingSystem]:
    """Return one operating system of each family that the table has."""
    found: dict[str, OperatingSystem] = {}
    for row in tables.distributions():
        found.setdefault(row.family, replace(DEBIAN, id=row.id, version_id=row.version, name=row.name))
    return list(found.values())


def family_of(system: OperatingSystem) -> str:
    row = tables.distribution(system.id, system.version_id)
    assert row is not None
    return row.family


def foreign(text: str, family: str) -> list[str]:
    """Return the words of other families in a text."""
    own = re.compile(rf"({WORDS[family]})")
    every = re.compile(rf"(?<![\w/.-])({'|'.join(WORDS.values())})(?![\w-])")
    return [match[0] for match in every.finditer(text) if not own.fullmatch(match[0])]


def told(system: OperatingSystem) -> Iterator[tuple[str, str]]:
    """Yield (what it is about, text) of what a person is told of a node on which much is wrong."""
    bare = Boot(KERNEL, KERNEL, "newest", (Kernel(KERNEL, False, base="linux-zen"),))
    ready = replace(bare, kernels=(Kernel(KERNEL, True, base="linux-zen"),), build_tools=("gcc", "make", "dkms"))
    packages = replace(OPEN_550, packages=(("nvidia-open", "550.54.15-1"),))
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "no tools": ({"driver": RUNFILE}, {"boot": bare}),
        "no headers for packages": ({"driver": {"branch": "580"}}, {"boot": bare}),
        "runfile over packages": ({"driver": RUNFILE}, {"boot": ready, "driver": packages}),
        "packages over a runfile": ({"driver": {"branch": "550"}}, {"driver": replace(OPEN_550, runfile=True)}),
        "both ways at once": (
            {"driver": {"branch": "550", "migrate": True}}, {"driver": replace(packages, runfile=True)},
        ),
        "CUDA by runfile over packages": (
            {"cuda": {"source": "runfile", "version": "12.9", "release": "12.9.1", "runfile_sha256": SHA}},
            {"cuda": CudaToolkits(("12.9",), None, None, False)},
        ),
        "a transitional package": (
            {"driver": {"branch": "570"}}, {"candidates": (("nvidia-open-570", "580.95.05-1"),)},
        ),
    }  # fmt: skip
    if tables.driver_source("cuda-repository", system.id) is None:
        del cases["a transitional package"]  # Such are NVIDIA's repository's alone.
    for name, (data, more) in cases.items():
        settings = settings_from({"containerd": {"enabled": False}, **data})
        found = refusals(settings, machine(**{"system": system, "driver": NO_DRIVER, "boot": ready, **more}))
        assert found, name
        yield from ((name, str(refusal)) for refusal in found)
    running = RunningBoot("boot", 1, packaging=True, tried=target(GOOD.driver))
    for obstacle in obstacles(GOOD.boot, GOOD.driver, system, running):
        yield "reboot", obstacle


@pytest.mark.parametrize("system", systems(), ids=family_of)
def test_a_remedy_names_the_family_s_own_package_manager_and_no_other(system: OperatingSystem) -> None:
    family, said = family_of(system), dict[str, str]()
    for name, text in told(system):
        assert foreign(text, family) == [], (name, text)
        said[name] = f"{said.get(name, '')}\n{text}"
    own = re.compile(rf"(?<![\w/.-])({WORDS[family]})")
    for name in ("no headers for packages", "runfile over packages", "CUDA by runfile over packages", "reboot"):
        assert own.search(said[name]), said[name]
