"""What the lab's repositories of Docker and of the container toolkit say, against the tables of the world."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpunode.components.runtimes.toolkit.state import PACKAGES
from gpunode.lab.packages import containerd, docker
from gpunode.lab.packages.deb import build_deb, pack
from gpunode.lab.packages.toolkit import packages_of, toolkit_packages
from gpunode.lab.world.deb_row import FIELDS, deb_row
from gpunode.lab.world.docker import debian_packages, docker_packages, docker_version, listed_versions
from gpunode.lab.world.toolkit import cdi_refresh, full_version, lab_versions, packaged_versions, toolkit_row

pytestmark = pytest.mark.tier2
needs_tools = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("dpkg-deb", "apt-ftparchive")), reason="needs dpkg-dev and apt-utils"
)


def index(folder: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return what apt-ftparchive says of a folder's packages: (name, version) -> field -> text."""
    shown = subprocess.run(["apt-ftparchive", "packages", "."], cwd=folder, capture_output=True, text=True, check=True)
    found = {}
    for block in shown.stdout.strip().split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][A-Za-z0-9-]*): (.*)$", block, re.MULTILINE))
        found[fields["Package"], fields["Version"]] = fields
    return found


def of_index(fields: dict[str, str]) -> dict[str, str]:
    return {key: text for key, text in fields.items() if key in FIELDS.values()}


@needs_tools
@pytest.mark.real
def test_docker_s_packages_say_what_the_table_says(tmp_path: Path) -> None:
    expected = {}
    for name in docker.PACKAGES:
        version = docker_version(name, "26.1.5")
        (tmp_path / name / "usr").mkdir(parents=True)
        docker.write_control(name, version, tmp_path / name)
        pack(tmp_path / name, tmp_path / f"{name}.deb", name)
        expected[name, version] = docker_packages()[name].control(version)
    (tmp_path / "tree").mkdir()
    containerd.write_control(tmp_path / "tree", "1.6.20~ds1-1+deb12u3")
    pack(tmp_path / "tree", tmp_path / "containerd.io.deb", "containerd.io")
    expected["containerd.io", "1.6.20-1"] = docker_packages()["containerd.io"].control("1.6.20-1")
    found = index(tmp_path)
    assert {key: of_index(fields) for key, fields in found.items()} == expected
    # What the table itself says of them, and not the fixture's word for it.
    ce = found["docker-ce", "5:26.1.5-1~debian.12~bookworm"]
    assert ce["Pre-Depends"] == "init-system-helpers (>= 1.54~)" and ce["Conflicts"] == "docker.io"
    assert found["containerd.io", "1.6.20-1"]["Conflicts"] == "containerd, runc"


@needs_tools
@pytest.mark.real
def test_the_toolkit_s_packages_say_what_the_table_says(tmp_path: Path) -> None:
    for package in toolkit_packages():
        shutil.copyfile(build_deb(package, tmp_path / "cache"), tmp_path / package.filename)
    found = index(tmp_path)
    expected = {
        (name, full_version(version)): toolkit_row(name, version).control(full_version(version))
        for version in lab_versions()
        for name in PACKAGES
    }
    assert {key: of_index(fields) for key, fields in found.items() if key in expected} == expected
    assert set(expected) == set(found)
    for version, bound in (("1.17.8", ">= 1.17.8-1"), ("1.18.0", "= 1.18.0-1"), ("1.20.0", "= 1.20.0-1")):
        assert f"libnvidia-container-tools ({bound})" in found["nvidia-container-toolkit", f"{version}-1"]["Depends"]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("version", "folder", "conffiles"),
    [("1.17.8", None, 0), ("1.19.1", "etc/systemd/system", 3), ("1.20.2", "lib/systemd/system", 1)],
)
def test_the_units_of_nvidia_cdi_refresh_are_where_each_version_has_them(
    version: str, folder: str | None, conffiles: int, tmp_path: Path
) -> None:
    refresh = "systemd/nvidia-cdi-refresh"
    more = ("systemd/10-container-engines.conf", "udev/99-nvidia-cdi-refresh.rules")
    programs = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime-hook")
    for name in (*programs, *(f"{refresh}.{kind}" for kind in ("service", "path", "env")), *more):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (base,) = [deb for deb in packages_of(version, (tmp_path, tmp_path)) if deb.name == PACKAGES[1]]
    units = {str(Path(file.path).parent) for file in base.files if file.path.endswith((".service", ".path"))}
    assert units == ({folder} if folder else set())
    assert len(base.conffiles) == conffiles
    assert len([file for file in base.files if file.path.endswith((".conf", ".rules"))]) == 2 * (version == "1.20.2")
    assert (cdi_refresh(version) is None) == (folder is None)


@pytest.mark.pure
def test_versions_have_the_shape_that_was_seen() -> None:
    assert listed_versions("containerd.io")[0] == "1.7.27-1"
    shape = re.compile(r"5:\d+\.\d+\.\d+(-1~(debian|ubuntu)\.[\d.]+~[a-z]+)?")
    assert all(shape.fullmatch(version) for version in listed_versions("docker-ce"))
    assert (packaged_versions()[-1], len(packaged_versions())) == ("1.20.2", 35)
    assert set(lab_versions()) <= set(packaged_versions())


@pytest.mark.pure
def test_a_row_says_where_it_is_from_and_what_nobody_knows() -> None:
    for row in (*docker_packages().values(), *debian_packages("bookworm").values()):
        assert row.source and row.confidence
        assert not [name for name in row.unknown if row.relations[name]], "known and unknown at once"
    for confidence, more in (("sure", {}), ("log", {"lab": {"instead": {"a": "b"}}})):
        with pytest.raises(ValueError, match=r"^x: "):
            deb_row({"name": "x", "confidence": confidence, "source": "x", **more})
