"""`gpunode explain`: the page of a code, by whatever somebody has seen of it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from gpunode.base import explained
from gpunode.base.explained import asked, pages
from gpunode.cli import explain as command
from gpunode.cli import gpunode
from gpunode.cli.explain import list_text, page_text

pytestmark = pytest.mark.pure


def run(*words: str) -> Result:
    return CliRunner().invoke(gpunode, ["explain", *words])


def test_words_of_a_command_line_are_one_question() -> None:
    page = pages()["driver.loaded-module"]
    done = run("driver:", "loaded", "module:", "drift,", "3", "nodes")
    assert (done.exit_code, done.output) == (0, run(page.code).output)
    lines = done.output.splitlines()
    assert lines[0] == f"{page.code}: {page.summary}" and page.detail in lines and "\x1b" not in done.output
    assert "seen as    driver: loaded module" in lines
    assert [line[11:] for line in lines if line[11:] in page.remedies] == list(page.remedies)
    (ends,) = (line for line in lines if line.startswith("exit code"))
    assert ends.endswith(": drift: 2; reboot pending: 2") and command.page_text(page, 40) != done.output


def test_without_a_code_all_are_listed_by_component() -> None:
    blocks = run().output.split("\n\n")
    assert [page for block in blocks for page in block.splitlines()] == [
        f"{page.code}: {page.summary}" for page in pages().values()
    ]
    assert all(len({line.partition(".")[0] for line in block.splitlines()}) == 1 for block in blocks)


def test_words_that_several_components_have_list_these() -> None:
    assert {"containerd.version", "docker.version", "dcgm.version"} <= {page.code for page in asked("version")}


def test_a_former_code_is_the_one_that_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"former": {"driver.old-name": "driver.loaded-module"}, "pages": {}}
    monkeypatch.setattr(explained, "_data", lambda: data)
    known = pages()
    monkeypatch.setattr(explained, "pages", lambda: known)
    assert [page.code for page in asked("driver.old-name")] == ["driver.loaded-module"]


def test_pages_are_data_for_programs() -> None:
    every = json.loads(run("--json").output)["pages"]
    assert [page["code"] for page in every] == list(pages())
    (one,) = json.loads(run("--json", "gpu-none").output)["pages"]
    assert one == json.loads(json.dumps(pages()["preflight.gpu-none"].to_json()))


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_every_page_and_the_list_fit_into_a_terminal(columns: int) -> None:
    texts = [page_text(page, columns) for page in pages().values()] + [list_text(pages().values(), columns)]
    for line in "\n".join(texts).splitlines():
        # A word that is longer than the terminal is not cut, nor is a command.
        is_command = line.strip().startswith("`")
        assert len(line) <= columns or is_command or len(line.split()) == 1 or len(line.split()[-1]) > columns - 20, (
            line
        )
