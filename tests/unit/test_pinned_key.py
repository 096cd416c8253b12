"""A key file is never trusted as it came: real gpg, whatever stands in the file beside the pinned key."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.lab import signing
from gpunode.operations.repositories import PINNED_KEY
from gpunode.operations.script import script

pytestmark = pytest.mark.real

Key = tuple[bytes, str]
Pinned = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Key, Key]:
    """Return the pinned key and another one: armored text, and fingerprint."""
    folder = tmp_path_factory.mktemp("keys")
    good, other = (signing.public_key(signing.key_file(folder, name)) for name in ("good", "other"))
    return good, other


@pytest.fixture
def pinned(tmp_path: Path, keys: tuple[Key, Key]) -> Pinned:
    """Return a function that serves `fetched`, has `present` as keyring, and writes the pinned key to OUT."""

    def run(fetched: bytes | None, present: bytes | None = None, *options: str) -> subprocess.CompletedProcess[str]:
        served, keyring = tmp_path / "served", tmp_path / "keyring"
        if fetched is not None:
            served.write_bytes(fetched)
        if present is not None:
            keyring.write_bytes(present)
        arguments = f"'{keyring}' '{tmp_path / 'out'}' 'file://{served}' {keys[0][1]} cuda {' '.join(options)}"
        text = script(f"{PINNED_KEY}pinned_key {arguments}")
        values = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        return subprocess.run(["sh", "-c", text], env=values, capture_output=True, text=True, check=False)

    return run


def packets(armored: bytes) -> bytes:
    """Return a key as binary packets."""
    body = armored.decode().partition("\n\n")[2].rpartition("\n=")[0]
    return base64.b64decode(body)


def shown(path: Path) -> list[str]:
    """Return the fingerprints of all keys that gpg imports of a file: it goes on behind what it does not know."""
    done = subprocess.run(
        ["gpg", "--batch", "--with-colons", "--show-keys", str(path)], capture_output=True, text=True, check=False
    )
    return [line.split(":")[9] for line in done.stdout.splitlines() if line.startswith("fpr:")]


# gpg lists the first key alone of such a file; rpm finds the second one, too.
@pytest.mark.parametrize(("between", "form"), [(b"x", bytes), (b"\x00", bytes), (b"\xff", bytes), (b"\x99", packets)])
@pytest.mark.parametrize("as_present", [False, True], ids=["fetched", "present"])
def test_a_second_key_behind_a_stray_byte_is_not_written(
    tmp_path: Path,
    keys: tuple[Key, Key],
    pinned: Pinned,
    between: bytes,
    form: Callable[[bytes], bytes],
    as_present: bool,
) -> None:
    (good, fingerprint), (other, _) = keys
    came = form(good) + between + form(other)
    done = pinned(None, came) if as_present else pinned(came)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "out").read_bytes()
    assert shown(tmp_path / "out") == [fingerprint]
    # The key's own numbers, wherever they stand.
    assert packets(other)[20:200] not in written
    assert len(written) < len(packets(good)) * 1.1


@pytest.mark.parametrize("options", [(), ("--armor",)])
def test_the_pinned_key_is_written_in_the_form_asked_for(
    tmp_path: Path, keys: tuple[Key, Key], pinned: Pinned, options: tuple[str, ...]
) -> None:
    (good, fingerprint), _ = keys
    for form in (bytes, packets):
        done = pinned(form(good), None, *options)
        assert (done.returncode, done.stderr) == (0, "")
        written = (tmp_path / "out").read_bytes()
        assert written.startswith(b"-----BEGIN PGP PUBLIC KEY") == bool(options)
        assert shown(tmp_path / "out") == [fingerprint]
    # Nor is a folder of gpg's left in the user's home.
    assert not (tmp_path / ".gnupg").exists()


def test_another_key_is_refused_by_both_fingerprints(tmp_path: Path, keys: tuple[Key, Key], pinned: Pinned) -> None:
    (good, fingerprint), (other, foreign) = keys
    for came, named in (
        (other, [foreign]),
        (packets(good) + packets(other), [foreign]),
        # gpg takes this for no key at all.
        (packets(good) + b"\x00" + packets(other), []),
    ):
        done = pinned(came)
        assert done.returncode == 1
        assert all(each in done.stderr for each in [*named, f"{fingerprint} is pinned"])
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("present", ["right", "with another", "another"])
def test_a_keyring_that_is_not_right_is_replaced_by_what_the_publisher_has_and_none_is_fetched_again(
    tmp_path: Path, keys: tuple[Key, Key], pinned: Pinned, present: str
) -> None:
    (good, fingerprint), (other, _) = keys
    first = b"" if present == "another" else packets(good)
    done = pinned(None if present == "right" else good, first + (b"" if present == "right" else packets(other)))
    assert done.returncode == 0, done.stderr
    assert shown(tmp_path / "out") == [fingerprint]
