"""Arch's packages: what the .deb ones hold under Arch's names, and a signed repository that the real pacman reads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.cache import cache_dir
from lab.families import PACMAN
from lab.image import tools
from lab.packages.driver import BROKEN_VERSION, DRIVER_VERSIONS
from lab.packages.pkg import Pkg
from lab.pacman_repository import ARCHIVE, EXTRA, build_pacman_mirror, fixture_pkgs
from lab.signing import key_file, public_key
from lab.toolbox import run_in


def package(name: str, version: str = "580.95.05-1") -> Pkg:
    return next(item for item in fixture_pkgs() if (item.name, item.version) == (name, version))


@pytest.mark.parametrize(
    ("name", "kernel", "license"),
    [("nvidia", "linux", "NVIDIA"), ("nvidia-lts", "linux-lts", "NVIDIA"), ("nvidia-dkms", "dkms", "NVIDIA"),
     ("nvidia-open", "linux", "Dual MIT/GPL"), ("nvidia-open-dkms", "dkms", "Dual MIT/GPL")],
)  # fmt: skip
def test_there_is_a_module_package_for_each_kernel_and_no_two_of_them_go_together(
    name: str, kernel: str, license: str
) -> None:
    module = package(name)
    assert module.depends == ("nvidia-utils=580.95.05", kernel)
    assert f"license={license}" in module.install()
    assert len(module.conflicts) == 4
    assert name not in module.conflicts


def test_the_userland_is_one_package_with_library_and_nvidia_smi() -> None:
    paths = {file.path for file in package("nvidia-utils").files}
    assert {"usr/lib/libnvidia-ml.so.580.95.05", "usr/bin/nvidia-smi"} <= paths
    assert "usr/lib/systemd/system/nvidia-persistenced.service" in paths


def test_cuda_is_below_opt() -> None:
    assert {file.path for file in package("cuda", "12.9.1-1").files} == {"opt/cuda/bin/nvcc", "opt/cuda/version.json"}


def test_scripts_are_functions_that_sh_takes_and_dpkg_s_words_are_given() -> None:
    text = package("nvidia").install()
    assert subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True).stderr == ""
    for function, word in (("post_install", "configure"), ("post_upgrade", "configure"), ("pre_remove", "remove")):
        assert f"{function}() {{\nset -- {word}\n" in text


CANNOT = os.geteuid() != 0 or shutil.which("podman") is None


@pytest.fixture(scope="module")
def mirror() -> Path:
    folder = cache_dir() / "mirror"
    folder.mkdir(exist_ok=True)
    build_pacman_mirror(cache_dir(), folder, tools(print, PACMAN), print)
    return folder / "pacman"


@pytest.mark.node
@pytest.mark.real
@pytest.mark.skipif(CANNOT, reason="needs root and podman")
def test_the_repository_has_one_version_of_each_and_the_archive_the_others(mirror: Path) -> None:
    def driver(folder: str) -> set[str]:
        return {path.name.split("-")[1] for path in (mirror / folder).glob("nvidia-[0-9]*.zst")}

    assert driver(EXTRA) == {DRIVER_VERSIONS[-1]}
    assert driver(ARCHIVE) == {*DRIVER_VERSIONS, BROKEN_VERSION} - {DRIVER_VERSIONS[-1]}
    assert all(path.with_name(f"{path.name}.sig").exists() for path in mirror.rglob("*.zst"))


READ = """
mkdir -p /etc/pacman.d
pacman-key --init > /dev/null 2>&1; pacman-key --add /work/repository.asc > /dev/null 2>&1
fingerprint=$(gpg --batch --show-keys --with-colons "/work/$key.asc" | awk -F: '$1 == "fpr" {print $10; exit}')
pacman-key --add "/work/$key.asc" > /dev/null 2>&1; pacman-key --lsign-key "$fingerprint" > /dev/null 2>&1
printf '[options]\\nArchitecture = x86_64\\nSigLevel = Required\\n[extra]\\nServer = file:///work/extra/os/x86_64\\n' \\
  > /etc/pacman.conf
if [ -n "$harm" ]; then echo x >> /work/extra/os/x86_64/extra.db; fi
pacman -Sy --noconfirm 2>&1 && pacman -Sl extra
"""


@pytest.mark.node
@pytest.mark.real
@pytest.mark.skipif(CANNOT, reason="needs root and podman")
@pytest.mark.parametrize(
    ("key", "harm", "good"), [("repository", "", True), ("wrong", "", False), ("repository", "yes", False)]
)
def test_the_real_pacman_reads_it_by_the_right_key_alone_and_as_it_was_signed(
    mirror: Path, tmp_path: Path, key: str, harm: str, good: bool
) -> None:
    work = tmp_path / "work"
    shutil.copytree(mirror / EXTRA, work / EXTRA)
    for name in ("repository", "wrong"):
        (work / f"{name}.asc").write_bytes(public_key(key_file(cache_dir() / "keys", name))[0])
    done = run_in(tools(print, PACMAN), work, READ, key=key, harm=harm)
    assert (done.returncode == 0) == good, done.stdout + done.stderr
    if good:
        assert f"extra nvidia {DRIVER_VERSIONS[-1]}-1" in done.stdout
    else:
        assert "signature" in done.stdout
