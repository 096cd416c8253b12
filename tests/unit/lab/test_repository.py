"""The local repositories: signed, complete, rebuilt only when something changed, and what their programs do."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpunode.lab import repository
from gpunode.lab.packages import container_runtime
from gpunode.lab.packages.archive import DEBIAN_OPEN_VERSIONS, DEBIAN_VERSIONS
from gpunode.lab.packages.cuda_driver import cuda_driver_packages
from gpunode.lab.packages.deb import Deb, Payload, build_deb
from gpunode.lab.packages.driver import BROKEN_VERSION, DRIVER_VERSIONS, TRANSITIONAL_VERSION
from gpunode.lab.packages.toolkit import toolkit_packages
from gpunode.lab.repository import Mirror, build_mirror
from gpunode.lab.world import apt
from gpunode.lab.world.deb_row import FIELDS
from gpunode.packages.driver_packages.names import driver_branch

pytestmark = pytest.mark.tier2

needs_tools = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("dpkg-deb", "apt-ftparchive", "gpg", "gpgv")),
    reason="needs dpkg-dev, apt-utils, gnupg and gpgv",
)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    with pytest.MonkeyPatch.context() as patch:
        # Docker's package needs apt's mirror; what is shown here does not.
        patch.setattr(repository, "_docker_package", lambda cache, report: None)
        yield build_mirror(tmp_path_factory.mktemp("cache"), lambda line: None)


@needs_tools
@pytest.mark.real
@pytest.mark.parametrize("key", ["gpunode-lab", "wrong"])
def test_every_repository_is_signed_by_the_key_of_the_fingerprint_alone(
    mirror: Mirror, tmp_path: Path, key: str
) -> None:
    ring = tmp_path / "ring.gpg"
    subprocess.run(["gpg", "--dearmor", "-o", ring, mirror.path / f"keys/{key}.asc"], check=True)
    releases = sorted(mirror.path.rglob("InRelease"))
    assert len(releases) == 6
    for release in releases:
        command = ["gpgv", "--status-fd", "1", "--keyring", str(ring), str(release)]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.returncode == 0) == (key != "wrong"), result.stderr
        assert (f"VALIDSIG {mirror.key_fingerprint}" in result.stdout) == (key != "wrong")
        # An altered index is not what was signed.
        for index in release.parent.glob("Packages"):
            assert hashlib.sha256(index.read_bytes()).hexdigest() in release.read_text()
    assert len(mirror.key_fingerprint) == 40
    assert mirror.key_fingerprint == mirror.key_fingerprint.upper()


@needs_tools
@pytest.mark.real
def test_all_versions_of_a_package_are_offered(mirror: Mirror) -> None:
    offered = built(mirror.path / "cuda/debian12/x86_64/Packages").keys()
    names = ("nvidia-open", "cuda-drivers", "nvidia-driver-cuda")
    assert {(name, f"{version}-1") for version in DRIVER_VERSIONS for name in names} <= offered
    assert ("cuda-toolkit-12-9", "12.9.1-1") in offered


@needs_tools
@pytest.mark.real
def test_second_build_changes_nothing_and_a_changed_package_rebuilds_in_place(
    mirror: Mirror,
) -> None:
    release = mirror.path / "cuda/debian12/x86_64/InRelease"
    said: list[str] = []
    before, inode = release.read_bytes(), mirror.path.stat().st_ino
    assert build_mirror(mirror.path.parent, said.append) == mirror
    assert said == ["package mirror: up to date"]
    assert release.read_bytes() == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repository, "cuda_packages", lambda: [Deb("cuda-toolkit-99-0", "99.0-1", "test")])
        again = build_mirror(mirror.path.parent, said.append)
    assert "cuda-toolkit-99-0" in (mirror.path / "cuda/debian12/x86_64/Packages").read_text()
    # Running nodes have this very folder mounted.
    assert again.path.stat().st_ino == inode
    assert again.key_fingerprint == mirror.key_fingerprint
    build_mirror(mirror.path.parent, said.append)


@needs_tools
@pytest.mark.real
def test_mirror_that_lost_a_part_is_made_whole(mirror: Mirror) -> None:
    (mirror.path / "toolkit").rename(mirror.path / "lost")
    assert repository._recorded(mirror.path) is None
    (mirror.path / "lost").rename(mirror.path / "toolkit")
    assert repository._recorded(mirror.path) is not None
    shutil.rmtree(mirror.path / "keys")
    assert build_mirror(mirror.path.parent, lambda line: None) == mirror
    assert (mirror.path / "keys").is_dir()


@needs_tools
@pytest.mark.real
def test_deb_holds_what_was_asked_and_is_built_once(tmp_path: Path) -> None:
    deb = Deb("lab-test", "1:2.0-1", "Test", depends="python3", files=(Payload("usr/bin/x", b"#!/bin/sh\n", 0o755),))
    built = build_deb(deb, tmp_path)
    stamp = built.stat().st_mtime_ns
    assert build_deb(deb, tmp_path) == built
    assert built.stat().st_mtime_ns == stamp
    listing = subprocess.run(["dpkg-deb", "-c", built], capture_output=True, text=True, check=True).stdout
    assert "-rwxr-xr-x root/root" in next(line for line in listing.splitlines() if line.endswith("./usr/bin/x"))
    assert deb.filename == "lab-test_2.0-1_amd64.deb"
    assert Deb("lab-test", "1:2.0-1", "Test", depends="perl").digest() != deb.digest()


@pytest.mark.pure
def test_a_transitional_package_pulls_another_branch() -> None:
    found = [package for package in cuda_driver_packages() if package.version.startswith(TRANSITIONAL_VERSION)]
    assert {package.name for package in found if package.depends} == {"nvidia-open", "cuda-drivers"}
    assert all("(>= 580)" in package.depends for package in found)


def built(index: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return (name, version) -> field -> text of what an index lists."""
    stanzas = (stanza for stanza in index.read_text().split("\n\n") if stanza.strip())
    return {(row["Package"], row["Version"]): row for row in map(_fields, stanzas)}


