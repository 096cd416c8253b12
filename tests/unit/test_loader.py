"""Libraries of the driver as the dynamic loader finds them: its cache, its own folders, LD_LIBRARY_PATH."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpunode.base.probe_output import checked
from gpunode.components.driver.state import DriverState, parse_driver
from gpunode.facts.driver import Driver

pytestmark = pytest.mark.real
_CACHE = "\tlib{name}.so.1 ({abi}) => {folder}/lib{name}.so.1\n"


def _library(folder: Path, name: str, version: str, content: str = "SIMULATED\n") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"lib{name}.so.{version}").write_text(content)
    (folder / f"lib{name}.so.1").symlink_to(f"lib{name}.so.{version}")


def _read(root: Path, cache: str | None) -> DriverState:
    """Return what the probe reads of a node whose folders are below `root`; cache: what its ldconfig prints."""
    programs = root / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("grep", "readlink", "tr", "sed"):
        if not (programs / name).exists():
            (programs / name).symlink_to(f"/usr/bin/{name}")
    (root / "printed").write_text(cache or "")
    shown = f'while IFS= read -r line; do echo "$line"; done < {root}/printed'
    # A question completes PATH by the folders of programs: what is missing fails as a shell says it.
    (programs / "ldconfig").write_text(f"#!/bin/sh\n{'exit 127' if cache is None else shown}\n")
    (programs / "ldconfig").chmod(0o755)
    text = str(Driver().command())
    for folder in ("/usr/lib", "/lib"):
        text = text.replace(f" {folder}", f" {root}{folder}")
    text = text.replace("/etc/environment /etc/profile.d/", f"{root}/etc/environment {root}/etc/profile.d/")
    shell, environment = ["/bin/sh", "-c", text], {"PATH": str(programs)}
    done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True)
    return parse_driver(checked(done.stdout.splitlines()))


def test_the_first_entry_of_the_cache_with_a_file_counts_and_else_the_loader_s_own_folder(
    tmp_path: Path,
) -> None:
    compat, own, old = tmp_path / "compat", tmp_path / "usr/lib/x86_64-linux-gnu", tmp_path / "old"
    lines = [
        _CACHE.format(name="cuda", abi="libc6", folder=tmp_path / "lib32"),
        _CACHE.format(name="cuda", abi="libc6,x86-64", folder=compat),
        _CACHE.format(name="cuda", abi="libc6,x86-64", folder=own),
        _CACHE.format(name="nvidia-ml", abi="libc6,x86-64", folder=own),
    ]
    _library(tmp_path / "lib32", "cuda", "580.95.05")
    assert _read(tmp_path, "".join(lines)).cuda_library is None
    _library(own, "cuda", "580.95.05")
    _library(own, "nvidia-ml", "580.95.05")
    assert _read(tmp_path, "").cuda_library == str(own / "libcuda.so.580.95.05")
    _library(compat, "cuda", "575.57.08")
    shadowed = _read(tmp_path, "".join(lines))
    assert (shadowed.cuda_library, shadowed.library_version) == (str(compat / "libcuda.so.575.57.08"), "580.95.05")
    # What an interrupted write, or a full disk, leaves.
    (compat / "libcuda.so.575.57.08").write_text("")
    assert _read(tmp_path, "".join(lines)).cuda_library == str(own / "libcuda.so.580.95.05")
    (own / "libcuda.so.1").unlink()
    lost = _read(tmp_path, "".join(lines))
    assert (lost.cuda_library, lost.library_version, lost.loader_unknown) == (None, "580.95.05", False)
    _library(old, "cuda", "535.1.1")
    (tmp_path / "etc/profile.d").mkdir(parents=True)
    (tmp_path / "etc/environment").write_text(f'# LD_LIBRARY_PATH={compat}\nLD_LIBRARY_PATH="/nowhere:{old}"\n')
    script = f"export LD_LIBRARY_PATH={old}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n"
    (tmp_path / "etc/profile.d/a.sh").write_text(script)
    origins = [str(tmp_path / "etc/environment"), str(tmp_path / "etc/profile.d/a.sh")]
    assert _read(tmp_path, "").session_libraries == tuple((each, str(old / "libcuda.so.535.1.1")) for each in origins)


def test_a_node_without_ldconfig_tells_of_the_loader_s_own_folders_alone(tmp_path: Path) -> None:
    assert _read(tmp_path, None).loader_unknown
    assert not _read(tmp_path, "").loader_unknown
