"""The local repositories: signed, complete, rebuilt only when something changed, and what their programs do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpunode.lab import repository
from gpunode.lab.packages import container_runtime
from gpunode.lab.packages.archive import DEBIAN_OPEN_VERSIONS, DEBIAN_VERSIONS
from gpunode.lab.packages.cuda_driver import cuda_driver_packages
from gpunode.lab.packages.deb import Deb, Payload, build_deb
from gpunode.lab.packages.driver import BROKEN_VERSION, DRIVER_VERSIONS, TRANSITIONAL_VERSION
from gpunode.lab.packages.toolkit import packages_of, toolkit_packages
from gpunode.lab.repository import Mirror, build_mirror
from gpunode.lab.world import apt
from gpunode.lab.world.deb_row import FIELDS
from gpunode.packages.driver_packages import driver_branch

pytestmark = pytest.mark.tier2

needs_tools = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("dpkg-deb", "apt-ftparchive", "gpg", "gpgv")),
    reason="needs dpkg-dev, apt-utils, gnupg and gpgv",
)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Mirror:
    with pytest.MonkeyPatch.context() as patch:
        # Docker's package needs apt's mirror; what is shown here does not.
        patch.setattr(repository, "_docker_package", lambda cache, report: None)
        return build_mirror(tmp_path_factory.mktemp("cache"), lambda line: None)


@needs_tools
@pytest.mark.real
def test_every_repository_is_signed_by_the_key_of_the_fingerprint(mirror: Mirror, tmp_path: Path) -> None:
    ring = tmp_path / "ring.gpg"
    subprocess.run(["gpg", "--dearmor", "-o", ring, mirror.path / "keys/gpunode-lab.asc"], check=True)
    releases = sorted(mirror.path.rglob("InRelease"))
    assert len(releases) == 6
    for release in releases:
        command = ["gpgv", "--status-fd", "1", "--keyring", str(ring), str(release)]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert f"VALIDSIG {mirror.key_fingerprint}" in result.stdout
    assert len(mirror.key_fingerprint) == 40
    assert mirror.key_fingerprint == mirror.key_fingerprint.upper()


@needs_tools
@pytest.mark.real
def test_wrong_key_does_not_fit(mirror: Mirror, tmp_path: Path) -> None:
    ring = tmp_path / "ring.gpg"
    subprocess.run(["gpg", "--dearmor", "-o", ring, mirror.path / "keys/wrong.asc"], check=True)
    release = mirror.path / "cuda/debian12/x86_64/InRelease"
    assert subprocess.run(["gpgv", "--keyring", str(ring), str(release)], capture_output=True).returncode != 0


@needs_tools
@pytest.mark.real
def test_altered_index_is_not_what_was_signed(mirror: Mirror) -> None:
    folder = mirror.path / "cuda/debian12/x86_64"
    digest = subprocess.run(["sha256sum", folder / "Packages"], capture_output=True, text=True, check=True)
    assert digest.stdout.split()[0] in (folder / "InRelease").read_text()


@needs_tools
@pytest.mark.real
def test_all_versions_of_a_package_are_offered(mirror: Mirror) -> None:
    index = (mirror.path / "cuda/debian12/x86_64/Packages").read_text()
    offered = {
        tuple(line.split(": ")[1] for line in block.splitlines() if line.startswith(("Package: ", "Version: ")))
        for block in index.split("\n\n")
    }
    for version in DRIVER_VERSIONS:
        for name in ("nvidia-open", "cuda-drivers", "nvidia-driver-cuda"):
            assert (name, f"{version}-1") in offered
    assert ("cuda-toolkit-12-9", "12.9.1-1") in offered


@needs_tools
@pytest.mark.real
def test_second_build_changes_nothing_and_a_changed_package_rebuilds_in_place(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "_docker_package", lambda cache, report: None)
    release = mirror.path / "cuda/debian12/x86_64/InRelease"
    said: list[str] = []
    before, inode = release.read_bytes(), mirror.path.stat().st_ino
    assert build_mirror(mirror.path.parent, said.append) == mirror
    assert said == ["package mirror: up to date"]
    assert release.read_bytes() == before
    monkeypatch.setattr(repository, "cuda_packages", lambda: [Deb("cuda-toolkit-99-0", "99.0-1", "test")])
    again = build_mirror(mirror.path.parent, said.append)
    assert "cuda-toolkit-99-0" in (mirror.path / "cuda/debian12/x86_64/Packages").read_text()
    # Running nodes have this very folder mounted.
    assert again.path.stat().st_ino == inode
    assert again.key_fingerprint == mirror.key_fingerprint
    monkeypatch.undo()
    monkeypatch.setattr(repository, "_docker_package", lambda cache, report: None)
    build_mirror(mirror.path.parent, said.append)


@needs_tools
@pytest.mark.real
def test_mirror_that_lost_a_part_is_made_whole(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_docker_package", lambda cache, report: None)
    for lost in ("toolkit", "keys"):
        shutil.rmtree(mirror.path / lost)
        assert build_mirror(mirror.path.parent, lambda line: None) == mirror
        assert (mirror.path / lost).is_dir()


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


@needs_tools
@pytest.mark.real
def test_the_index_says_what_the_table_says(mirror: Mirror) -> None:
    folder = mirror.path / "cuda/debian12/x86_64"
    built = {(row["Package"], row["Version"]): row for row in map(_fields, _stanzas(folder / "Packages"))}
    rows = {(row.name, row.version): row for row in apt.driver_packages("debian12")}
    of_driver = {each for each in built if not each[0].startswith(("cuda-toolkit", "datacenter-gpu-manager"))}
    known = {each for each in of_driver if not each[1].startswith(TRANSITIONAL_VERSION)}
    assert known <= set(rows) and len(known) > 400
    lacking = {name for name, version in set(rows) - known if driver_branch(version) is None}
    assert lacking <= {f"nvidia-driver-pinning-{branch}" for branch in (550, 615)}
    relations = set(FIELDS.values())
    for each in known:
        said = {key: value for key, value in built[each].items() if key in relations}
        assert (said, built[each]["Architecture"]) == (rows[each].relations, rows[each].architecture), each
    release = _fields((folder / "Release").read_text())
    assert {key: release[key] for key in apt.release_fields()} == apt.release_fields()


@needs_tools
@pytest.mark.real
def test_debian_s_archive_says_what_the_table_says(mirror: Mirror) -> None:
    suite = mirror.path / "archive/debian/dists/bookworm"
    rows = {(row.name, row.version): row for row in
            apt.archive_packages("bookworm", DEBIAN_VERSIONS, DEBIAN_OPEN_VERSIONS)}  # fmt: skip
    for component in ("main", "contrib", "non-free", "non-free-firmware"):
        built = {(row["Package"], row["Version"]): row
                 for row in map(_fields, _stanzas(suite / component / "binary-amd64/Packages"))}  # fmt: skip
        built.pop(("gpunode-lab-main", "1"), None)
        expected = {each for each, row in rows.items() if row.component == component}
        assert set(built) == expected
        relations = set(FIELDS.values())
        for each in expected:
            said = {key: value for key, value in built[each].items() if key in relations}
            assert said == rows[each].relations, each


def _stanzas(index: Path) -> list[str]:
    return [stanza for stanza in index.read_text().split("\n\n") if stanza.strip()]


def _fields(stanza: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"[A-Z][A-Za-z-]+: ", line))


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
    files = {
        (package.version, file.path): file.content.decode() for package in toolkit_packages() for file in package.files
    }
    assert "NVIDIA Container Toolkit CLI version 1.17.8" in files["1.17.8-1", "usr/bin/nvidia-ctk"]


@pytest.mark.tier2
def test_the_toolkit_s_own_units_come_back_with_an_older_version(tmp_path: Path) -> None:
    """dpkg brings no file back that a person has removed: 1.20 takes those of 1.18 away by dpkg's own helper."""
    root = tmp_path / "root"
    for folder in ("updates", "info", "triggers"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    seen = []
    for version in ("1.18.0", "1.20.0", "1.18.0"):
        whole = next(deb for deb in packages_of(version) if deb.name == "nvidia-container-toolkit-base")
        # What else it does is for a node's own root.
        scripts = tuple((name, text.partition('[ "$1" = configure ]')[0]) for name, text in whole.scripts)
        deb = build_deb(replace(whole, scripts=scripts), tmp_path / "packages")
        subprocess.run(
            ["dpkg", f"--root={root}", "--force-script-chrootless,depends,not-root,bad-path,confold", "-i", deb],
            check=True, capture_output=True,
        )  # fmt: skip
        seen.append(sorted(str(path.parent.relative_to(root)) for path in root.rglob("nvidia-cdi-refresh.service")))
    assert seen == [["etc/systemd/system"], ["lib/systemd/system"], ["etc/systemd/system"]]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ([], None),
        (["NVIDIA_VISIBLE_DEVICES="], None),
        (["NVIDIA_VISIBLE_DEVICES=void"], None),
        (["NVIDIA_VISIBLE_DEVICES=none"], None),
        (["NVIDIA_VISIBLE_DEVICES=all"], "all"),
        (["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0"], "0"),
    ],
)
def test_runtime_reads_what_the_container_asks_for(env: list[str], wanted: str | None) -> None:
    assert container_runtime.visible_devices({"process": {"env": env}}) == wanted


@pytest.mark.pure
@pytest.mark.parametrize(
    ("mount", "mode", "version", "wanted"),
    [
        ("all", "auto", "1.17.9", "all"),
        ("all", "cdi", "1.18.0", "all"),
        ("all", "cdi", "1.17.9", None),
        ("cdi/nvidia.com/gpu/all", "cdi", "1.17.9", "all"),
        ("cdi/nvidia.com/gpu/all", "cdi", "1.20.0", "all"),
    ],
)
def test_mode_cdi_takes_a_mount_of_a_plain_name_from_1_18_on(
    mount: str, mode: str, version: str, wanted: str | None
) -> None:
    config = {"mounts": [{"destination": f"/var/run/nvidia-container-devices/{mount}"}]}
    settings = {
        "accept-nvidia-visible-devices-as-volume-mounts": True,
        "accept-nvidia-visible-devices-envvar-when-unprivileged": False,
        "nvidia-container-runtime": {"mode": mode},
    }
    assert container_runtime.visible_devices(config, settings, version) == wanted


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
