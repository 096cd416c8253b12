"""The image of the lab's pods: its program runs and waits, and the archive is what an importer takes."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

import pytest

from gpunode.lab.cluster.pause_image import NAME, archive, program


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a program for x86-64")
def test_the_program_waits_until_it_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "pause"
    path.write_bytes(program())
    path.chmod(0o755)
    running = subprocess.Popen([path])
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(timeout=0.3)
    finally:
        running.terminate()
    assert running.wait(timeout=10) == -15


@pytest.mark.pure
def test_the_archive_names_its_layer_by_what_it_holds() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive())) as tar:
        parts = {entry.name: (tar.extractfile(entry) or io.BytesIO()).read() for entry in tar}
    (manifest,) = json.loads(parts["manifest.json"])
    described = json.loads(parts[manifest["Config"]])
    assert manifest["RepoTags"] == [NAME]
    assert described["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(parts['layer.tar']).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(parts["layer.tar"])) as layer:
        assert [(entry.name, entry.mode) for entry in layer] == [("pause", 0o755)]
