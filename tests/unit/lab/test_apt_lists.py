"""What is left of apt's lists in the nodes' image. Debian's own lists are cut by whoever builds an image."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpunode.lab import apt_lists

pytestmark = pytest.mark.pure
STANZAS = {name: f"Package: {name}\nVersion: 1\nDescription: x\n {name}-like\n\n" for name in ("gcc", "zsh", "make")}


def test_only_what_is_needed_is_left_as_it_stood_and_the_list_keeps_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apt_lists, "_needed", lambda root: {"gcc", "make"})
    lists, cache = tmp_path / "var/lib/apt/lists", tmp_path / "var/cache/apt"
    for folder in (lists, cache):
        folder.mkdir(parents=True)
    path = lists / "archive_dists_bookworm_main_binary-amd64_Packages"
    path.write_text("".join(STANZAS.values()))
    os.utime(path, (1_000_000, 1_000_000))
    (lists / "archive_InRelease").write_text("Package: zsh\n")
    (cache / "pkgcache.bin").write_text("of the whole lists")
    before, after = apt_lists.cut_down(tmp_path)
    assert path.read_text() == STANZAS["gcc"] + STANZAS["make"]
    assert path.stat().st_mtime == 1_000_000
    assert (before - after, after) == (len(STANZAS["zsh"]), len(path.read_text()))
    assert (lists / "archive_InRelease").read_text() == "Package: zsh\n"
    assert not (cache / "pkgcache.bin").exists()


def test_what_apt_names_is_taken_with_what_is_only_provided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "dpkg-query": "bash\nold-and-gone\n",
        "apt-cache pkgnames": "bash\ngcc\nlibc6\n",
        "apt-cache depends": "bash\n  Depends: <awk>\n    mawk\nlibc6\n<awk>\nmawk\n  PreDepends: libc6\n",
    }
    asked: list[tuple[str, ...]] = []

    def within(root: Path, *command: str) -> str:
        asked.append(command)
        return next(text for start, text in said.items() if " ".join(command).startswith(start))

    monkeypatch.setattr(apt_lists, "within", within)
    assert apt_lists._needed(tmp_path) == {"bash", "libc6", "awk", "mawk"}
    assert asked[-1][-2:] == ("gcc", "bash"), "what the lists do not know would be an error of apt-cache's"
