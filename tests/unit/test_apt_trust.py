"""What apt trusts beside our own sources: found by the plan, put away by the commands, nothing lost."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyinfra.api import StringCommand

from gpunode.base import tables
from gpunode.base.probe_output import checked
from gpunode.base.reading import ParseError
from gpunode.facts.deb import AptRepository
from gpunode.lab import signing
from gpunode.operations.apt_trust import commands
from gpunode.packages.apt_trust import DISABLED, Disable, Rewrite, Untrust, normal_uri, plan, world_trusted
from gpunode.packages.deb import parse_apt_repository
from tests.support.readings import encoded

pytestmark = pytest.mark.pure

URI = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"
LIST = "/etc/apt/sources.list.d/cuda.list"
SOURCES = "/etc/apt/sources.list.d/cuda.sources"
RETIRED = tables.drivers().retired_key_ids
OLD = "AE09FE4BBD223A84B2CCFCE3" + "F60F4B3D7FA2AF80"
OTHER = "0" * 40


def _plan(path: str, text: str, suite: str = "/", uri: str = URI) -> tuple[object, ...]:
    return plan(uri, suite, "amd64", [(path, text)], [], RETIRED)


def test_nvidia_s_key_of_2022_is_known_as_retired() -> None:
    assert RETIRED == ("F60F4B3D7FA2AF80",)


@pytest.mark.parametrize(
    "line",
    [
        f"deb {URI}/ /",
        f"deb {URI} /",
        f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg arch=amd64] {URI}/ /",
        f"  deb\t{URI.replace('https', 'http')}/   /  # NVIDIA",
        f"deb-src {URI.replace('developer', 'DEVELOPER')} /",
    ],
)
def test_a_list_of_our_repository_alone_is_disabled(line: str) -> None:
    (step,) = _plan(LIST, f"# hand-made\n\n{line}\n")
    assert isinstance(step, Disable)
    assert step.path == LIST


@pytest.mark.parametrize(
    ("text", "suite"),
    [
        (f"# deb {URI}/ /\n", "/"),
        (f"deb {URI.replace('debian12', 'debian11')}/ /\n", "/"),
        (f"deb {URI}/extra /\n", "/"),
        ("deb https://download.docker.com/linux/debian bookworm test\n", "/"),
        (f"deb {URI} bookworm main\n", "trixie"),
        ("deb cdrom:[Debian GNU/Linux 12]/ bookworm main\n", "/"),
        ("", "/"),
    ],
)
def test_other_entries_stay_as_they_are(text: str, suite: str) -> None:
    assert _plan(LIST, text, suite) == ()


def test_a_mixed_list_loses_our_entry_alone() -> None:
    text = f"# mine\ndeb http://deb.debian.org/debian bookworm main\ndeb {URI}/ /\n"
    (step,) = _plan("/etc/apt/sources.list", text)
    assert isinstance(step, Rewrite)
    assert step.text == text.replace(f"deb {URI}", f"# disabled by gpunode: deb {URI}")
    assert _plan("/etc/apt/sources.list", step.text) == ()


def test_apt_s_own_architecture_is_filled_in() -> None:
    assert normal_uri("https://h/deb/$(ARCH)/", "amd64") == normal_uri("http://H/deb/amd64", "amd64")
    (step,) = _plan(LIST, "deb https://h/deb/amd64 /\n", uri="https://h/deb/$(ARCH)")
    assert isinstance(step, Disable)


STANZA = f"Types: deb\nURIs: {URI}\nSuites: /\nSigned-By: /usr/share/keyrings/cuda.gpg\n"
DEBIAN = "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"


def test_a_deb822_file_of_our_repository_alone_is_disabled() -> None:
    (step,) = _plan(SOURCES, STANZA)
    assert isinstance(step, Disable)


@pytest.mark.parametrize("text", [f"{DEBIAN}\n{STANZA}", f"{STANZA}\n\n{DEBIAN}", f"# x\n{STANZA}\n{DEBIAN}"])
def test_a_mixed_deb822_file_loses_our_stanza_alone(text: str) -> None:
    (step,) = _plan(SOURCES, text)
    assert isinstance(step, Rewrite)
    assert step.text.replace("Enabled: no\n", "") == text
    assert step.text.count("Enabled: no") == 1
    assert _plan(SOURCES, step.text) == ()


def test_a_disabled_stanza_is_left_alone() -> None:
    assert _plan(SOURCES, f"Enabled: no\n{STANZA}") == ()


def test_one_address_among_several_is_taken_out_of_its_stanza() -> None:
    (step,) = _plan(SOURCES, f"Types: deb\nURIs: https://mirror/a\n  {URI}/\nSuites: /\n")
    assert isinstance(step, Rewrite)
    assert step.text == "Types: deb\nURIs: https://mirror/a\nSuites: /\n"


def test_one_suite_among_several_is_taken_out_of_its_stanza() -> None:
    (step,) = _plan(SOURCES, DEBIAN, "bookworm", "http://deb.debian.org/debian/")
    assert isinstance(step, Rewrite)
    assert "Suites: bookworm-updates\n" in step.text


def test_what_cannot_be_taken_apart_is_said() -> None:
    with pytest.raises(ValueError, match="split it by hand"):
        _plan(SOURCES, f"Types: deb\nURIs: https://mirror/a {URI}\nSuites: / b/\n")


def test_a_keyring_of_a_retired_key_is_disabled_and_a_mixed_one_loses_it_alone() -> None:
    trusted = [("/etc/apt/trusted.gpg.d/old.gpg", (OLD,)), ("/etc/apt/trusted.gpg", (OTHER, OLD)), ("/x", (OTHER,))]
    first, second = plan(URI, "/", "amd64", [], trusted, RETIRED)
    assert isinstance(first, Disable)
    assert isinstance(second, Untrust)
    assert (second.path, second.fingerprints) == ("/etc/apt/trusted.gpg", (OLD,))


def test_a_pinned_key_that_is_world_trusted_is_reported_not_removed() -> None:
    trusted = [("/etc/apt/trusted.gpg", (OTHER, OLD))]
    assert plan(URI, "/", "amd64", [], [("/y", (OTHER,))], RETIRED) == ()
    assert world_trusted(OTHER, trusted) == ("/etc/apt/trusted.gpg",)


def test_the_reading_holds_other_lists_and_world_trusted_keys() -> None:
    lines = [
        "architecture=amd64", f"other={LIST} {encoded('deb x /')}",
        f"trusted={OLD} /etc/apt/trusted.gpg", f"trusted={OTHER} /etc/apt/trusted.gpg",
    ]  # fmt: skip
    reading = parse_apt_repository(lines)
    assert reading.others == ((LIST, "deb x /"),)
    assert reading.trusted == (("/etc/apt/trusted.gpg", (OLD, OTHER)),)
    with pytest.raises(ParseError, match="not a key fingerprint"):
        parse_apt_repository(["trusted=7FA2AF80 /etc/apt/trusted.gpg"])


def _run(command: StringCommand) -> str:
    given = "".join(f"{line}\n" for line in command.connector_arguments.get("_stdin", []))
    done = subprocess.run(
        ["sh", "-c", command.get_raw_value()], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.real
@pytest.mark.parametrize("suffix", [".asc", ".gpg"])
def test_gpg_takes_one_key_out_of_a_keyring_and_the_old_one_is_kept(tmp_path: Path, suffix: str) -> None:
    keys = [signing.public_key(signing.key_file(tmp_path / "secret", name)) for name in ("good", "bad")]
    ring = tmp_path / f"ring{suffix}"
    ring.write_bytes(b"".join(key for key, _ in keys))
    before = ring.read_bytes()
    (command,) = commands([Untrust(str(ring), (keys[1][1],), "trusts it")])
    assert "is changed" in _run(command)
    shown = subprocess.run(
        ["gpg", "--batch", "--show-keys", "--with-colons", ring], capture_output=True, text=True, check=True
    ).stdout
    assert keys[0][1] in shown
    assert keys[1][1] not in shown
    assert ring.read_bytes().startswith(b"-----BEGIN PGP PUBLIC KEY") == (suffix == ".asc")
    assert ring.with_name(ring.name + DISABLED).read_bytes() == before
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted([ring.name, ring.name + DISABLED, "secret"])


@pytest.mark.real
def test_a_second_file_of_the_same_name_does_not_overwrite_the_first_that_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "cuda.list"
    for text in ("first", "second"):
        path.write_text(text)
        (command,) = commands([Disable(str(path), "is a second entry")])
        _run(command)
    assert sorted(item.read_text() for item in tmp_path.iterdir()) == ["first", "second"]


@pytest.fixture
def gpg() -> Iterator[Callable[..., str]]:
    """Return a function that runs gpg in a home of its own; in /tmp, since its agent's socket takes no long path."""
    with tempfile.TemporaryDirectory(prefix="gpunode-gpg-", dir="/tmp", ignore_cleanup_errors=True) as home:
        fixed = ["gpg", "--homedir", home, "--batch", "--pinentry-mode", "loopback", "--passphrase", ""]
        yield lambda *arguments: subprocess.run([*fixed, *arguments], check=True, capture_output=True, text=True).stdout
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True, capture_output=True)


@pytest.mark.real
def test_a_keyring_is_read_by_its_primary_keys_alone_and_with_its_permissions(
    tmp_path: Path, gpg: Callable[..., str], run_shell: Callable[[str], tuple[int, list[str]]]
) -> None:
    gpg("--quick-generate-key", "key@gpunode.invalid", "ed25519", "sign", "never")
    listed = [line.split(":") for line in gpg("--with-colons", "--list-keys").splitlines()]
    primary = next(cells[9] for cells in listed if cells[0] == "fpr")
    gpg("--quick-add-key", primary, "cv25519", "encr", "never")
    ring = tmp_path / "ring.gpg"
    gpg("--output", str(ring), "--export")
    ring.chmod(0o664)
    absent = str(tmp_path / "absent")
    probe = AptRepository().command(keyring=str(ring), source=absent, stamp=absent, uri=URI, distrusted=[OTHER])
    reading = parse_apt_repository(checked(run_shell(probe)[1]))
    assert reading.fingerprints == (primary,)
    assert reading.permissions == f"664 {ring.owner()}:{ring.group()}"
