"""The inventories of the repository, and `gpunode init`, which writes them as one of the user's own."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gpunode.fleet.inventory import foreign_names
from gpunode.settings import settings_from
from tests.support import warm

pytestmark = pytest.mark.pure

FILES = {
    ".gitignore", "config.py", "deploys/gpu_node.py", "inventories/ci.py", "inventories/lab.py", "inventories/prod.py",
    *(f"inventories/group_data/{name}.py" for name in ("all", "ci", "lab", "prod")),
}  # fmt: skip


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_repository_has_what_the_commands_of_its_last_lines_need(tmp_path: Path) -> None:
    done = warm.run("gpunode", "init", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert _files(tmp_path / "mine") == FILES
    for path in FILES - {".gitignore"}:
        assert (tmp_path / "mine" / path).read_text() == (warm.CHECKOUT / path).read_text()
    for command in ("check inventories/prod.py", "completion --help", "man ~/.local/share/man/man1"):
        assert f"gpunode {command}" in done.stdout
    checked = warm.run("gpunode", "check", "inventories/prod.py", cwd=tmp_path / "mine")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("group", ["all", "ci", "lab", "prod"])
def test_the_groups_of_the_repository_are_right(group: str) -> None:
    data = runpy.run_path(str(warm.CHECKOUT / "inventories" / "group_data" / f"{group}.py"))
    settings_from(data, foreign_names())


def test_the_names_of_pyinfras_connectors_are_let_through() -> None:
    assert {"ssh_user", "ssh_key", "ssh_hostname", "ssh_known_hosts_file", "docker_platform"} <= foreign_names()
