"""What `make setup` and CI run of other people's is named by its digest."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.pure

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def locked(name: str) -> dict[str, Any]:
    (found,) = (package for package in LOCK["package"] if package["name"] == name)
    return found  # type: ignore[no-any-return]


def test_uv_comes_by_the_digests_of_the_lock() -> None:
    lines = [line for line in (ROOT / "uv.requirements.txt").read_text().splitlines() if not line.startswith("#")]
    uv = locked("uv")
    digests = [wheel["hash"] for wheel in uv["wheels"]]
    # pip takes the source where no wheel has its digest, and then anything that builds it.
    assert lines[:2] == ["--only-binary :all:", f"uv=={uv['version']} \\"]
    assert [line.strip(" \\") for line in lines[2:]] == [f"--hash={digest}" for digest in digests]
    for platform in ("manylinux2014_x86_64", "manylinux_2_28_aarch64", "musllinux_1_1_x86_64", "macosx_11_0_arm64"):
        assert any(platform in wheel["url"] for wheel in uv["wheels"])


def test_make_installs_nothing_by_pip_without_its_digest() -> None:
    installs = [line for line in MAKEFILE.splitlines() if re.search(r"\bpip install\b", line)]
    assert installs and all("--require-hashes -r uv.requirements.txt" in line for line in installs)
    syncs = [line for line in MAKEFILE.splitlines() if re.search(r"\buv (sync|run|pip|tool)\b", line)]
    assert syncs and all(" sync --frozen" in line for line in syncs)


def test_every_package_of_the_lock_has_its_digest() -> None:
    for package in LOCK["package"]:
        if package["source"] != {"editable": "."}:
            files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
            assert files and all(DIGEST.fullmatch(file["hash"]) for file in files), package["name"]


def test_what_builds_gpunode_itself_comes_by_its_digest_too() -> None:
    assert PROJECT["tool"]["uv"]["require-build-hashes"] is True
    asked = {
        requirement.partition("==")[0]: (requirement.partition("==")[2], entry["hashes"])
        for entry in PROJECT["tool"]["uv"]["build-constraint-dependencies"]
        for requirement in [entry["requirement"]]
    }
    kept = {
        entry["name"]: (entry["specifier"].removeprefix("=="), entry["hashes"])
        for entry in LOCK["manifest"]["build-constraints"]
    }
    assert asked == kept
    assert all(version and digests and all(map(DIGEST.fullmatch, digests)) for version, digests in asked.values())
    for requirement in PROJECT["build-system"]["requires"]:
        assert re.split(r"[<>=~! ]", requirement)[0] in asked


RELEASE = ".github/workflows/release.yml"
# What the jobs of a release may write. Every other job of every workflow may only read.
WRITES = {"attest": {"id-token", "attestations"}, "pypi": {"id-token"}, "github": {"contents"}}


def workflows() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each workflow of GitHub's: files, and blocks in the documentation."""
    for folder in (".github/workflows", "docs/examples/ci"):
        for path in sorted((ROOT / folder).glob("*.y*ml")):
            if re.search(r"^ *runs-on:", text := path.read_text(), re.MULTILINE):
                yield str(path.relative_to(ROOT)), text
    for path in sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))):
        for number, block in enumerate(re.findall(r"```ya?ml\n(.*?)```", path.read_text(), re.DOTALL)):
            if re.search(r"^ *(- )?(uses|runs-on):", block, re.MULTILINE):
                yield f"{path.relative_to(ROOT)} block {number}", block


def test_the_workflows_are_found() -> None:
    names = [name for name, _ in workflows()]
    assert {".github/workflows/world.yml", "docs/examples/ci/github-actions.yml"} <= set(names)


@pytest.mark.parametrize(("name", "text"), [pytest.param(*found, id=found[0]) for found in workflows()])
def test_a_workflow_says_what_it_may_do_and_names_actions_by_digest(name: str, text: str) -> None:
    read = yaml.safe_load(text)
    for job_name, job in read["jobs"].items():
        allowed = job.get("permissions", read.get("permissions"))
        assert isinstance(allowed, dict)
        writes = {permission for permission, access in allowed.items() if access not in ("read", "none")}
        assert writes == (WRITES.get(job_name, set()) if name == RELEASE else set()), job_name
        # What a job that may write runs is none of the checkout's code, and no cache of another run's.
        assert not writes or not re.search(r"actions/(checkout|cache)@|make ", str(job["steps"])), job_name
    actions = re.findall(r"^ *(?:- )?uses: *(.*)$", text, re.MULTILINE)
    assert actions
    for action in actions:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
