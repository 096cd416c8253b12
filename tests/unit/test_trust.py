"""What trust in a repository rests on: what a node is asked, and the scripts run for real; decisions are cases."""

from __future__ import annotations

import hashlib
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.file import File
from gpunode.base.shell_file import shell_file
from gpunode.facts.families.dnf import DnfRepository
from gpunode.facts.file import File as FileFact
from gpunode.facts.packages import AptRepository
from gpunode.lab import signing
from gpunode.operations import repositories
from gpunode.operations.own_files import kept
from gpunode.operations.repositories import PINNED_KEY
from gpunode.operations.repositories import commands as trust_commands
from gpunode.operations.script import script
from gpunode.packages.apt_trust import DISABLED, Disable, Rewrite, Untrust
from gpunode.packages.trust import PERMISSIONS, PRIMARY_KEYS, Keyrings
from tests.support import dnf as dnf_support
from tests.support import operations as apt_support
from tests.support.messages import unnamed
from tests.support.shell import Done, programs, sh
from tests.support.simulated_host import Host, commands

FINGERPRINT = "A" * 40
APT, DNF = repositories.APT.paths("cuda"), repositories.DNF.paths("cuda")


@pytest.mark.pure
@pytest.mark.parametrize(
    ("operation", "fact", "trusted", "paths", "more"),
    [
        (repositories.APT.trusted, AptRepository, apt_support.TRUSTED, APT,
         {"distrusted": [*tables.drivers().retired_key_ids, FINGERPRINT]}),
        (repositories.DNF.trusted, DnfRepository, dnf_support.TRUSTED, DNF, {}),
    ],
)  # fmt: skip
def test_a_node_is_asked_for_the_files_of_this_repository_and_for_every_key_that_is_not_to_be_trusted(
    host: Host, monkeypatch: pytest.MonkeyPatch, operation: Any, fact: type, trusted: Any, paths: Any, more: Any
) -> None:
    asked: list[tuple[type, dict[str, Any]]] = []

    def get_fact(fact: type, **arguments: Any) -> Any:
        asked.append((fact, arguments))
        return trusted

    monkeypatch.setattr(host, "get_fact", get_fact)
    assert commands(operation, host, **apt_support.REPOSITORY) == []
    files = dict(zip(("keyring", "source", "stamp"), paths, strict=True))
    assert asked == [(fact, {**files, "uri": "https://host/cuda", **more})]
    assert (kept() or {})[paths[1]].sha256 == hashlib.sha256(trusted.source.encode()).hexdigest()


