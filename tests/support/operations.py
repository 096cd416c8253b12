"""Helpers and data for the tests of operations."""

from __future__ import annotations

from typing import Any

from gpunode.packages.deb import AptRepository
from gpunode.packages.repositories import source_text
from gpunode.packages.trust import PERMISSIONS

KEY = "A" * 40


REPOSITORY: dict[str, str] = {
    "label": "cuda", "uri": "https://host/cuda", "key_url": "https://host/key", "key_fingerprint": KEY,
}  # fmt: skip


TRUSTED = AptRepository(
    (KEY,), source_text("https://host/cuda", "/usr/share/keyrings/gpunode-cuda.gpg"), "digest", "digest", "amd64",
    permissions=PERMISSIONS,
)  # fmt: skip


class Recorder:
    """Stand in for a module of operations, and for own_file: keep what each is called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        """Return an operation that does nothing."""
        return lambda *_, **arguments: self.calls.append({"operation": name, **arguments})

    def own_file(self, path: str, **arguments: Any) -> None:
        """Keep which of gpunode's own files a deploy is at."""
        self.calls.append({"operation": "own_file", "path": path, **arguments})
