"""Remedies name the programs and packages of the node's own package manager, and of no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from gpunode.base import tables
from gpunode.base.comparison import RUN, FindingMessage
from gpunode.base.explained import load
from gpunode.base.messages import declared
from gpunode.components.cuda.state import CudaToolkits
from gpunode.node.preflight import refusals
from gpunode.node.reboot import obstacles, target
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.running_boot import RunningBoot
from tests.support.cases import CASES
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


# Findings without a reading of a node: of the connection, of a test machine and of recorded facts; and what a run ends
# with. Those of the cluster follow from what its API server answers.
NO_READING = {
    "machine.came-up", "node.answer-too-large", "node.command-hung", "node.connection", "node.connection-broken",
    "node.connection-silent", "node.recorded", "node.state",
}  # fmt: skip
# Declared for every component; nothing of these is written as a whole, or it is judged by what runs.
NEVER = {"kubelet.file", "node.file"}
CLUSTER = ("device-plugin.", "kubernetes.")


def findings() -> dict[str, FindingMessage]:
    """Return code -> declaration of each finding."""
    load()
    return {code: each for code, each in declared().items() if isinstance(each, FindingMessage)}


def test_for_every_kind_of_finding_a_case_follows_its_remedy() -> None:
    files = (CASES / "tests.support.remedies.followed").glob("*.yaml")
    followed = {case["arguments"]["code"] for file in files for case in yaml.safe_load(file.read_text())}
    of_nodes = {code for code in findings() if not code.startswith((*CLUSTER, "test."))}
    assert followed == of_nodes - NO_READING - NEVER - {"node.outdated-services"}


def test_of_the_cluster_and_of_what_cannot_be_read_no_remedy_is_the_run_of_a_node() -> None:
    unread = {code: each for code, each in findings().items() if code.startswith(CLUSTER) or code in NO_READING}
    assert unread and not [code for code, each in unread.items() if RUN in each.remedies]
