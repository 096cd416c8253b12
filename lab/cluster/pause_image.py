"""An image with one program that only waits: a pod's sandbox needs one, and no registry is asked in the lab."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile

NAME = "registry.k8s.io/pause:3.6"
# mov eax, 34 (pause of x86-64); syscall; jmp back to the first.
_CODE = bytes.fromhex("b8220000000f05ebf7")
_BASE, _HEADERS = 0x400000, 64 + 56


def program() -> bytes:
    """Return a static ELF program for x86-64 that waits for ever; source: elf(5)."""
    length = _HEADERS + len(_CODE)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        2,
        62,
        1,
        _BASE + _HEADERS,
        64,
        0,
        0,
        64,
        56,
        1,
        0,
        0,
        0,
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, length, length, 0x1000)
    return header + segment + _CODE


def archive() -> bytes:
    """Return the image as `docker save` has it, which `ctr images import` takes."""
    return archive_of(NAME, "pause", program())


def archive_of(name: str, path: str, content: bytes) -> bytes:
    """Return an image that holds one program, which it starts."""
    layer = _tar({path: content})
    digest = hashlib.sha256(layer).hexdigest()
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{path}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {"config.json": json.dumps(described).encode(), "layer.tar": layer}
    return _tar({**parts, "manifest.json": json.dumps(manifest).encode()})


def _tar(files: dict[str, bytes]) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return found.getvalue()
