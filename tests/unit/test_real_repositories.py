"""The check of live repositories, on repositories in a folder: what resolves, what does not, and what moved."""

from __future__ import annotations

import io
import runpy
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import yaml

from gpunode.base import tables
from tests.real import apt_repositories, conftest, families, keys, own_repositories, package_sets
from tests.real.apt_repositories import apt_resolved, of_others
from tests.real.asking import ManagerFailed
from tests.real.checked import Checked, failed
from tests.real.keys import NotReached
from tests.real.resolve_apt import Apt
from tests.support.messages import unnamed

pytestmark = pytest.mark.tier2
ROOT = Path(__file__).parents[2]
BOOKWORM = tables.distribution("debian", "12")
TRIXIE = tables.distribution("debian", "13")
OWN = ("nvidia-smi", "libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "nvidia-cuda-mps")
OPEN = ("nvidia-open-kernel-dkms", "nvidia-open-kernel-support")
CLOSED = ("nvidia-kernel-dkms", "nvidia-kernel-support")
OLD, NEW = "535.261.03-1", "535.309.01-0+deb12u1"


def archive(folder: Path, packages: Mapping[str, tuple[str, ...]]) -> Apt:
    """Return an apt that reads a repository with these packages; none depends on another."""
    (folder / "repository").mkdir(parents=True)
    stanzas = [
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nFilename: ./x\nSize: 1\nSHA256: aa\n"
        for name, versions in packages.items()
        for version in versions
    ]
    (folder / "repository" / "Packages").write_text("\n".join(stanzas))
    apt = Apt(folder / "apt", f"deb [trusted=yes] file:{folder}/repository ./\n")
    assert apt.update() == ()
    return apt


def debian(open_module: tuple[str, ...], **more: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    both = dict.fromkeys((*OWN, *CLOSED), (OLD, NEW))
    numbered = {"nvidia-persistenced": ("535.171.04-1",), "containerd": ("1.6.20-1",), "docker.io": ("20.10.24-1",)}
    return both | numbered | dict.fromkeys(OPEN, open_module) | more


@pytest.mark.real
def test_debian_12_s_own_archive_is_found_as_the_tables_have_it(tmp_path: Path) -> None:
    assert BOOKWORM is not None
    found = apt_resolved(BOOKWORM, "own", archive(tmp_path, debian((OLD,))))
    assert found.problems == []
    assert any(what.startswith("driver 535 open (refused") for what in found.resolved)
    assert {"containerd", "docker.io", "driver 535 proprietary", "driver 535.309.01 proprietary"} <= set(found.resolved)
    assert "containerd is at 1.6.20-1, and was at 1.6.20~ds1-1+deb12u3 on 2026-11-23" in found.moved


@pytest.mark.pure
def test_runtimes_and_boards_are_asked_for_as_the_deploys_ask() -> None:
    class Empty:
        def offers(self, *names: str) -> dict[str, tuple[str, ...]]:
            return {name: ("580.95.05-1",) for name in names}

    empty: Any = Empty()
    assert BOOKWORM is not None and TRIXIE is not None

    def runtimes(row: tables.Distribution, repository: str) -> list[str]:
        return [asked.what for asked in package_sets.other_sets(row, repository, empty)]

    assert runtimes(BOOKWORM, "own") == ["containerd", "docker.io"]
    assert runtimes(TRIXIE, "own") == ["containerd", "docker.io docker-cli"]
    assert runtimes(TRIXIE, "docker") == ["containerd.io", "docker-ce docker-ce-cli"]
    sets = {asked.what: asked.desired for asked in package_sets.driver_sets(BOOKWORM, "cuda-repository", empty)}
    assert {"nvidia-imex", "libnvidia-nscq"} <= set(sets["driver 580 open imex"])
    groups = tables.driver_source("cuda-repository", "debian")
    assert groups is not None
    boards = {"nvswitch", "nvlink5", "imex"} & set(groups.packages)
    assert boards <= {word for what in sets for word in what.split()}


@pytest.mark.real
def test_an_open_module_that_caught_up_has_moved_and_a_package_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    assert BOOKWORM is not None
    packages = debian((OLD, NEW))
    del packages["docker.io"]
    found = apt_resolved(BOOKWORM, "own", archive(tmp_path, packages))
    assert any(line.startswith("driver 535 open resolves") for line in found.moved)
    (problem,) = found.problems
    assert problem.startswith("docker.io: package docker.io ")


@pytest.mark.real
def test_what_moved_in_nvidia_s_repository_is_told(tmp_path: Path) -> None:
    assert TRIXIE is not None
    there = {"nvidia-open": ("700.10.01-1",), "cuda-drivers": ("700.10.01-1",), "cuda-toolkit-13-2": ("13.2.0-1",)}
    found = apt_resolved(TRIXIE, "cuda", archive(tmp_path, there))
    for start, *names in (
        ("driver branches 700,", "590, 595, 610, 615"), ("driver branch 700 ",), ("cuda-drivers 700.10.01-1 ",),
        ("nvidia-open 700.10.01-1 ", "newer"), ("libcuda1 595.71.05-1 (", "no package"),
    ):  # fmt: skip
        assert [line for line in found.moved if line.startswith(start) and not unnamed(line, *names)], start
    assert {"CUDA 13.2", "driver 700 open", "driver 700.10.01 open"} <= set(found.resolved)


@pytest.mark.pure
def test_a_key_that_cannot_be_fetched_is_told_and_another_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TRIXIE is not None

    monkeypatch.setattr(urllib.request, "urlopen", Mock(side_effect=urllib.error.URLError("no such host")))
    with pytest.raises(NotReached, match=r"debian13/x86_64/8793F200\.pub: .*no such host"):
        of_others(TRIXIE, "cuda", tmp_path)
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(b"a key"))
    monkeypatch.setattr(keys, "fingerprints", lambda keyring: {"A" * 40})
    with pytest.raises(AssertionError, match=r"holds A{40}, and not 02182E60104FCDC26EAE1B8597A5D4CB8793F200"):
        of_others(TRIXIE, "cuda", tmp_path)
    own = "02182E60104FCDC26EAE1B8597A5D4CB8793F200"
    monkeypatch.setattr(keys, "fingerprints", lambda keyring: {own})
    assert "URIs: https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64\nSuites: /\n" in of_others(
        TRIXIE, "cuda", tmp_path
    )


@pytest.mark.pure
def test_every_distribution_with_apt_has_a_release_name() -> None:
    rows = {(row.id, row.version) for row in tables.distributions() if row.family == "apt"}
    assert rows == set(apt_repositories.CODENAMES)


@pytest.mark.pure
def test_what_was_found_is_told_line_by_line() -> None:
    lines = Checked(["containerd"], ["x: y"], ["z moved"], ["https://a: gone"]).lines("Debian 12, own")
    for line, named in zip(lines, ("1", "https://a: gone", "x: y", "z moved"), strict=True):
        assert line.startswith("Debian 12, own: ") and unnamed(line, named) == []


@pytest.mark.pure
def test_every_family_has_a_check_of_its_live_repositories_and_every_distribution_an_archive_or_a_reason() -> None:
    assert {row.family for row in tables.distributions()} == set(families.CHECKS)
    for row in (row for row in tables.distributions() if row.family != "apt"):
        if row.id in ("rhel", "sles"):
            with pytest.raises(keys.Closed, match=rf"^the archive of {row.name} is open to customers of .* alone$"):
                own_repositories.addresses(row)
        else:
            assert all(address.startswith("https://") for address, _ in own_repositories.addresses(row))
            assert own_repositories.addresses(row)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("words", "reached"),
    [
        ("Error: Cannot prepare internal mirrorlist: Curl error (6): Couldn't resolve host name", False),
        ("Error code: Connection failed Error message: Could not resolve host: download.opensuse.org", False),
        ("error: failed retrieving file 'core.db' from x : Connection timed out after 10001 milliseconds", False),
        ("Error: Failed to download metadata for repo 'gpunode-cuda': GPG verification is enabled, but no key", True),
        ("Status code: 404 for https://x/repodata/repomd.xml", True),
    ],
)
def test_a_repository_that_answers_amiss_is_a_problem_and_silence_is_none(words: str, reached: bool) -> None:
    found = failed(ManagerFailed(words))
    assert bool(found.problems) == reached
    assert bool(found.unreached) != reached


