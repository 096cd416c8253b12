"""`gpunode explain`: the page of a code, by whatever somebody has seen of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpunode.base import explained
from gpunode.base.explained import asked, near, pages
from gpunode.cli import explain as command
from gpunode.cli import gpunode, main
from gpunode.cli.explain import list_text, page_text

pytestmark = pytest.mark.pure


def run(*words: str) -> Result:
    return CliRunner().invoke(gpunode, ["explain", *words])


@pytest.mark.parametrize(
    "words",
    [
        "driver.loaded-module", "[driver.loaded-module]", "DRIVER.loaded_module", "driver: loaded module",
        "driver: loaded module: drift, 3 nodes: gpu-1 to gpu-3", "loaded module",
    ],
)  # fmt: skip
def test_a_code_is_found_by_whatever_somebody_has_seen_of_it(words: str) -> None:
    done = run(*words.split())
    assert done.exit_code == 0
    assert done.output.startswith(f"driver.loaded-module: {pages()['driver.loaded-module'].summary}\n")


def test_a_page_has_causes_remedies_and_the_exit_code() -> None:
    done = run("driver.loaded-module")
    assert "\nseen as    driver: loaded module\n" in done.output
    assert "\nremedy     run deploys/gpu_node.py again\n           drain and reboot the node\n" in done.output
    assert "\nexit code  of gpunode drift, by its class: drift: 2; reboot pending: 2\n" in done.output


def test_what_varies_behind_a_finding_leads_to_the_same_page() -> None:
    (page,) = asked("health: Xid 79 of 0000:1a:00.0")
    assert page.code == "health.xid"


def test_a_component_lists_its_codes_and_nothing_else() -> None:
    done = run("rdma_shared_device_plugin")
    assert [line.partition(":")[0] for line in done.output.splitlines()] == [
        "rdma-shared-device-plugin.rdma-devices", "rdma-shared-device-plugin.rdma-network-namespace-mode",
    ]  # fmt: skip


def test_without_a_code_all_are_listed_by_component() -> None:
    blocks = run().output.split("\n\n")
    assert [page for block in blocks for page in block.splitlines()] == [
        f"{page.code}: {page.summary}" for page in pages().values()
    ]
    assert all(len({line.partition(".")[0] for line in block.splitlines()}) == 1 for block in blocks)


def test_words_that_several_components_have_list_these() -> None:
    assert {page.code for page in asked("nvcc")} == {"cuda.nvcc"}
    assert {"containerd.version", "docker.version", "dcgm.version"} <= {page.code for page in asked("version")}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("driver.laoded-module", "driver.loaded-module"), ("loaded-modul", "driver.loaded-module"),
     ("preflight.gpu-nonne", "preflight.gpu-none"), ("inventory.unreadble", "inventory.unreadable")],
)  # fmt: skip
def test_a_code_that_there_is_not_is_wrong_usage_with_what_may_be_meant(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert near(typed)[0] == meant
    monkeypatch.setattr("sys.argv", ["gpunode", "explain", typed])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert ended.value.code == 64 and told.out == ""
    assert f"{typed!r}; did you mean {meant}" in told.err and told.err.endswith(" [explain.unknown]\n")


def test_a_code_that_is_like_none_is_refused_without_a_guess() -> None:
    assert near("zzzzzz") == () and asked("zzzzzz") == ()
    assert "did you mean" not in run("zzzzzz").output and run("zzzzzz").exit_code != 0


def test_a_former_code_is_the_one_that_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"former": {"driver.old-name": "driver.loaded-module"}, "pages": {}}
    monkeypatch.setattr(explained, "_data", lambda: data)
    known = pages()
    monkeypatch.setattr(explained, "pages", lambda: known)
    (page,) = asked("driver.old-name")
    assert page.code == "driver.loaded-module"


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


def test_in_a_pipe_a_page_is_plain_text_of_one_line_for_each_thing() -> None:
    page = pages()["driver.loaded-module"]
    told = run(page.code).output
    assert told.isascii() or "…" in told
    assert "\x1b" not in told and page.detail in told.splitlines()
    assert command.page_text(page, 40) != told


def test_the_inventory_that_cannot_be_read_ends_in_its_code(tmp_path: Path) -> None:
    done = CliRunner().invoke(gpunode, ["check", str(tmp_path / "none.py")])
    assert done.exit_code == 1
    assert done.output.endswith("there is no such inventory file [inventory.unreadable]\n")
