"""When a converged node is made, and when the one in the cache does. The nodes are SIMULATED: none is brought up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpunode.cli.lab import lab
from gpunode.lab import converged, nodes, state
from gpunode.lab.errors import LabError
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Have a checkout of two files and a cache of its own, and note what is made."""
    checkout = tmp_path / "checkout"
    for room in converged._ROOMS:
        (checkout / room).mkdir(parents=True)
    for name in (*converged._FILES, "gpunode/tables.py", "pyproject.toml"):
        (checkout / name).write_text(name)
    found: list[Path] = []

    def make(wanted: Path, gpu: str, gpus: int, nvidia_toolkit: bool) -> None:
        wanted.mkdir()
        found.append(wanted)

    monkeypatch.setattr(converged, "CHECKOUT", checkout)
    monkeypatch.setattr(converged, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(converged, "_make", make)
    monkeypatch.setattr(converged, "podman", lambda *_: "")
    monkeypatch.setattr(nodes, "made_from", lambda report, **_: "one build")
    return found


def ignored(line: str) -> None:
    pass


def root() -> Path:
    return converged.root(ignored, "h100-80gb", 2)


def test_it_is_made_once_for_one_code_and_kind_of_gpu(made: list[Path], tmp_path: Path) -> None:
    assert root() == root()
    compiled = tmp_path / "checkout" / "gpunode" / "__pycache__"
    compiled.mkdir()
    (compiled / "tables.pyc").write_text("compiled")
    root()
    assert len(made) == 1
    converged.root(ignored, "t4", 2)
    assert len(made) == 2


def test_where_gpunode_is_installed_it_is_refused_in_a_line_with_a_way_out(made: list[Path], tmp_path: Path) -> None:
    (tmp_path / "checkout" / "pyproject.toml").unlink()
    said = CliRunner().invoke(lab, ["up", "--converged"])
    assert said.exit_code == 1 and unnamed(said.output, "--converged", "checkout") == []
    assert said.output.count("\n") == 1 and made == []


@pytest.mark.parametrize("changed", ["gpunode/tables.py", "templates/new.conf", "uv.lock", None])
def test_another_code_or_image_makes_another_one(
    changed: str | None, made: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = root()
    if changed is None:
        monkeypatch.setattr(nodes, "made_from", lambda report, **_: "another build")
    else:
        (tmp_path / "checkout" / changed).write_text("other")
    assert root() != first


def test_one_that_nobody_asked_for_in_a_day_goes_unless_a_node_stands_on_it(
    made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, used = root().parent / "old", root().parent / "used"
    for folder in (old, used):
        folder.mkdir()
        os.utime(folder, (1_000_000, 1_000_000))
    monkeypatch.setattr(converged, "podman", lambda *_: f"{used}\n")
    kept = root()
    assert (old.exists(), used.exists(), kept.exists()) == (False, True, True)


def test_the_command_refuses_it_for_another_package_manager() -> None:
    found = CliRunner().invoke(lab, ["up", "--converged", "--family", "dnf"])
    assert found.exit_code == 2 and unnamed(found.output, "--converged", "apt", "dnf") == []


def test_a_lab_of_another_checkout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"Config": {"Labels": {"gpunode.checkout": "/home/other"}}}
    monkeypatch.setattr(nodes, "inspect_containers", lambda _: [labels])
    monkeypatch.setattr(state, "CHECKOUT", tmp_path)
    with pytest.raises(LabError, match="/home/other"):
        nodes._check_owner("default")
    labels["Config"]["Labels"]["gpunode.checkout"] = str(tmp_path)
    nodes._check_owner("default")
