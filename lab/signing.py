"""Throwaway signing keys of the lab's package repositories."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpunode.lab.errors import LabError


class SigningError(LabError):
    """Say what gpg could not do."""


def key_file(folder: Path, name: str) -> Path:
    """Return the armored secret key `name` in a folder, generated at the first call; no passphrase, mode 0600."""
    path = folder / f"{name}.secret.asc"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        with _home() as home:
            identity = f"gpunode lab {name} (throwaway) <lab@gpunode.invalid>"
            _gpg(home, "--quick-generate-key", identity, "rsa3072", "sign", "never")
            draft = path.with_suffix(f".{os.getpid()}")
            draft.touch(mode=0o600)
            draft.write_bytes(_gpg(home, "--armor", "--export-secret-keys"))
            draft.replace(path)
    return path


def public_key(secret: Path) -> tuple[bytes, str]:
    """Return the armored public key of a secret key file, and its fingerprint (40 upper-case hex digits)."""
    with _home(secret) as home:
        listing = _gpg(home, "--with-colons", "--list-keys").decode()
        fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
        return _gpg(home, "--armor", "--export"), fingerprint


def sign_releases(secret: Path, releases: list[Path]) -> None:
    """Write InRelease and Release.gpg beside each Release file."""
    with _home(secret) as home:
        for release in releases:
            folder = release.parent
            _gpg(home, "--clearsign", "--output", str(folder / "InRelease"), str(release))
            _gpg(home, "--armor", "--detach-sign", "--output", str(folder / "Release.gpg"), str(release))


def sign_detached(secret: Path, files: list[Path]) -> None:
    """Write an armored signature FILE.asc beside each file."""
    with _home(secret) as home:
        for file in files:
            _gpg(home, "--armor", "--detach-sign", "--output", f"{file}.asc", str(file))


@contextlib.contextmanager
def _home(secret: Path | None = None) -> Iterator[Path]:
    # The agent's socket lies in gpg's home, and a socket's path has 108 bytes at most: hence /tmp, not the cache.
    home = Path(tempfile.mkdtemp(prefix="gpunode-gpg-", dir="/tmp"))
    try:
        if secret is not None:
            _gpg(home, "--import", str(secret))
        yield home
    finally:
        with contextlib.suppress(OSError):
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True)
        shutil.rmtree(home, ignore_errors=True)


def _gpg(home: Path, *arguments: str) -> bytes:
    fixed = ["gpg", "--homedir", str(home), "--batch", "--yes", "--pinentry-mode", "loopback", "--passphrase", ""]
    try:
        result = subprocess.run([*fixed, *arguments], capture_output=True)
    except FileNotFoundError:
        raise SigningError("gpg is not installed: apt-get install gnupg") from None
    if result.returncode:
        raise SigningError(f"gpg {arguments[0]} failed: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout
