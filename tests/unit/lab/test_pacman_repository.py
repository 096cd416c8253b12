"""Arch's packages: what the .deb ones hold under Arch's names, and a signed repository that the real pacman reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from gpunode.lab.cache import cache_dir
from gpunode.lab.families import PACMAN
from gpunode.lab.image import tools
from gpunode.lab.packages.pkg import Pkg
from gpunode.lab.pacman_repository import DAYS, LTS_RELEASE, TODAY, build_pacman_mirror, fixture_pkgs
from gpunode.lab.signing import key_file, public_key
from gpunode.lab.toolbox import run_in
from gpunode.lab.world.arch import RELATIONS, arch_packages, arch_rows

EXTRA, LATE = "extra/os/x86_64", "2025-12"


def package(name: str, day: str = TODAY) -> Pkg:
    return next(item for item in fixture_pkgs(day) if item.name == name)


@pytest.mark.parametrize(
    ("name", "day", "needs", "license"),
    [("nvidia", TODAY, "linux", "NVIDIA"), ("nvidia-lts", TODAY, "linux-lts", "NVIDIA"),
     ("nvidia-dkms", TODAY, "dkms", "NVIDIA"), ("nvidia-open", TODAY, "linux", "Dual MIT/GPL"),
     ("nvidia-open-dkms", TODAY, "dkms", "Dual MIT/GPL"), ("nvidia-lts-open", LATE, "linux-lts", "Dual MIT/GPL")],
)  # fmt: skip
def test_there_is_a_module_package_for_each_kernel_at_nvidia_utils_version(
    name: str, day: str, needs: str, license: str
) -> None:
    module = package(name, day)
    assert {f"nvidia-utils={DAYS[day].driver}", needs} <= set(module.depends)
    assert f"license={license}" in module.install()


def test_a_module_for_linux_lts_goes_to_that_kernel_whichever_runs() -> None:
    lts, plain = package("nvidia-lts").install(), package("nvidia").install()
    assert f"/lib/modules/{LTS_RELEASE}/updates" in lts and "uname" not in lts
    assert "/lib/modules/$(uname -r)/updates" in plain and LTS_RELEASE not in plain


def test_every_row_of_the_table_says_where_it_is_from_and_is_in_the_lab_on_a_day() -> None:
    built = {item.name for day in DAYS for item in fixture_pkgs(day)}
    assert {row.name for row in arch_rows()} <= built
    assert all(row.source and set(row.unknown) <= {"conflicts", "replaces"} for row in arch_rows())


def test_with_590_the_proprietary_modules_are_gone() -> None:
    late = {item.name for item in fixture_pkgs(LATE)}
    assert {"nvidia-open", "nvidia-lts-open", "nvidia-open-dkms"} <= late
    assert not {"nvidia", "nvidia-lts", "nvidia-dkms"} & late


def test_the_userland_is_one_package_with_library_and_nvidia_smi() -> None:
    paths = {file.path for file in package("nvidia-utils").files}
    assert {"usr/lib/libnvidia-ml.so.580.95.05", "usr/bin/nvidia-smi"} <= paths
    assert "usr/lib/systemd/system/nvidia-persistenced.service" in paths


def test_cuda_is_below_opt() -> None:
    paths = {file.path for file in package("cuda").files}
    assert paths == {"opt/cuda/bin/nvcc", "opt/cuda/version.json", "etc/profile.d/cuda.sh"}


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


def told(archive: Path) -> dict[str, dict[str, set[str]]]:
    """Return name -> field -> values of what a repository's index says of its packages (%DEPENDS% and the like)."""
    found: dict[str, dict[str, set[str]]] = {}
    with tarfile.open(archive) as index:
        for member in index.getmembers():
            file = index.extractfile(member) if member.name.endswith("/desc") else None
            if file is not None:
                paragraphs = [each.splitlines() for each in file.read().decode().split("\n\n") if each.strip()]
                fields = {lines[0].strip("%"): set(lines[1:]) for lines in paragraphs}
                found[fields["NAME"].pop()] = fields
    return found


@pytest.mark.node
@pytest.mark.real
@pytest.mark.skipif(CANNOT, reason="needs root and podman")
@pytest.mark.parametrize("day", DAYS)
def test_the_index_says_what_the_table_says(mirror: Path, day: str) -> None:
    index, driver = told(mirror / day / EXTRA / "extra.db.tar.gz"), DAYS[day].driver
    rows = arch_packages(driver)
    for name, row in rows.items():
        assert index[name]["VERSION"] == {row.version(driver)}
        for relation in RELATIONS:
            expected = {*row.of(relation, driver), *(row.more if relation == "depends" else ())}
            assert index[name].get(relation.upper(), set()) == expected, f"{name}: {relation}"
    assert {name for name in index if "nvidia-utils" in " ".join(index[name].get("DEPENDS", ()))} < set(rows)


@pytest.mark.node
@pytest.mark.real
@pytest.mark.skipif(CANNOT, reason="needs root and podman")
def test_a_day_s_repository_has_one_version_of_each(mirror: Path) -> None:
    for day, of in DAYS.items():
        found = [path.name.split("-")[2] for path in (mirror / day / EXTRA).glob("nvidia-utils-*.zst")]
        assert found == [of.driver]
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
    shutil.copytree(mirror / TODAY / EXTRA, work / EXTRA)
    for name in ("repository", "wrong"):
        (work / f"{name}.asc").write_bytes(public_key(key_file(cache_dir() / "keys", name))[0])
    done = run_in(tools(print, PACMAN), work, READ, key=key, harm=harm)
    assert (done.returncode == 0) == good, done.stdout + done.stderr
    if good:
        assert f"extra nvidia {DAYS[TODAY].driver}-14" in done.stdout
    else:
        assert "signature" in done.stdout
