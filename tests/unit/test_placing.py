"""A file of somebody's gets another text and stays his, by the real coreutils; who may write it is SIMULATED."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.operations.files import replace_command, write_command
from gpunode.operations.script import script
from tests.support.messages import unnamed
from tests.support.shell import Done, programs, sh

pytestmark = pytest.mark.real

ROOT_S, SHARED, ANYBODY_S = "0 0 drwxr-xr-x", "0 27 drwxrwxr-x", "0 0 drwxrwxrwt"


def carried_out(folder: Path, command: StringCommand, given: str | None = None, **stubs: str) -> Done:
    (line,) = command.connector_arguments["_stdin"]
    path = programs(folder, **stubs)
    return sh(command.get_raw_value(), given=f"{line}\n" if given is None else given, env={"PATH": path})


def roots_alone(folder: Path, path: str, **modes: str) -> Done:
    """Run the function on `path`; modes: folder's name -> what stat says of it."""
    table = "".join(f"{name}) echo '{said}';; " for name, said in modes.items())
    stat = f"for last; do :; done\ncase ${{last##*/}} in {table} *) echo '{ROOT_S}';; esac"
    return sh(script(f"{script_file('placing')}\nroots_alone '{path}'"), env={"PATH": programs(folder, stat=stat)})


@pytest.mark.parametrize(
    ("said", "good"),
    [
        (ROOT_S, True),
        ("0 0 drwxrwxr-x", True),
        ("0 27 drwxr-xr-x", True),
        (SHARED, False),
        (ANYBODY_S, False),
        ("0 0 drwxr-xrwx", False),
        ("1000 0 drwxr-xr-x", False),
        ("1000 1000 drwx------", False),
        ("10 0 drwxr-xr-x", False),
    ],
)
@pytest.mark.parametrize("name", ["etc", "site", "deep"])
def test_whoever_may_write_a_folder_above_decides_what_the_file_is(
    tmp_path: Path, said: str, good: bool, name: str
) -> None:
    path = tmp_path / "etc" / "site" / "deep" / "config.toml"
    path.parent.mkdir(parents=True)
    done = roots_alone(tmp_path, str(path), **{name: said})
    assert (done.returncode == 0) == good, done.stderr
    assert (f"/{name} of {path}" in done.stderr) != good


def test_of_a_folder_that_is_not_there_yet_the_one_above_counts(tmp_path: Path) -> None:
    path = f"{tmp_path}/etc/absent/config.toml"
    (tmp_path / "etc").mkdir()
    assert roots_alone(tmp_path, path).returncode == 0
    assert roots_alone(tmp_path, path, etc=ANYBODY_S).returncode == 1


def test_a_folder_that_cannot_be_looked_at_is_no_good_one(tmp_path: Path) -> None:
    assert sh(script(f"{script_file('placing')}\nroots_alone '{tmp_path}/absent/file'")).returncode != 0


def replaced(folder: Path, path: Path, text: str, read: str | None = None) -> Done:
    stat = f"case \"$*\" in *'%u %g %A'*) echo '{ROOT_S}';; *) PATH=/usr/bin:/bin exec stat \"$@\";; esac"
    return carried_out(folder, replace_command(str(path), text, read), stat=stat)


@pytest.mark.parametrize(("mode", "then"), [(0o600, 0o600), (0o640, 0o640), (0o666, 0o664), (0o777, 0o775)])
@pytest.mark.parametrize("linked", [False, True])
def test_text_changes_and_mode_and_link_do_not(tmp_path: Path, mode: int, then: int, linked: bool) -> None:
    real = tmp_path / "config.toml"
    real.write_text("old")
    real.chmod(mode)
    path = tmp_path / "link.toml" if linked else real
    if linked:
        path.symlink_to(real.name)
    done = replaced(tmp_path, path, "new $(text)\n", "old")
    assert (done.returncode, done.stderr) == (0, "")
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("new $(text)\n", then)
    assert path.is_symlink() == linked
    assert not list(tmp_path.glob("*.gpunode-new"))


def test_a_new_file_is_for_all_to_read_and_for_its_owner_to_write(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "config.toml"
    assert replaced(tmp_path, path, "new").returncode == 0
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o644)


