"""What trust in a repository rests on, each guard by itself: the operation's decision, and its script run for real."""

from __future__ import annotations

import hashlib
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.file import File
from gpunode.base.reading import ParseError, Unknown
from gpunode.base.shell_file import shell_file
from gpunode.facts.deb import AptRepository as AptRepositoryFact
from gpunode.facts.families.dnf import DnfRepository
from gpunode.facts.file import File as FileFact
from gpunode.lab import signing
from gpunode.operations import apt, dnf, rpm_repository
from gpunode.operations.apt_trust import commands as trust_commands
from gpunode.operations.own_files import kept
from gpunode.operations.pinned_key import PINNED_KEY
from gpunode.operations.script import script
from gpunode.packages.apt_trust import DISABLED, Disable, Rewrite, Untrust, fields, normal_uri, plan, world_trusted
from gpunode.packages.deb import AptRepository
from gpunode.packages.families.apt import source_text
from gpunode.packages.families.dnf import repository_text
from gpunode.packages.keyring import PERMISSIONS, PRIMARY_KEYS, Keyrings, parse_keyrings
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands

FINGERPRINT = "A" * 40
OTHER = "B" * 40
URI = "https://host/cuda"
ASKED: dict[str, Any] = {
    "label": "cuda", "uri": URI, "key_url": "https://host/key", "key_fingerprint": FINGERPRINT,
}  # fmt: skip
KEYRING = "/usr/share/keyrings/gpunode-cuda.gpg"
SOURCE = "/etc/apt/sources.list.d/gpunode-cuda.sources"
STAMP = "/var/lib/gpunode/apt/cuda.refreshed"
TEXT = f"# Written by gpunode\nTypes: deb\nURIs: {URI}\nSuites: /\nSigned-By: {KEYRING}\n"
TRUSTED = AptRepository((FINGERPRINT,), TEXT, "digest", "digest", "amd64", permissions=PERMISSIONS)
STRAY = ("/etc/apt/sources.list.d/cuda.list", f"deb {URI} /\n")
RETIRED = tables.drivers().retired_key_ids[0].rjust(40, "0")


class Asked(Host):
    """Keep, too, what facts were asked with, and what was logged."""

    def __init__(self, readings: dict[type, Any]) -> None:
        super().__init__(readings)
        self.asked: list[tuple[type, dict[str, Any]]] = []
        self.logged: list[str] = []

    def get_fact(self, fact: type, **arguments: Any) -> Any:
        self.asked.append((fact, arguments))
        found = self.readings[fact]
        return found(**arguments) if callable(found) else found

    def log(self, said: str) -> None:
        self.logged.append(said)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, host: Host) -> Asked:
    made = Asked({AptRepositoryFact: TRUSTED, DnfRepository: TRUSTED})
    for module in ("gpunode.operations.apt", "gpunode.operations.repositories", "gpunode.operations.rpm_repository"):
        monkeypatch.setattr(f"{module}.host", made)
    return made


def changed(**what: Any) -> AptRepository:
    return AptRepository(**{**vars(TRUSTED), **what})


# --- what is decided --------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_a_node_is_asked_for_the_files_of_this_repository_and_for_every_key_that_is_not_to_be_trusted(
    asked: Asked,
) -> None:
    assert commands(apt.repository, asked, **ASKED) == []
    assert asked.asked == [
        (AptRepositoryFact, {
            "keyring": KEYRING, "source": SOURCE, "stamp": STAMP, "uri": URI,
            "distrusted": [*tables.drivers().retired_key_ids, FINGERPRINT],
        })
    ]  # fmt: skip
    assert len(asked.noops) == 1 and not asked.refusals
    assert (kept() or {})[SOURCE].sha256 == hashlib.sha256(TEXT.encode()).hexdigest()


