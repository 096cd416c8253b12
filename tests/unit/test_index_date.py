"""An index of a repository that is older than the last that was read: the real shell, behind a SIMULATED apt-get."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.operations.apt import NOT_OLDER
from gpunode.operations.script import script
from tests.support.programs import programs, sh

pytestmark = pytest.mark.pure

OLD, NEW = "Mon, 02 Nov 2026 10:00:00 +0000", "Mon, 16 Nov 2026 10:00:00 +0000"
URI = "http://mirror.example/cuda/x86_64"
# As apt 2.6 has it for a flat repository and for one with a suite and two components.
FLAT = ("Packages", "mirror.example_cuda_x86%5f64_")
SUITE = ("stable/binary-amd64/Packages", "mirror.example_docker_dists_bookworm_")


class Node:
    """Hold the folders of a node with one repository of gpunode's."""

    # What apt adds to a list's name where it keeps lists compressed (Acquire::GzipIndexes).
    compressed = ""

    def __init__(self, root: Path) -> None:
        self.root, self.record = root, root / "records/cuda.index"
        for folder in ("sources", "records", "lists", "bin"):
            (root / folder).mkdir()
        self.source(URI)

    def source(self, uri: str) -> None:
        (self.root / "sources/gpunode-cuda.sources").write_text(f"Types: deb\nURIs: {uri}\nSuites: /\n")

    def read(self, date: str | None, shape: tuple[str, str] = FLAT, file: str = "InRelease") -> tuple[int, str]:
        """Have apt hold an index of that date, and judge it; return the status and what was said."""
        name, start = shape
        listed = self.root / "lists" / (start + name.replace("/", "_") + self.compressed)
        listed.write_text("Package: a\n")
        index = self.root / "lists" / (start + file)
        said = f"Date: {date}\n" if date else ""
        index.write_text(f"-----BEGIN PGP SIGNED MESSAGE-----\n\nOrigin: NVIDIA\n{said}Date-Of: x\n")
        programs(self.root / "bin", {"apt-get": f"echo '{name} {listed}'\necho 'other/Packages /other_Packages'"})
        done = sh(
            self.root / "bin", script(f'{NOT_OLDER}not_older "$1"; echo read'), "cuda",
            index_sources=str(self.root / "sources"), index_records=str(self.root / "records"),
        )  # fmt: skip
        assert (done.stdout == "read\n") is (done.returncode == 0), done
        return done.returncode, done.stderr

    def lists(self) -> list[str]:
        return sorted(path.name for path in (self.root / "lists").iterdir())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("shape", [FLAT, SUITE])
@pytest.mark.parametrize("file", ["InRelease", "Release"])
@pytest.mark.parametrize("compressed", ["", ".lz4"])
def test_an_older_index_of_the_same_address_is_refused_with_both_dates_and_what_to_do(
    node: Node, shape: tuple[str, str], file: str, compressed: str
) -> None:
    node.compressed = compressed
    assert node.read(NEW, shape, file) == (0, "")
    (node.root / "lists/another_InRelease").write_text("")
    code, said = node.read(OLD, shape, file)
    assert code == 1
    for word in ("repository cuda", URI, OLD, NEW, "mirror", str(node.record), "run again"):
        assert word in said
    assert node.lists() == ["another_InRelease"], "apt has no list of it, and keeps the others"
    assert NEW in node.record.read_text()


def test_a_newer_index_and_the_same_one_are_taken_and_noted_and_one_without_a_date_is_left_to_apt(node: Node) -> None:
    assert [node.read(date) for date in (OLD, OLD, NEW, None, "next year, perhaps")] == [(0, "")] * 5
    assert node.record.read_text().endswith(f" {URI} {NEW}\n")
    assert node.read(OLD)[0] == 1


def test_another_address_begins_anew_and_so_does_a_node_whose_record_was_removed(node: Node) -> None:
    node.read(NEW)
    node.source("http://archive.example/of-last-week")
    assert node.read(OLD) == (0, "")
    node.source(URI)
    assert node.read(OLD) == (0, ""), "the record is that of the address that was read last"
    node.read(NEW)
    node.record.unlink()
    assert node.read(OLD) == (0, "")


def test_what_is_no_repository_of_gpunode_s_is_not_judged(node: Node) -> None:
    (node.root / "sources/gpunode-cuda.sources").unlink()
    assert node.read(OLD) == (0, "")
    assert not node.record.exists()