@pytest.mark.pure
@pytest.mark.parametrize(
    ("ci", "found", "status"),
    [
        ("true", [Checked(unreached=["a"]), Checked(unreached=["b"])], 1),
        ("true", [Checked(unreached=["a"]), Checked(["containerd"])], 0),
        ("true", [], 0),
        ("", [Checked(unreached=["a"])], 0),
    ],
)
def test_a_run_of_ci_that_reached_nothing_fails(
    ci: str, found: list[Checked], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(conftest, "_found", found)
    monkeypatch.setattr(conftest, "_told", told)
    session = SimpleNamespace(exitstatus=0)
    conftest.pytest_sessionfinish(cast("pytest.Session", session))
    assert (session.exitstatus, told) == (status, [conftest.NOTHING] if status else [])


@pytest.mark.pure
@pytest.mark.parametrize(
    ("variable", "file"),
    [
        ("GPUNODE_REAL_REPOSITORIES", "test_repositories.py"),
        ("GPUNODE_REAL_CHARTS", "test_charts.py"),
        ("GPUNODE_REAL_CHARTS", "test_charts_in_a_cluster.py"),
    ],
)
def test_without_its_variable_a_real_check_is_skipped_with_one_line(
    variable: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    # The module as a whole: a skip of each test would be a line of each.
    with pytest.raises(pytest.skip.Exception, match=variable) as skipped:
        runpy.run_path(str(ROOT / "tests/real" / file))
    assert skipped.value.allow_module_level


@pytest.mark.pure
def test_the_nightly_run_gives_the_variable_to_the_makefile_s_target() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/world.yml").read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    (run,) = [step for step in steps if step.get("run") == "sudo -E make test-real"]
    assert run["env"] == {"GPUNODE_REAL_REPOSITORIES": "1"}
    assert "\ntest-real: setup\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
