"""What a transaction keeps of the files that it changes, by the real sh and coreutils."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gpunode.operations.keeping import ABSENT, KEEPING, UNREAD, digest_as_read, digest_of_text, noted_command
from gpunode.operations.script import script
from tests.support import shell
from tests.support.messages import unnamed
from tests.support.shell import Done

pytestmark = pytest.mark.real


def sh(folder: Path, text: str, *arguments: object, hidden: str = "") -> Done:
    """Run text with the functions; its checkpoint is FOLDER/kept, and `$1`, ... are arguments."""
    (folder / "kept").mkdir(exist_ok=True)
    return shell.sh(script(f"umask 077\ncheckpoint={folder}/kept hidden={hidden}\n{KEEPING}\n{text}"), *arguments)


def kept(folder: Path, *files: Path) -> None:
    for file in files:
        done = sh(folder, 'keep_file "$1" unread', file)
        assert done.returncode == 0, done.stderr


def test_a_file_that_is_not_what_was_read_stops_the_change_before_anything_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("by hand")
    for read in ("none", hashlib.sha256(b"old").hexdigest()):
        done = sh(tmp_path, 'keep_file "$1" "$2"', file, read)
        assert done.returncode == 1
        assert unnamed(done.stderr, file) == [] and file.read_text() == "by hand"
    assert not list((tmp_path / "kept").iterdir())
    assert sh(tmp_path, 'keep_file "$1" "$2"', file, digest_of_text("by hand")).returncode == 0


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_file_and_none_are_read_alike(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "file").touch()
    assert digest_of_text(None) == digest_of_text("") == digest_as_read(None) == ABSENT
    assert digest_as_read(hashlib.sha256(b"").hexdigest()) == ABSENT
    assert sh(tmp_path, 'keep_file "$1" "$2"', tmp_path / "file", ABSENT).returncode == 0


def test_what_is_no_utf_8_was_not_read_as_it_is() -> None:
    assert digest_of_text(b"\xff".decode(errors="replace")) == UNREAD


def test_what_was_kept_comes_back_with_its_mode_and_what_was_not_there_goes(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "folder" / "new"
    old.write_text("old")
    old.chmod(0o640)
    kept(tmp_path, old, new)
    change = 'for file; do printf new | stage_file "$file" 644; place_file "$file"; done'
    assert sh(tmp_path, change, old, new).returncode == 0
    assert (old.read_text(), new.read_text(), new.stat().st_mode & 0o777) == ("new", "new", 0o644)
    for _ in range(2):
        done = sh(tmp_path, "put_files_back")
        assert (done.returncode, done.stderr) == (0, "")
        assert (old.read_text(), old.stat().st_mode & 0o777, new.exists()) == ("old", 0o640, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "kept", "old"]


def test_a_link_that_went_or_was_written_over_comes_back_as_a_link(tmp_path: Path) -> None:
    target = tmp_path / "site.conf"
    target.write_text("theirs")
    links = [tmp_path / "removed", tmp_path / "replaced"]
    for link in links:
        link.symlink_to("site.conf")
    kept(tmp_path, *links)
    change = 'remove_file "$1"; printf ours | stage_file "$2" 644; place_file "$2"'
    assert sh(tmp_path, change, *links).returncode == 0
    assert not links[0].is_symlink() and links[1].read_text() == "ours" and target.read_text() == "theirs"
    done = sh(tmp_path, "put_files_back")
    assert (done.returncode, done.stderr) == (0, "")
    assert [str(link.readlink()) for link in links] == ["site.conf", "site.conf"]


@pytest.mark.parametrize("was", ["old", None])
@pytest.mark.parametrize("mode", [0o600, 0o646, 0o777])
def test_what_somebody_wrote_since_is_kept_and_named_and_others_cannot_write_it(
    tmp_path: Path, was: str | None, mode: int
) -> None:
    file = tmp_path / "file"
    if was is not None:
        file.write_text(was)
    kept(tmp_path, file)
    assert sh(tmp_path, 'printf new | stage_file "$1" 644; place_file "$1"', file).returncode == 0
    file.write_text("by hand")
    file.chmod(mode)
    done = sh(tmp_path, "put_files_back")
    lost = tmp_path / "file.gpunode-lost"
    assert done.returncode == 0
    assert unnamed(done.stderr, file, lost) == []
    assert (lost.read_text(), lost.stat().st_mode & 0o777) == ("by hand", mode & 0o775)
    assert (file.read_text() if file.exists() else None) == was


def test_a_second_loss_takes_no_first_one_s_place(tmp_path: Path) -> None:
    file = tmp_path / "file"
    kept(tmp_path, file)
    for text in ("one", "two", "two"):
        file.write_text(text)
        assert sh(tmp_path, "put_files_back").returncode == 0
    assert {path.name: path.read_text() for path in tmp_path.glob("file*")} == {
        "file.gpunode-lost": "two", "file.gpunode-lost.~1~": "one",
    }  # fmt: skip


def test_a_folder_that_reads_every_file_gets_hidden_ones(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text("old")
    kept(tmp_path, file)
    assert sh(tmp_path, 'printf new | stage_file "$1" -', file, hidden="yes").returncode == 0
    assert (tmp_path / ".manifest.yaml.gpunode-new").exists()
    file.write_text("by hand")
    assert sh(tmp_path, "put_files_back", hidden="yes").returncode == 0
    assert [path.name for path in tmp_path.glob("manifest*")] == ["manifest.yaml"]
    assert (tmp_path / ".manifest.yaml.gpunode-lost").read_text() == "by hand"


def test_what_was_staged_and_not_placed_goes_with_the_undoing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    kept(tmp_path, file)
    assert sh(tmp_path, 'printf new | stage_file "$1" 644', file).returncode == 0
    (tmp_path / "file.gpunode-news").write_text("of somebody's")
    assert sh(tmp_path, "put_files_back").returncode == 0
    assert [path.name for path in tmp_path.glob("file*")] == ["file.gpunode-news"]


def test_what_a_later_step_of_gpunode_s_wrote_is_nobody_else_s(tmp_path: Path) -> None:
    file = tmp_path / "preferences"
    kept(tmp_path, file)
    file.write_text("held by a later operation")
    command = noted_command("driver", [str(file)]).get_raw_value().replace("/var/lib/gpunode/transactions", "$FOLDER")
    assert "$FOLDER/driver" in command
    text = command.replace("'checkpoint=$FOLDER/driver'", f"checkpoint={tmp_path}/kept")
    text = text.replace("checkpoint=$FOLDER/driver", f"checkpoint={tmp_path}/kept")
    assert shell.sh(text).returncode == 0
    done = sh(tmp_path, "put_files_back")
    assert (done.returncode, done.stderr, file.exists()) == (0, "", False)
    assert not list(tmp_path.glob("*.gpunode-lost"))


def test_a_file_that_was_not_kept_is_not_written(tmp_path: Path) -> None:
    kept(tmp_path, tmp_path / "file")
    done = sh(tmp_path, 'printf new | stage_file "$1" 644', tmp_path / "other")
    assert done.returncode != 0 and "was not kept" in done.stderr and not (tmp_path / "other").exists()
