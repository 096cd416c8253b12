"""The manual pages say of each command what its help says, and groff and mandoc find no fault in them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from gpunode.cli import gpunode, man_page
from tests.support import warm

pytestmark = [pytest.mark.pure, pytest.mark.tier2]

PAGES = man_page.pages(gpunode, "2026-11-26")


def plain(page: str) -> str:
    """Return a page as it is read, as far as its words go."""
    text = re.sub(r"\\f[BR]|\\&", "", page).replace(r"\-", "-")
    return text.replace(r"\(aq", "'").replace(r"\(dq", '"').replace(r"\(ti", "~").replace(r"\e", "\\")


def commands(command: click.Command, name: str) -> dict[str, click.Command]:
    """Return page -> command of a tree."""
    inner = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []
    found = {f"{name}.1": command}
    for each in inner:
        below = command.get_command(click.Context(command), each)  # type: ignore[attr-defined]
        assert below is not None
        found |= commands(below, f"{name}-{each}")
    return found


def test_each_command_has_a_page_with_all_its_options() -> None:
    tree = commands(gpunode, "gpunode")
    assert set(PAGES) == set(tree) and {"gpunode-lab-vm-up.1", "gpunode-man.1"} <= set(PAGES)
    for name, command in tree.items():
        options = plain(PAGES[name]).partition(".SH OPTIONS")[2]
        for each in command.params:
            if isinstance(each, click.Option) and not each.hidden:
                assert all(re.search(rf"^\.B .*{re.escape(said)}\b", options, re.MULTILINE) for said in each.opts), name
        assert "--help" in options


def test_an_example_stands_as_it_is_typed() -> None:
    page = plain(PAGES["gpunode-init.1"])
    assert "\nterraform show -json | gpunode init --from-terraform -\n.RE\n.fi\n" in page


def test_no_word_of_a_help_becomes_a_request_of_groff_s() -> None:
    @click.command(help="Look at\n\n.hidden and 'quoted' \\n files.\n\n\b\n  .first\n  'second")
    def odd() -> None: ...

    group = click.Group("gpunode", commands={"odd": odd})
    lines = man_page.pages(group, "2026-11-26")["gpunode-odd.1"].splitlines()
    assert r"\&.hidden and \(aqquoted\(aq \en files." in lines
    assert r"\&.first" in lines and r"\(aqsecond" in lines


@pytest.mark.parametrize("judge", ["groff -man -ww -z -Tutf8", "mandoc -Tlint -W warning"])
def test_no_fault_is_found_in_any_page(judge: str, tmp_path: Path) -> None:
    if shutil.which(judge.split()[0]) is None:
        pytest.skip(f"needs {judge.split()[0]}")
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text, encoding="ascii")
    done = subprocess.run(
        [*judge.split(), *sorted(tmp_path.iterdir())], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_command_writes_them_all_into_a_folder_that_it_makes(tmp_path: Path) -> None:
    done = warm.run("gpunode", "man", str(tmp_path / "share" / "man1"))
    assert done.returncode == 0 and f"{len(PAGES)} pages" in done.stdout, done.stderr
    assert {path.name for path in (tmp_path / "share" / "man1").iterdir()} == set(PAGES)