@pytest.mark.parametrize("read", ["older", None])
def test_a_file_that_is_no_more_what_was_read_stays(tmp_path: Path, read: str | None) -> None:
    path = tmp_path / "config.toml"
    path.write_text("by somebody, a moment ago")
    done = replaced(tmp_path, path, "new", read)
    assert done.returncode == 1 and unnamed(done.stderr, path) == []
    assert path.read_text() == "by somebody, a moment ago" and not list(tmp_path.glob("*.gpunode-new"))


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.symlink_to(tmp_path / "absent" / "config.toml")
    done = replaced(tmp_path, path, "new")
    assert done.returncode == 1
    assert "leads nowhere" in done.stderr


def test_a_file_is_root_s_has_its_mode_and_is_on_the_disk_before_it_takes_its_place(tmp_path: Path) -> None:
    """chown and sync are SIMULATED."""
    path, order = tmp_path / "a/b/file", tmp_path / "order"
    new = f"{path}.gpunode-new"
    real = {name: f'exec /bin/{name} "$@"' for name in ("mv", "chmod")}
    noting = {name: f'echo "{name} $*" >> {order}\n{real.get(name, "")}' for name in ("chown", "sync", *real)}
    for given, mode in (({"mode": "640"}, 0o640), ({}, 0o644)):
        order.unlink(missing_ok=True)
        done = carried_out(tmp_path, write_command(str(path), "té$xt\n", **given), **noting)
        assert (done.returncode, done.stderr) == (0, "")
        assert order.read_text().splitlines() == [
            f"chown root:root {new}", f"chmod {mode:o} {new}", f"sync {new}", f"mv -fT {new} {path}",
        ]  # fmt: skip
        assert (path.read_text(), path.stat().st_mode & 0o777) == ("té$xt\n", mode)
        assert [each.name for each in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("given", ["", "QUJD"])
def test_a_text_whose_end_was_cut_off_takes_no_file_s_place(tmp_path: Path, given: str) -> None:
    """Whoever reads standard input is told of no cut connection: only the line's end says that all has come."""
    path = tmp_path / "config.toml"
    path.write_text("old")
    for command in (write_command(str(path), "ABCDEF"), replace_command(str(path), "ABCDEF", "old")):
        # Every folder is root's alone here: the text is to be why it is refused.
        done = carried_out(tmp_path, command, given, stat=f"echo '{ROOT_S}'")
        assert (done.returncode != 0, done.stderr) == (True, "")
        assert path.read_text() == "old"


def target_of(path: Path) -> Done:
    return sh(script(f'{script_file("placing")}\ntarget_of "$1"'), path)


@pytest.mark.parametrize("rest", ["daemon.json", "docker/daemon.json", "a/b/daemon.json"])
def test_of_a_path_whose_folders_are_missing_the_links_above_are_followed_all_the_same(
    tmp_path: Path, rest: str
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "etc").symlink_to(tmp_path / "site")
    done = target_of(tmp_path / "etc" / rest)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/site/{rest}\n")


def test_a_link_may_lead_to_a_file_that_is_to_come_and_to_no_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.symlink_to(tmp_path / "later.toml")
    assert target_of(path).stdout == f"{tmp_path}/later.toml\n"
    path.unlink()
    path.symlink_to(tmp_path / "absent" / "later.toml")
    assert target_of(path).returncode != 0


def test_what_stands_in_a_folder_s_place_and_is_none_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "docker"
    file.write_text("")
    done = roots_alone(tmp_path, f"{file}/daemon.json", docker="0 0 -rw-r--r--")
    assert done.returncode == 1
    assert unnamed(done.stderr, file, f"{file}/daemon.json") == [] and file.read_text() == ""


def test_a_refused_file_s_missing_folders_are_not_made(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    command = replace_command(str(tmp_path / "site" / "docker" / "daemon.json"), "{}", None)
    done = carried_out(tmp_path, command, stat=f"echo '{ANYBODY_S}'")
    assert done.returncode == 1 and unnamed(done.stderr, tmp_path / "site") == []
    assert not (tmp_path / "site" / "docker").exists()