def _fields(stanza: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"[A-Z][A-Za-z-]+: ", line))


def relations(fields: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key in FIELDS.values()}


@needs_tools
@pytest.mark.real
def test_the_index_says_what_the_table_says(mirror: Mirror) -> None:
    folder = mirror.path / "cuda/debian12/x86_64"
    found = built(folder / "Packages")
    rows = {(row.name, row.version): row for row in apt.driver_packages("debian12")}
    of_driver = {each for each in found if not each[0].startswith(("cuda-toolkit", "datacenter-gpu-manager"))}
    known = {each for each in of_driver if not each[1].startswith(TRANSITIONAL_VERSION)}
    assert known <= set(rows) and len(known) > 400
    lacking = {name for name, version in set(rows) - known if driver_branch(version) is None}
    assert lacking <= {f"nvidia-driver-pinning-{branch}" for branch in (550, 615)}
    for each in known:
        expected = (rows[each].relations, rows[each].architecture)
        assert (relations(found[each]), found[each]["Architecture"]) == expected, each
    release = _fields((folder / "Release").read_text())
    assert {key: release[key] for key in apt.release_fields()} == apt.release_fields()


@needs_tools
@pytest.mark.real
@pytest.mark.parametrize("component", ["main", "contrib", "non-free", "non-free-firmware"])
def test_debian_s_archive_says_what_the_table_says(mirror: Mirror, component: str) -> None:
    index = mirror.path / "archive/debian/dists/bookworm" / component / "binary-amd64/Packages"
    found = {each: relations(row) for each, row in built(index).items() if each[0] != "gpunode-lab-main"}
    rows = apt.archive_packages("bookworm", DEBIAN_VERSIONS, DEBIAN_OPEN_VERSIONS)
    assert found == {(row.name, row.version): row.relations for row in rows if row.component == component}