@pytest.mark.pure
@pytest.mark.parametrize(
    "stray",
    [
        {"fingerprints": ()}, {"fingerprints": (OTHER,)}, {"fingerprints": (FINGERPRINT, OTHER)},
        {"permissions": None}, {"permissions": "664 root:root"}, {"source": None}, {"source": TEXT.replace("deb", "x")},
        {"digest": None}, {"digest": None, "refreshed": None}, {"refreshed": None}, {"refreshed": "older"},
    ],
)  # fmt: skip
def test_a_repository_that_differs_in_one_point_is_trusted_anew(asked: Asked, stray: dict[str, Any]) -> None:
    asked.readings[AptRepositoryFact] = changed(**stray)
    (command,) = commands(apt.repository, asked, **ASKED, proxies={"https_proxy": "http://proxy:1"})
    for setting in (
        "name=cuda", f"keyring={KEYRING}", f"source={SOURCE}", f"stamp={STAMP}", "key_url=https://host/key",
        f"fingerprint={FINGERPRINT}", "https_proxy=http://proxy:1",
    ):  # fmt: skip
        assert f" {setting} " in command
    assert f"text={TEXT}" in command
    assert not asked.noops and not asked.refusals


@pytest.mark.pure
def test_a_second_entry_is_disabled_and_said_behind_our_own_where_that_is_to_come(asked: Asked) -> None:
    asked.readings[AptRepositoryFact] = changed(others=(STRAY,))
    (alone,) = commands(apt.repository, asked, **ASKED)
    assert f"path={STRAY[0]} " in alone and not asked.noops
    (line,) = asked.logged
    assert unnamed(line, STRAY[0], "host/cuda") == []
    asked.readings[AptRepositoryFact] = changed(others=(STRAY,), refreshed="older")
    first, second = commands(apt.repository, asked, **ASKED)
    assert f" fingerprint={FINGERPRINT} " in first and second == alone


@pytest.mark.pure
def test_an_entry_of_another_suite_or_architecture_is_none_of_ours(asked: Asked) -> None:
    asked.readings[AptRepositoryFact] = changed(others=(STRAY,))
    assert len(commands(apt.repository, asked, **ASKED, suite="stable", components="main")) == 1
    assert asked.logged == []
    asked.readings[AptRepositoryFact] = changed(others=((STRAY[0], "deb https://host/cuda/$(ARCH) /\n"),))
    assert len(commands(apt.repository, asked, **{**ASKED, "uri": "https://host/cuda/amd64"})) == 2
    assert len(commands(apt.repository, asked, **{**ASKED, "uri": "https://host/cuda/arm64"})) == 1


@pytest.mark.pure
def test_a_retired_key_is_taken_out_of_world_trust_and_ours_is_told_of(asked: Asked) -> None:
    asked.readings[AptRepositoryFact] = changed(trusted=(("/a.gpg", (RETIRED,)), ("/b.gpg", (FINGERPRINT,))))
    (command,) = commands(apt.repository, asked, **ASKED)
    assert "path=/a.gpg " in command
    assert asked.logged[0].startswith("caution: ") and unnamed(asked.logged[0], "/b.gpg", "cuda") == []
    assert "/a.gpg" not in asked.logged[0]


@pytest.mark.pure
def test_an_entry_that_cannot_be_taken_out_by_itself_is_refused_by_the_repository_s_name(asked: Asked) -> None:
    text = f"Types: deb\nURIs: https://mirror/a {URI}\nSuites: / b/\n"
    asked.readings[AptRepositoryFact] = changed(others=(("/x.sources", text),))
    assert commands(apt.repository, asked, **ASKED) == []
    assert unnamed(asked.refusals[0], "cuda", "host/cuda") == []


@pytest.mark.pure
@pytest.mark.parametrize("operation", [apt.repository, dnf.repository])
def test_a_node_that_does_not_answer_gets_no_repository(asked: Asked, operation: Any) -> None:
    asked.readings = dict.fromkeys(asked.readings, Unknown("no answer"))
    assert commands(operation, asked, **ASKED) == []
    assert unnamed(asked.refusals[0], "cuda", "(no answer)") == []


@pytest.mark.pure
def test_components_stand_in_the_source_and_a_flat_one_has_none() -> None:
    assert source_text(URI, KEYRING) == TEXT
    assert source_text(URI, KEYRING, "bookworm", "stable").splitlines()[3:5] == [
        "Suites: bookworm", "Components: stable",
    ]  # fmt: skip


