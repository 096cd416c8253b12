"""That metadata were signed by the pinned key is seen by real gpg: zypper takes any key of rpm's database."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpunode.lab import signing
from gpunode.operations.families.zypper_shell import READ
from gpunode.operations.script import script

pytestmark = [pytest.mark.real, pytest.mark.tier2]


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """Return a folder with the pinned key, another one, and metadata that each of them has signed."""
    (tmp_path / "keys").mkdir()
    for name in ("cuda", "other"):
        secret = signing.key_file(tmp_path / "secret", name)
        (tmp_path / "keys" / f"gpunode-{name}.asc").write_bytes(signing.public_key(secret)[0])
        metadata = tmp_path / f"gpunode-{name}" / "repodata" / "repomd.xml"
        metadata.parent.mkdir(parents=True)
        metadata.write_text("<repomd/>\n")
        signing.sign_detached(secret, [metadata])
    return tmp_path


def judged(folder: Path) -> subprocess.CompletedProcess[str]:
    text = READ.replace("/var/cache/zypp/raw", str(folder)).replace("/etc/pki/rpm-gpg", str(folder / "keys"))
    return subprocess.run(
        ["sh", "-c", script(f"{text}\nsigned_by_ours cuda")], capture_output=True, text=True, check=False
    )


def test_metadata_of_the_pinned_key_are_taken(signed: Path) -> None:
    assert judged(signed).returncode == 0


def test_metadata_that_another_key_has_signed_are_refused(signed: Path) -> None:
    theirs, ours = (signed / f"gpunode-{name}" / "repodata" / "repomd.xml.asc" for name in ("other", "cuda"))
    ours.write_bytes(theirs.read_bytes())
    done = judged(signed)
    assert done.returncode == 1
    assert "signed by another key than the pinned one: the repository cuda" in done.stderr


@pytest.mark.parametrize("fault", ["altered", "unsigned", "no key"])
def test_what_cannot_be_verified_is_refused(signed: Path, fault: str) -> None:
    metadata = signed / "gpunode-cuda" / "repodata" / "repomd.xml"
    if fault == "altered":
        metadata.write_text("<repomd>altered</repomd>\n")
    elif fault == "unsigned":
        Path(f"{metadata}.asc").unlink()
    else:
        (signed / "keys" / "gpunode-cuda.asc").unlink()
    assert judged(signed).returncode == 1