@pytest.mark.pure
def test_what_is_disabled_and_a_pinned_key_that_is_trusted_for_all_are_logged(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(host, "log", logged.append)
    present = {**vars(apt_support.TRUSTED), "others": (("/x.list", "deb https://host/cuda /\n"),)}
    host.readings[AptRepository] = type(apt_support.TRUSTED)(**{**present, "trusted": (("/b.gpg", (FINGERPRINT,)),)})
    assert len(commands(repositories.APT.trusted, host, **apt_support.REPOSITORY)) == 1
    caution, disabled = logged
    assert caution.startswith("caution: ") and unnamed(caution, "/b.gpg", "cuda") == []
    assert unnamed(disabled, "/x.list", "host/cuda") == []


@pytest.mark.pure
@pytest.mark.parametrize(
    ("operation", "paths"),
    [
        (repositories.APT.distrusted, [*APT, APT[2].replace(".refreshed", ".index")]),
        (repositories.DNF.distrusted, [*DNF]),
    ],
)
def test_a_repository_of_which_one_file_is_left_is_removed_whole_and_one_that_is_gone_is_left_alone(
    host: Host, monkeypatch: pytest.MonkeyPatch, operation: Any, paths: list[str]
) -> None:
    left, there = [""], File("0" * 64, "644", "root", "root")

    def get_fact(fact: type, path: str) -> File:
        assert fact is FileFact
        return there if path == left[0] else File(None, None, None, None)

    monkeypatch.setattr(host, "get_fact", get_fact)
    assert commands(operation, host, label="cuda") == [] and len(host.noops) == 1
    for left[0] in paths:
        (command,) = commands(operation, host, label="cuda")
        assert command.endswith(" ".join(paths)) and 'rm -f "$@"' in command
        assert operation is repositories.APT.distrusted or f" name=cuda key={paths[0]} " in command
    assert len(host.noops) == 1 and not host.refusals


@pytest.mark.pure
def test_keyrings_are_told_apart_by_their_repository() -> None:
    read = Keyrings((("cuda", FINGERPRINT), ("cuda", "B" * 40), ("toolkit", "C" * 40)), (("cuda", "644 root:root"),))
    assert (read.of("cuda"), read.of("toolkit"), read.of("docker")) == ((FINGERPRINT, "B" * 40), ("C" * 40,), ())
    assert (read.permissions_of("cuda"), read.permissions_of("toolkit")) == (PERMISSIONS, None)
    assert PERMISSIONS == "644 root:root"


# --- what the scripts of a repository do ------------------------------------------------------------------------------

# install needs root to give a file to root, which is shown here by what it was asked.
_INSTALL = """echo "$*" >> "$TMPDIR/../asked"
[ "$1 $2 $3 $4 $5 $6" = "-m 644 -o root -g root" ] || exit 9
shift 6
exec /usr/bin/install -m 644 "$@"
"""
FUNCTIONS = """umask 077
pinned_key() { echo "$*" >> "$TMPDIR/../asked"; printf KEY > "$2"; }
read_lists() { echo "$*" >> "$TMPDIR/../asked"; [ ! -e "$TMPDIR/../unreadable" ]; }
not_older() { [ ! -e "$TMPDIR/../older" ]; }
"""
SCRIPTS = {
    "apt": (repositories._TRUST, "keyring"),
    "rpm": (f"{repositories._KEY}read_lists || exit\n{repositories._STAMP}", "key"),
}
NAMES = ("key", "source", "stamp")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {name: tmp_path / "node" / name / name for name in NAMES}


def trust(folder: Path, family: str, files: dict[str, Path]) -> Done:
    """Run the script of a repository; it leaves no temporary file."""
    (folder / "temporary").mkdir(exist_ok=True)
    text, key = SCRIPTS[family]
    values = {{"key": key}.get(name, name): str(path) for name, path in files.items()}
    fixed = {"name": "cuda", "text": "TEXT %s\n", "key_url": "u", "fingerprint": "F"}
    environment = {"PATH": programs(folder, install=_INSTALL), "TMPDIR": str(folder / "temporary")}
    done = sh(script(f"{FUNCTIONS}{text}"), env={**environment, **fixed, **values})
    assert there(folder / "temporary") == []
    return done


@pytest.mark.real
@pytest.mark.parametrize("family", SCRIPTS)
def test_key_source_and_stamp_are_written_for_all_to_read_and_nothing_is_left_beside_them(
    tmp_path: Path, family: str, files: dict[str, Path]
) -> None:
    for _ in range(2):
        done = trust(tmp_path, family, files)
        assert (done.returncode, done.stderr) == (0, "")
        digest = hashlib.sha256(b"TEXT %s\nKEY").hexdigest()
        assert [files[name].read_text() for name in NAMES] == ["KEY", "TEXT %s\n", f"{digest}\n"]
        assert (mode(files["key"]), mode(files["source"])) == (0o644, 0o644)
        assert sorted(path.name for path in (tmp_path / "node").rglob("*") if path.is_file()) == [*NAMES]
    asked = (tmp_path / "asked").read_text().splitlines()
    # The key comes to a folder that only this program may write.
    assert asked[0].startswith(f"{files['key']} {tmp_path}/temporary/") and " u F cuda" in asked[0]


@pytest.mark.real
@pytest.mark.parametrize(("family", "fault"), [("apt", "unreadable"), ("apt", "older"), ("rpm", "unreadable")])
def test_a_repository_that_cannot_be_read_gets_no_stamp_so_that_the_next_run_reads_it(
    tmp_path: Path, family: str, fault: str, files: dict[str, Path]
) -> None:
    (tmp_path / fault).touch()
    done = trust(tmp_path, family, files)
    assert done.returncode == 1 and not files["stamp"].exists()
    if (family, fault) == ("apt", "unreadable"):
        assert unnamed(done.stderr, "cuda") == []
        read = (tmp_path / "asked").read_text().splitlines()[-1]
        assert "Error-Mode=any" in read and f"sourcelist={files['source']} " in read and "sourceparts=- " in read


# --- keys -------------------------------------------------------------------------------------------------------------

KEYRINGS = "/usr/share/keyrings/gpunode-*.gpg /etc/pki/rpm-gpg/gpunode-*.asc"
Keys = list[tuple[bytes, str]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Return two keys: armored text, and fingerprint."""
    folder = tmp_path_factory.mktemp("keys")
    return [signing.public_key(signing.key_file(folder, name)) for name in ("good", "other")]


@pytest.mark.real
def test_each_keyring_of_ours_is_read_with_its_keys_and_its_permissions_and_none_where_there_is_none(
    tmp_path: Path, keys: Keys
) -> None:
    text = f"set -eu\n{PRIMARY_KEYS}{shell_file('packages/keyrings')}\n"
    assert KEYRINGS in text
    folder = tmp_path / "k"
    folder.mkdir()
    ours = text.replace(KEYRINGS, f"{folder}/gpunode-*.gpg {folder}/gpunode-*.asc")
    # Nor where there is no gpg.
    for nothing in (ours, text.replace("set -eu", "set -eu\nPATH=/nowhere")):
        done = sh(nothing, env={"HOME": str(tmp_path)})
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    rings = {"gpunode-cuda.gpg": (keys, 0o664), "gpunode-docker.asc": (keys[1:], 0o644), "another.gpg": (keys, 0o644)}
    for name, (held, bits) in rings.items():
        (folder / name).write_bytes(b"".join(key for key, _ in held))
        (folder / name).chmod(bits)
    owner = f"{folder.owner()}:{(folder / 'another.gpg').group()}"
    assert sorted(sh(ours, env={"HOME": str(tmp_path)}).stdout.splitlines()) == sorted([
        f"permissions=cuda 664 {owner}", f"permissions=docker 644 {owner}",
        f"key=cuda {keys[0][1]}", f"key=cuda {keys[1][1]}", f"key=docker {keys[1][1]}",
    ])  # fmt: skip


@pytest.mark.real
def test_who_asks_for_primary_keys_keeps_its_own_arguments_and_separators(tmp_path: Path, keys: Keys) -> None:
    (tmp_path / "a b*.gpg").write_bytes(keys[0][0])
    text = f"set -eu\n{PRIMARY_KEYS}set -- one two\nprimary_keys 'a b*.gpg'\nprintf '%s|' \"$@\" \"$IFS\" $-"
    done = sh(text, cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert done.stdout.startswith(f"{keys[0][1]}\none|two| \t\n|")
    assert "f" not in done.stdout.rpartition("|\n")[2].split("|")[-2]


def pinned(folder: Path, served: bytes | None, fingerprint: str, **stubs: str) -> Done:
    if served is not None:
        (folder / "served").write_bytes(served)
    call = f"pinned_key '{folder}/absent' '{folder}/out' 'file://{folder}/served' {fingerprint} cuda"
    return sh(script(f"{PINNED_KEY}{call}"), env={"PATH": programs(folder, **stubs), "HOME": str(folder)})


@pytest.mark.real
def test_a_key_that_cannot_be_fetched_is_named_and_leaves_nothing_to_be_trusted(tmp_path: Path, keys: Keys) -> None:
    done = pinned(tmp_path, None, keys[0][1])
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert unnamed(done.stderr, f"file://{tmp_path}/served") == [] and keys[0][1] not in done.stderr


@pytest.mark.real
def test_a_key_that_gpg_does_not_export_fails(tmp_path: Path, keys: Keys) -> None:
    """gpg is SIMULATED for the export alone, which writes another key."""
    (tmp_path / "other").write_bytes(keys[1][0])
    gpg = f'case "$*" in *--export*) cp {tmp_path}/other {tmp_path}/out;; *) exec /usr/bin/gpg "$@";; esac'
    done = pinned(tmp_path, *keys[0], gpg=gpg)
    assert done.returncode == 1
    assert unnamed(done.stderr, "gpg", keys[0][1]) == [] and keys[1][1] not in done.stderr


@pytest.mark.real
def test_a_home_of_gpg_s_that_a_killed_run_left_brings_none_of_its_keys_along(tmp_path: Path, keys: Keys) -> None:
    (tmp_path / "out.home").mkdir()
    (tmp_path / "out.home/left").touch()
    assert pinned(tmp_path, *keys[0]).returncode == 0
    assert not (tmp_path / "out.home/left").exists()
    assert mode(tmp_path / "out.home") == 0o700


# --- what is taken from apt -------------------------------------------------------------------------------------------


def carried_out(folder: Path, step: Any, given: str | None = None, **stubs: str) -> Done:
    """Carry a step out, and see that it leaves nothing in the folder of temporary files."""
    (command,) = trust_commands([step])
    whole = "".join(f"{line}\n" for line in command.connector_arguments.get("_stdin", []))
    # In /tmp: the socket of gpg's agent takes no long path.
    with tempfile.TemporaryDirectory(prefix="gpunode-", dir="/tmp") as temporary:
        environment = {"PATH": programs(folder, **stubs), "HOME": str(folder), "TMPDIR": temporary}
        done = sh(command.get_raw_value(), given=whole if given is None else given, env=environment)
        assert there(Path(temporary)) == []
    assert not (folder / ".gnupg").exists()
    return done


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a file of apt's that is to change."""
    path = tmp_path / "etc/old"
    path.parent.mkdir()
    path.write_text("old")
    path.chmod(0o640)
    return path


@pytest.mark.real
def test_a_list_gets_its_new_text_and_keeps_its_mode_and_the_old_one_beside_it(tmp_path: Path, old: Path) -> None:
    beside = old.with_name(old.name + DISABLED)
    order = tmp_path / "order"
    noting = {name: f'echo "{name} $*" >> {order}\nexec /bin/{name} "$@"' for name in ("sync", "mv")}
    done = carried_out(tmp_path, Rewrite(str(old), "new ü %s\n", "names it twice"), **noting)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert unnamed(line, old, beside, "names it twice") == []
    assert [(path.read_text(), mode(path)) for path in (old, beside)] == [("new ü %s\n", 0o640), ("old", 0o640)]
    assert there(old.parent) == [old.name, beside.name]
    # The new text is on the disk before it takes the file's place.
    calls = order.read_text().splitlines()
    assert calls[0] == f"sync {old}.gpunode-new" and calls[-1] == f"mv -f -T -- {old}.gpunode-new {old}"


@pytest.mark.real
def test_a_list_whose_new_text_did_not_come_whole_stays_as_it_is(tmp_path: Path, old: Path) -> None:
    assert carried_out(tmp_path, Rewrite(str(old), "new", "names it twice"), given="bmV3").returncode != 0
    assert (old.read_text(), there(old.parent)) == ("old", [old.name])


@pytest.mark.real
def test_a_file_is_put_out_of_sight_by_its_name(tmp_path: Path, old: Path) -> None:
    done = carried_out(tmp_path, Disable(str(old), "names it twice"))
    (line,) = done.stdout.splitlines()
    assert unnamed(line, old, "names it twice") == []
    assert there(old.parent) == [old.name + DISABLED]


@pytest.mark.real
def test_a_keyring_loses_the_keys_that_are_named_unless_nothing_would_be_left(
    tmp_path: Path, old: Path, keys: Keys
) -> None:
    old.write_bytes(keys[0][0] + keys[1][0])
    done = carried_out(tmp_path, Untrust(str(old), (keys[1][1],), "trusts it"))
    assert (done.returncode, mode(old)) == (0, 0o640), done.stderr
    assert there(old.parent) == [old.name, old.name + DISABLED]
    left = old.read_bytes()
    done = carried_out(tmp_path, Untrust(str(old), (keys[0][1],), "trusts it"))
    assert done.returncode == 1 and unnamed(done.stderr, "gpg", old) == []
    assert (old.read_bytes(), there(old.parent)) == (left, [old.name, old.name + DISABLED])