@pytest.mark.pure
@pytest.mark.parametrize(
    ("operation", "paths"),
    [
        (apt.no_repository, [KEYRING, SOURCE, STAMP, STAMP.replace(".refreshed", ".index")]),
        (dnf.no_repository, [
            "/etc/pki/rpm-gpg/gpunode-cuda.asc", "/etc/yum.repos.d/gpunode-cuda.repo",
            "/var/lib/gpunode/dnf/cuda.refreshed",
        ]),
    ],
)  # fmt: skip
def test_a_repository_of_which_one_file_is_left_is_removed_whole_and_one_that_is_gone_is_left_alone(
    asked: Asked, operation: Any, paths: list[str]
) -> None:
    absent = File(None, None, None, None)
    for left in paths:
        asked.readings[FileFact] = lambda path, left=left: (
            File("0" * 64, "644", "root", "root") if path == left else absent
        )
        (command,) = commands(operation, asked, label="cuda")
        assert command.endswith(" ".join(paths)) and 'rm -f "$@"' in command
        assert operation is apt.no_repository or f" name=cuda key={paths[0]} " in command
    assert asked.noops == []
    asked.readings[FileFact] = absent
    assert commands(operation, asked, label="cuda") == []
    assert len(asked.noops) == 1 and not asked.refusals


@pytest.mark.pure
def test_an_rpm_repository_is_asked_for_by_its_own_files_and_trusted_anew_with_what_its_script_names(
    asked: Asked,
) -> None:
    key, source, stamp = dnf.REPOSITORIES.paths("cuda")
    text = repository_text("cuda", URI, key, True)
    asked.readings[DnfRepository] = changed(source=text)
    assert commands(dnf.repository, asked, **ASKED) == []
    assert asked.asked == [(DnfRepository, {"keyring": key, "source": source, "stamp": stamp, "uri": URI})]
    assert len(asked.noops) == 1 and not asked.refusals
    assert (kept() or {})[source].sha256 == hashlib.sha256(text.encode()).hexdigest()
    for stray in ({"digest": None, "refreshed": None}, {"permissions": None}, {"source": None}):
        asked.readings[DnfRepository] = changed(**{"source": text, **stray})
        (command,) = commands(dnf.repository, asked, **ASKED, proxies={"http_proxy": "http://p"})
        for setting in ("name=cuda", f"key={key}", f"source={source}", f"stamp={stamp}", "key_url=https://host/key",
                        f"fingerprint={FINGERPRINT}", "http_proxy=http://p"):  # fmt: skip
            assert f" {setting} " in command
        # A proxy of another scheme is none of this address.
        assert "proxy=http://p" not in command.partition("text=")[2].partition(" key_url=")[0]
    (command,) = commands(dnf.repository, asked, **ASKED, proxies={"https_proxy": "http://p"}, packages_signed=False)
    written = command.partition("text=")[2].partition(" key_url=")[0]
    assert "proxy=http://p" in written and "gpgcheck=0" in written


# --- what the scripts do ----------------------------------------------------------------------------------------------

# install needs root to give a file to root, which is told here by what it was asked.
_INSTALL = """#!/bin/sh
echo "$*" >> "$TMPDIR/../asked"
[ "$1 $2 $3 $4 $5 $6" = "-m 644 -o root -g root" ] || exit 9
shift 6
exec /usr/bin/install -m 644 "$@"
"""
FUNCTIONS = """
pinned_key() { echo "$*" >> "$TMPDIR/../asked"; printf KEY > "$2"; }
read_lists() { echo "$*" >> "$TMPDIR/../asked"; [ ! -e "$TMPDIR/../unreadable" ]; }
not_older() { [ ! -e "$TMPDIR/../older" ]; }
"""


def trust(folder: Path, body: str, **values: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a repository in a folder, below `node`; TMPDIR is to be empty behind it."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "temporary").mkdir(exist_ok=True)
    (folder / "bin/install").write_text(_INSTALL)
    (folder / "bin/install").chmod(0o755)
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "TMPDIR": str(folder / "temporary"), **values}
    return subprocess.run(
        ["sh", "-c", script(f"umask 077\n{FUNCTIONS}{body}")], env=environment, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


SCRIPTS: dict[str, tuple[Callable[[], str], str]] = {
    "apt": (lambda: apt._TRUST, "keyring"),
    "rpm": (lambda: rpm_repository._KEY + "read_lists || exit\n" + rpm_repository._STAMP, "key"),
}


@pytest.fixture(params=SCRIPTS)
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[], Any], dict[str, Path]]:
    """Return a function that trusts a repository, and its files by name."""
    text, key = SCRIPTS[request.param]
    files = {"key": tmp_path / "node/a/key", "source": tmp_path / "node/b/source", "stamp": tmp_path / "node/c/stamp"}

    def run() -> subprocess.CompletedProcess[str]:
        values = {key: str(files["key"]), "source": str(files["source"]), "stamp": str(files["stamp"])}
        return trust(tmp_path, text(), name="cuda", text="TEXT %s\n", key_url="u", fingerprint="F", **values)

    return run, files


