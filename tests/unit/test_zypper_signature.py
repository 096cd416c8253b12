"""That metadata were signed by the pinned key is seen by real gpg: zypper takes any key of rpm's database."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.lab import signing
from gpunode.operations.families.zypper import READ
from gpunode.operations.script import script
from tests.support.messages import unnamed
from tests.support.programs import sh

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


@pytest.mark.parametrize("fault", [None, "another key", "altered", "unsigned", "no key"])
def test_metadata_are_taken_of_the_pinned_key_alone(signed: Path, fault: str | None) -> None:
    metadata = signed / "gpunode-cuda" / "repodata" / "repomd.xml"
    signature = metadata.with_name("repomd.xml.asc")
    if fault == "another key":
        signature.write_bytes((signed / "gpunode-other/repodata/repomd.xml.asc").read_bytes())
    elif fault == "altered":
        metadata.write_text("<repomd>altered</repomd>\n")
    elif fault == "unsigned":
        signature.unlink()
    elif fault == "no key":
        (signed / "keys" / "gpunode-cuda.asc").unlink()
    text = READ.replace("/var/cache/zypp/raw", str(signed)).replace("/etc/pki/rpm-gpg", str(signed / "keys"))
    done = sh(signed, script(f"{text}\nsigned_by_ours cuda"))
    assert done.returncode == (0 if fault is None else 1)
    assert fault != "another key" or unnamed(done.stderr, "another key", "repository cuda") == []
