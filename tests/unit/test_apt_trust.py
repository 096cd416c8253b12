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
from gpunode.facts.packages import AptRepository
from gpunode.lab import signing
from gpunode.operations.repositories import commands
from gpunode.packages.apt_trust import DISABLED, Disable, Untrust
from gpunode.packages.deb import parse_apt_repository

pytestmark = pytest.mark.pure

URI = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"
RETIRED = tables.drivers().retired_key_ids
OTHER = "0" * 40


def test_nvidia_s_key_of_2022_is_known_as_retired() -> None:
    assert RETIRED == ("F60F4B3D7FA2AF80",)


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