@pytest.mark.real
def test_key_source_and_stamp_are_written_for_all_to_read_and_nothing_is_left_beside_them(
    tmp_path: Path, repository: tuple[Callable[[], Any], dict[str, Path]]
) -> None:
    run, files = repository
    for _ in range(2):
        done = run()
        assert (done.returncode, done.stderr) == (0, "")
        assert (files["key"].read_text(), files["source"].read_text()) == ("KEY", "TEXT %s\n")
        assert (mode(files["key"]), mode(files["source"])) == (0o644, 0o644)
        digest = hashlib.sha256(b"TEXT %s\nKEY").hexdigest()
        assert files["stamp"].read_text() == f"{digest}\n"
        # Neither the folder of the key, which only this program may write, nor a half-written file.
        assert list((tmp_path / "temporary").iterdir()) == []
        assert sorted(path.name for path in (tmp_path / "node").rglob("*") if path.is_file()) == [
            "key",
            "source",
            "stamp",
        ]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0].startswith(f"{files['key']} {tmp_path}/temporary/") and " u F cuda" in asked[0]


@pytest.mark.real
@pytest.mark.parametrize("fault", ["unreadable", "older"])
def test_a_repository_that_cannot_be_read_gets_no_stamp_so_that_the_next_run_reads_it(
    tmp_path: Path, repository: tuple[Callable[[], Any], dict[str, Path]], fault: str, request: pytest.FixtureRequest
) -> None:
    run, files = repository
    if fault == "older" and "rpm" in request.node.name:
        pytest.skip("dnf and zypper take an older index (docs/security.md)")
    (tmp_path / fault).touch()
    assert run().returncode == 1
    assert not files["stamp"].exists()
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.real
def test_apt_s_failure_is_said_by_the_repository_s_name_and_its_one_source_alone_is_read(tmp_path: Path) -> None:
    files = {name: str(tmp_path / "node" / name) for name in ("keyring", "source", "stamp")}
    (tmp_path / "unreadable").touch()
    done = trust(tmp_path, apt._TRUST, name="cuda", text="TEXT", key_url="u", fingerprint="F", **files)
    assert done.returncode == 1
    assert unnamed(done.stderr, "cuda") == [] and not Path(files["stamp"]).exists()
    read = (tmp_path / "asked").read_text().splitlines()[-1]
    assert "Error-Mode=any" in read and f"sourcelist={files['source']} " in read and "sourceparts=- " in read