@pytest.mark.pure
def test_fabric_manager_is_there_in_both_naming_schemes() -> None:
    offered = {(package.name, package.version) for package in cuda_driver_packages()}
    for version in DRIVER_VERSIONS:
        branch = version.split(".")[0]
        name = f"nvidia-fabricmanager-{branch}" if branch < "580" else "nvidia-fabricmanager"
        assert (name, f"{version}-1") in offered


@pytest.mark.pure
def test_one_version_alone_says_that_its_module_does_not_load() -> None:
    modules = [package for package in cuda_driver_packages() if package.name == "nvidia-kernel-open-dkms"]
    broken = [package.version for package in modules if "'loads=no'" in dict(package.scripts)["postinst"]]
    assert broken == [f"{BROKEN_VERSION}-1"]


@pytest.mark.pure
def test_flavours_exclude_each_other() -> None:
    conflicts = {package.name: package.conflicts for package in cuda_driver_packages()}
    assert conflicts["nvidia-kernel-open-dkms"] == "nvidia-kernel-dkms"
    assert conflicts["nvidia-kernel-dkms"] == "nvidia-kernel-open-dkms"


@pytest.mark.pure
def test_a_pinning_package_leaves_its_preferences_behind_as_the_real_one_does() -> None:
    pinning = [package for package in cuda_driver_packages() if package.name.startswith("nvidia-driver-pinning")]
    assert {package.name for package in pinning} >= {"nvidia-driver-pinning-580", "nvidia-driver-pinning-570"}
    # Not one for each version: of 580.95.05 there is none.
    assert "nvidia-driver-pinning-580.95.05" not in {package.name for package in pinning}
    for package in pinning:
        assert package.conffiles == ("etc/apt/preferences.d/nvidia-driver-pin",)


@pytest.mark.pure
def test_toolkit_says_its_version() -> None:
    files = {(each.version, file.path): file.content for each in toolkit_packages() for file in each.files}
    assert b"version 1.17.8" in files["1.17.8-1", "usr/bin/nvidia-ctk"]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("arguments", "bundle"),
    [
        (["--root", "/r", "create", "--bundle", "/b", "id"], Path("/b")),
        (["run", "-b", "/b", "id"], Path("/b")),
        (["create", "--bundle=/b", "id"], Path("/b")),
        (["run", "id"], Path()),
        (["delete", "id"], None),
    ],
)
def test_runtime_finds_the_bundle(arguments: list[str], bundle: Path | None) -> None:
    assert container_runtime.bundle_of(arguments) == bundle


@pytest.mark.simulated
def test_runtime_picks_devices_by_index_and_uuid(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    for minor, uuid in enumerate(("GPU-a", "GPU-b")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / f"0000:0{minor}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")

    def names(wanted: str) -> list[str]:
        return [path.name for path in container_runtime.device_paths(wanted, tmp_path)]

    assert names("all") == ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"]
    assert names("1") == names("GPU-b") == ["nvidia1", "nvidiactl", "nvidia-uvm"]
    with pytest.raises(ValueError, match="7: unknown device"):
        names("0,7")
    (tmp_path / "dev/nvidiactl").unlink()
    with pytest.raises(ValueError, match="driver not loaded"):
        names("all")


@pytest.mark.pure
def test_runtime_tells_containerd_why_it_refuses(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    (tmp_path / "config.json").write_text("{")
    assert container_runtime.main(["--log", str(log), "create", "--bundle", str(tmp_path), "id"]) == 1
    assert json.loads(log.read_text())["level"] == "error"


@pytest.mark.pure
def test_runtime_adds_devices_and_the_right_to_use_them() -> None:
    config = json.loads('{"linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}}}')
    container_runtime.add_devices(config, [Path("/dev/null")])
    assert [device["path"] for device in config["linux"]["devices"]] == ["/dev/null"]
    rules = config["linux"]["resources"]["devices"]
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert rules[1] == {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}
