"""NVIDIA's .run files: names by architecture, options by version, and what a node has of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpunode.base import tables
from gpunode.components import runfile
from gpunode.facts.driver import Driver as DriverFact
from gpunode.lab.packages.nvidia_installer import parsed
from gpunode.lab.packages.runfile import RUNFILE_VERSIONS

pytestmark = pytest.mark.pure


def test_every_architecture_of_a_supported_distribution_has_a_driver_and_a_cuda_file() -> None:
    known = {name for row in tables.distributions() for name in row.architectures}
    assert known == set(tables.driver_runfile().architectures) == set(tables.cuda_runfile().platforms)


@pytest.mark.parametrize("version", [*RUNFILE_VERSIONS, "515.105.01", "470.82.01", "545.29.06", "550.40.07"])
@pytest.mark.parametrize("dkms", [True, False])
def test_the_installer_of_each_version_knows_all_that_it_is_told(version: str, dkms: bool) -> None:
    for flavour in ("open", "proprietary"):
        told = list(runfile.install_arguments(version, flavour, dkms))
        assert parsed(told, version), told
    assert parsed([*runfile.uninstall_arguments(version)], version)


def test_a_driver_s_log_names_a_cause_and_its_remedy_once() -> None:
    patterns = [pattern for pattern, _ in runfile.CAUSES]
    assert len(patterns) == len(set(patterns))
    assert all("'" not in pattern for pattern in patterns)


def test_the_versions_that_dkms_has_sources_of_are_read(tmp_path: Path) -> None:
    (tmp_path / "nvidia/580.95.05/source").mkdir(parents=True)
    (tmp_path / "nvidia/550.54.15").mkdir()
    text = DriverFact().command().replace("/var/lib/dkms", str(tmp_path))
    said = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False).stdout
    assert [line for line in said.splitlines() if line.startswith("dkms=")] == ["dkms=580.95.05"]