KEYRINGS = "/usr/share/keyrings/gpunode-*.gpg /etc/pki/rpm-gpg/gpunode-*.asc"
Keys = list[tuple[bytes, str]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Return two keys: armored text, and fingerprint."""
    folder = tmp_path_factory.mktemp("keys")
    return [signing.public_key(signing.key_file(folder, name)) for name in ("good", "other")]


def shell(text: str, folder: Path, **values: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), **values}
    return subprocess.run(
        ["sh", "-c", text], env=environment, capture_output=True, text=True, check=False, timeout=60, cwd=folder
    )


@pytest.mark.real
def test_each_keyring_of_ours_is_told_with_its_keys_and_its_permissions_and_none_where_there_is_none(
    tmp_path: Path, keys: Keys
) -> None:
    text = f"set -eu\n{PRIMARY_KEYS}{shell_file('packages/keyrings')}\n"
    assert KEYRINGS in text
    text = text.replace(KEYRINGS, f"{tmp_path}/k/gpunode-*.gpg {tmp_path}/k/gpunode-*.asc")
    (tmp_path / "k").mkdir()
    none = shell(text, tmp_path)
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "")
    (tmp_path / "k/gpunode-cuda.gpg").write_bytes(keys[0][0] + keys[1][0])
    (tmp_path / "k/gpunode-docker.asc").write_bytes(keys[1][0])
    (tmp_path / "k/another.gpg").write_bytes(keys[1][0])
    for path, bits in (("gpunode-cuda.gpg", 0o664), ("gpunode-docker.asc", 0o644)):
        (tmp_path / "k" / path).chmod(bits)
    done = shell(text, tmp_path)
    owner = f"{tmp_path.owner()}:{(tmp_path / 'k/another.gpg').group()}"
    assert sorted(done.stdout.splitlines()) == sorted([
        f"permissions=cuda 664 {owner}", f"permissions=docker 644 {owner}",
        f"key=cuda {keys[0][1]}", f"key=cuda {keys[1][1]}", f"key=docker {keys[1][1]}",
    ])  # fmt: skip


@pytest.mark.real
def test_a_node_without_gpg_tells_of_no_keyring(tmp_path: Path) -> None:
    done = shell(f"set -eu\nPATH=/nowhere\n{PRIMARY_KEYS}{shell_file('packages/keyrings')}\n", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.real
def test_who_asks_for_primary_keys_keeps_its_own_arguments_and_separators(tmp_path: Path, keys: Keys) -> None:
    (tmp_path / "a b*.gpg").write_bytes(keys[0][0])
    text = f"set -eu\n{PRIMARY_KEYS}set -- one two\nprimary_keys 'a b*.gpg'\nprintf '%s|' \"$@\" \"$IFS\" $-"
    done = shell(text, tmp_path)
    assert done.stdout.startswith(f"{keys[0][1]}\none|two| \t\n|")
    assert "f" not in done.stdout.rpartition("|\n")[2].split("|")[-2]


def pinned(folder: Path, url: str, fingerprint: str) -> subprocess.CompletedProcess[str]:
    text = script(f"{PINNED_KEY}pinned_key '{folder}/absent' '{folder}/out' '{url}' {fingerprint} cuda")
    return shell(text, folder)


@pytest.mark.real
def test_a_key_that_cannot_be_fetched_is_said_and_leaves_nothing_to_be_trusted(tmp_path: Path, keys: Keys) -> None:
    done = pinned(tmp_path, f"file://{tmp_path}/nowhere", keys[0][1])
    assert done.returncode == 1
    assert unnamed(done.stderr, f"file://{tmp_path}/nowhere") == [] and keys[0][1] not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.real
def test_a_key_that_gpg_does_not_export_is_said_and_fails(tmp_path: Path, keys: Keys) -> None:
    """gpg is SIMULATED for the export alone, which writes another key."""
    (tmp_path / "served").write_bytes(keys[0][0])
    (tmp_path / "other").write_bytes(keys[1][0])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gpg").write_text(
        f'#!/bin/sh\ncase "$*" in *--export*) cp {tmp_path}/other {tmp_path}/out;; *) exec /usr/bin/gpg "$@";; esac\n'
    )
    (tmp_path / "bin/gpg").chmod(0o755)
    text = script(
        f"{PINNED_KEY}pinned_key '{tmp_path}/absent' '{tmp_path}/out' 'file://{tmp_path}/served' {keys[0][1]} cuda"
    )
    done = shell(text, tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert done.returncode == 1
    assert unnamed(done.stderr, "gpg", keys[0][1]) == [] and keys[1][1] not in done.stderr


@pytest.mark.real
def test_a_home_of_gpg_s_that_a_killed_run_left_brings_none_of_its_keys_along(tmp_path: Path, keys: Keys) -> None:
    (tmp_path / "served").write_bytes(keys[0][0])
    (tmp_path / "out.home").mkdir()
    (tmp_path / "out.home/left").touch()
    assert pinned(tmp_path, f"file://{tmp_path}/served", keys[0][1]).returncode == 0
    assert not (tmp_path / "out.home/left").exists()
    assert mode(tmp_path / "out.home") == 0o700


# --- what is taken from apt -------------------------------------------------------------------------------------------


def carried_out(folder: Path, step: Any, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    """Carry a step out, and see that it leaves nothing in the folder of temporary files."""
    (command,) = trust_commands([step])
    given = "".join(f"{line}\n" for line in command.connector_arguments.get("_stdin", []))
    # In /tmp: the socket of gpg's agent takes no long path.
    with tempfile.TemporaryDirectory(prefix="gpunode-", dir="/tmp") as temporary:
        done = subprocess.run(
            ["sh", "-c", command.get_raw_value()], env={"PATH": path, "HOME": str(folder), "TMPDIR": temporary},
            input=given, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert there(Path(temporary)) == []
    return done


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.real
def test_a_list_gets_its_new_text_and_keeps_its_mode_and_the_old_one_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "etc/mixed.list"
    path.parent.mkdir()
    path.write_text("old")
    path.chmod(0o640)
    done = carried_out(tmp_path, Rewrite(str(path), "new ü %s\n", "names it twice"))
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert unnamed(line, path, f"{path}{DISABLED}", "names it twice") == []
    assert (path.read_text(), mode(path)) == ("new ü %s\n", 0o640)
    assert path.with_name(path.name + DISABLED).read_text() == "old"
    assert mode(path.with_name(path.name + DISABLED)) == 0o640
    assert there(path.parent) == ["mixed.list", "mixed.list" + DISABLED]


@pytest.mark.real
def test_a_list_whose_new_text_did_not_come_whole_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "etc/mixed.list"
    path.parent.mkdir()
    path.write_text("old")
    (command,) = trust_commands([Rewrite(str(path), "new", "names it twice")])
    done = subprocess.run(["sh", "-c", command.get_raw_value()], input="bmV3", text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert (path.read_text(), there(path.parent)) == ("old", ["mixed.list"])


@pytest.mark.real
def test_the_new_text_is_on_the_disk_before_it_takes_the_file_s_place(tmp_path: Path) -> None:
    path = tmp_path / "etc/mixed.list"
    path.parent.mkdir()
    path.write_text("old")
    (tmp_path / "bin").mkdir()
    for name in ("sync", "mv"):
        (tmp_path / "bin" / name).write_text(
            f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/order\nexec /bin/{name} "$@"\n'
        )
        (tmp_path / "bin" / name).chmod(0o755)
    assert carried_out(tmp_path, Rewrite(str(path), "new", "x"), f"{tmp_path}/bin:/usr/bin:/bin").returncode == 0
    order = (tmp_path / "order").read_text().splitlines()
    assert order[0] == f"sync {path}.gpunode-new" and order[-1] == f"mv -f -T -- {path}.gpunode-new {path}"


@pytest.mark.real
def test_a_file_is_put_out_of_sight_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "etc/cuda.list"
    path.parent.mkdir()
    path.write_text("old")
    done = carried_out(tmp_path, Disable(str(path), "names it twice"))
    (line,) = done.stdout.splitlines()
    assert unnamed(line, path, "names it twice") == []
    assert there(path.parent) == ["cuda.list" + DISABLED]


@pytest.mark.real
def test_a_keyring_of_which_gpg_leaves_nothing_is_not_changed(tmp_path: Path, keys: Keys) -> None:
    path = tmp_path / "etc/ring.gpg"
    path.parent.mkdir()
    path.write_bytes(keys[0][0])
    done = carried_out(tmp_path, Untrust(str(path), (keys[0][1],), "trusts it"))
    assert done.returncode == 1
    assert unnamed(done.stderr, "gpg", path) == []
    assert (path.read_bytes(), there(path.parent)) == (keys[0][0], ["ring.gpg"])
    assert not (tmp_path / ".gnupg").exists()


@pytest.mark.real
def test_a_keyring_loses_the_keys_that_are_named_and_keeps_its_mode(tmp_path: Path, keys: Keys) -> None:
    path = tmp_path / "etc/ring.gpg"
    path.parent.mkdir()
    path.write_bytes(keys[0][0] + keys[1][0])
    path.chmod(0o640)
    done = carried_out(tmp_path, Untrust(str(path), (keys[1][1],), "trusts it"))
    assert done.returncode == 0, done.stderr
    assert mode(path) == 0o640
    assert there(path.parent) == ["ring.gpg", "ring.gpg" + DISABLED]


# --- what of a list is ours -------------------------------------------------------------------------------------------

DEBIAN = "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: bookworm\n"
OURS = f"Types: deb\nURIs: {URI}\nSuites: /\n"


def planned(text: str, path: str = "/etc/apt/sources.list.d/x.sources") -> Any:
    return plan(URI, "/", "amd64", [(path, text)], [], ())


@pytest.mark.pure
def test_two_addresses_are_one_repository_but_for_scheme_host_s_case_closing_slash_and_architecture() -> None:
    assert normal_uri("https://HOST/A/b/$(ARCH)//", "arm64") == "host/A/b/arm64"
    assert normal_uri("http://host", "") == "host"


@pytest.mark.pure
@pytest.mark.parametrize("word", ["no", "No", "FALSE", "without", "off", "disable", "0"])
def test_a_stanza_that_apt_leaves_out_stays_letter_by_letter(word: str) -> None:
    assert planned(f"{OURS}Enabled: {word}\n") == ()
    (step,) = planned(f"{OURS}Enabled: {word}\n\n{OURS}")
    # Nothing that apt reads is left: the file goes as a whole.
    assert isinstance(step, Disable)


@pytest.mark.pure
def test_a_stanza_that_says_that_it_is_enabled_is_switched_off_in_its_place() -> None:
    (step,) = planned(f"Enabled: yes\n{OURS}\n{DEBIAN}")
    assert step.text == f"Enabled: no\n{OURS}\n{DEBIAN}"
    assert type(step) is Rewrite and unnamed(step.reason, "host/cuda") == []


@pytest.mark.pure
@pytest.mark.parametrize(
    ("text", "then"),
    [
        (DEBIAN, DEBIAN),
        (f"Types: deb\nURIs: https://a/a {URI} https://b/b\nSuites: /\n",
         "Types: deb\nURIs: https://a/a https://b/b\nSuites: /\n"),
        (f"Types: deb\nURIs: {URI}\nSuites: a / b\n", f"Types: deb\nURIs: {URI}\nSuites: a b\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("beside", [DEBIAN, f"Types: deb\nURIs: {URI}\nSuites: / c\n",
                                    f"Types: deb\nURIs: {URI} https://c/c\nSuites: /\n"])  # fmt: skip
def test_a_file_in_which_any_other_entry_is_left_is_rewritten_never_put_away(text: str, then: str, beside: str) -> None:
    (step,) = planned(f"{text}\n{OURS}\n{beside}")
    assert isinstance(step, Rewrite)
    assert step.text.startswith(f"{then}\n{OURS}Enabled: no\n\n")


@pytest.mark.pure
def test_lists_of_one_line_entries_count_their_other_entries_too() -> None:
    line = f"deb {URI} /\n"
    other = "deb http://deb.debian.org/debian bookworm main\n"
    (step,) = planned(f"# x\n{line}{other}{other}", "/x.list")
    assert (step.path, step.text) == ("/x.list", f"# x\n# disabled by gpunode: {line}{other}{other}")
    (step,) = planned(f"{line}\n{line}", "/x.list")
    assert (type(step), step.path) == (Disable, "/x.list") and unnamed(step.reason, "host/cuda") == []


@pytest.mark.pure
def test_fields_are_read_as_apt_reads_them() -> None:
    stanza = " before any field\n# URIs: commented\nURIs :  a \n b\n#\n\tc: d\nno field\nSuites:x\n"
    assert fields(stanza) == {"uris": "a b c: d", "suites": "x"}


@pytest.mark.pure
def test_retired_keys_are_known_by_their_long_id_and_told_with_what_they_may_do() -> None:
    key, other = "C" * 24 + "0123456789ABCDEF", "D" * 40
    trusted = [("/a", (key, key)), ("/b", (other, key)), ("/c", (other,)), ("/d", ())]
    assert plan(URI, "/", "amd64", [], trusted, ("0123456789ABCDEF", "E" * 40)) == (
        Disable("/a", f"trusts {key}, {key} for every repository"),
        Untrust("/b", (key,), f"trusts {key} for every repository, among other keys"),
    )
    assert world_trusted(other, trusted) == ("/b", "/c")


@pytest.mark.pure
def test_keyrings_are_told_apart_by_their_repository_and_a_short_fingerprint_is_none() -> None:
    small = "a" * 40
    read = parse_keyrings(
        [f"key=toolkit {OTHER}", f"key=cuda {small}", f"key=cuda {OTHER}", "permissions=cuda 644 root:root", "x=y"]
    )
    keys = (("cuda", FINGERPRINT), ("cuda", OTHER), ("toolkit", OTHER))
    assert read == Keyrings(keys, (("cuda", "644 root:root"),))
    assert (read.of("cuda"), read.of("toolkit"), read.of("docker")) == ((FINGERPRINT, OTHER), (OTHER,), ())
    assert (read.permissions_of("cuda"), read.permissions_of("toolkit")) == ("644 root:root", None)
    assert read.permissions_of("cuda") == PERMISSIONS
    for wrong in (OTHER[1:], f"{OTHER}B", f"{OTHER[:-1]} ", ""):
        with pytest.raises(ParseError, match="not a key fingerprint"):
            parse_keyrings([f"key=cuda {wrong}"])
