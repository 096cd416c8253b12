"""`gpunode init`: a repository of the user's own, complete or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

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
