"""The fixture .run files: the manners of NVIDIA's archive, and of the installer in it. Real sh and tar, no node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.packages import nvidia_installer
from gpunode.lab.packages.driver import BROKEN_VERSION
from gpunode.lab.packages.runfile import RUNFILE_VERSIONS, RunfileFixture, archive, runfiles

pytestmark = pytest.mark.simulated

VERSION = "580.95.05"
QUIET = ["--silent", "--skip-module-load"]


@pytest.fixture(scope="module")
def every() -> list[RunfileFixture]:
    """Return all .run files: to make them takes seconds."""
    return runfiles()


@pytest.fixture(scope="module")
def file(every: list[RunfileFixture], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a driver's .run file."""
    (found,) = [item for item in every if VERSION in item.path and item.path.startswith("tesla/")]
    path = tmp_path_factory.mktemp("runfile") / Path(found.path).name
    path.write_bytes(found.content)
    return path


def sh(file: Path, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(file), *arguments],
        cwd=folder or file.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_files_are_the_same_bytes_whenever_they_are_made(every: list[RunfileFixture]) -> None:
    assert [item.digest() for item in every] == [item.digest() for item in runfiles()]
    assert {VERSION, BROKEN_VERSION} <= set(RUNFILE_VERSIONS)


@pytest.mark.parametrize("argument", ["--check", "--info", "--list", "--help", "-A"])
def test_what_the_archive_tells_of_itself_counts_as_the_first_argument(file: Path, argument: str) -> None:
    assert sh(file, argument).returncode == 0
    # Later it is the installer's, which does not know it.
    assert sh(file, "--silent", argument).returncode == 1


def test_a_damaged_archive_is_found_and_not_run(file: Path, tmp_path: Path) -> None:
    damaged = tmp_path / file.name
    damaged.write_bytes(file.read_bytes()[:-100])
    assert sh(damaged, "--check").returncode == 2
    done = sh(damaged, "--silent")
    assert done.returncode == 1 and "damaged" in done.stderr


def test_it_unpacks_once_and_not_over_what_is_there(file: Path, tmp_path: Path) -> None:
    assert sh(file, "-x", folder=tmp_path).returncode == 0
    assert (tmp_path / file.stem / "nvidia-installer").exists()
    assert sh(file, "--extract-only", folder=tmp_path).returncode == 1
    assert sh(file, "-x", "--target", "elsewhere", folder=tmp_path).returncode == 0
    assert (tmp_path / "elsewhere/package.json").exists()


def test_everything_else_goes_to_the_program_whose_status_comes_back(tmp_path: Path) -> None:
    program = b'#!/bin/sh\nprintf "%s\\n" "$@" > "$TOLD"; exit 7\n'
    path = tmp_path / "x.run"
    path.write_bytes(archive("x", "x", "program", {"program": (program, 0o755)}))
    done = subprocess.run(
        ["sh", path, "--silent", "--tmpdir", str(tmp_path), "--ui=none", "two words"],
        env={"PATH": "/usr/bin:/bin", "TOLD": str(tmp_path / "told")}, check=False,
    )  # fmt: skip
    assert done.returncode == 7
    assert (tmp_path / "told").read_text().splitlines() == ["--silent", "--ui=none", "two words"]
    assert sorted(item.name for item in tmp_path.iterdir()) == ["told", "x.run"]


@pytest.fixture
def unpacked(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the unpacked archive, on a machine with what builds modules."""
    sh(file, "-x", "--target", str(tmp_path / "unpacked"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("gcc", "make", "dkms"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return tmp_path / "unpacked"


def run(unpacked: Path, root: Path, *arguments: str, program: str = "nvidia-installer") -> int:
    root.mkdir(exist_ok=True)
    return nvidia_installer.main(list(arguments), program, unpacked, root)


def log(root: Path, name: str = "nvidia-installer") -> str:
    return (root / f"var/log/{name}.log").read_text()


@pytest.mark.parametrize("dkms, folder", [(True, "updates/dkms"), (False, "kernel/drivers/video")])
def test_an_installation_is_found_by_the_simulated_kernel_and_its_removal_leaves_nothing(
    unpacked: Path, tmp_path: Path, dkms: bool, folder: str
) -> None:
    root = tmp_path / "root"
    more = ["--dkms" if dkms else "--no-dkms"]
    assert run(unpacked, root, *QUIET, "--kernel-module-type=open", *more) == 0, log(root)
    found = module.module_file(Machine(root))
    assert found is not None
    assert (found.version, found.flavour) == (VERSION, "open")
    assert folder in str(found.path)
    assert (root / f"var/lib/dkms/nvidia/{VERSION}/source").is_symlink() == dkms
    assert run(unpacked, root, "--silent", "--skip-module-unload", program="nvidia-uninstall") == 0
    left = [str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()]
    assert sorted(left) == ["var/log/nvidia-installer.log", "var/log/nvidia-uninstall.log"]
    assert run(unpacked, root, "--silent", program="nvidia-uninstall") == 1


def test_a_question_cannot_be_answered_and_ends_it(unpacked: Path, tmp_path: Path) -> None:
    assert run(unpacked, tmp_path / "root", "--dkms") == 1
    assert "ERROR" in log(tmp_path / "root")


def test_a_loaded_module_ends_it_without_the_option_that_allows_it(unpacked: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sys/module/nvidia").mkdir(parents=True)
    assert run(unpacked, root, *QUIET) == 1
    assert "already loaded" in log(root)
    assert run(unpacked, root, *QUIET, "--allow-installation-with-running-driver") == 0


@pytest.mark.parametrize("fault, half", [("build", False), ("files", True)])
def test_a_fault_ends_it_with_its_log(unpacked: Path, tmp_path: Path, fault: str, half: bool) -> None:
    root = tmp_path / "root"
    assert run(unpacked, root, *QUIET) == 0
    (root / "etc/gpunode-lab").mkdir(parents=True)
    (root / "etc/gpunode-lab/faults.json").write_text(f'{{"installer": "{fault}"}}')
    assert run(unpacked, root, *QUIET) == 1
    assert "SIMULATED fault" in log(root)
    assert (module.module_file(Machine(root)) is None) == half


@pytest.mark.parametrize(("more", "registered"), [([], True), (["--no-dkms"], False)])
def test_where_dkms_is_there_the_module_is_registered_unless_that_is_forbidden(
    unpacked: Path, tmp_path: Path, more: list[str], registered: bool
) -> None:
    root = tmp_path / "root"
    assert run(unpacked, root, *QUIET, *more) == 0, log(root)
    assert (root / f"var/lib/dkms/nvidia/{VERSION}/source").is_symlink() == registered
