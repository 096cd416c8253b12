"""Helpers and data for the tests of dnf."""

from __future__ import annotations

from typing import Any

from gpunode.packages.deb import AptRepository
from gpunode.packages.families import dnf
from gpunode.packages.trust import PERMISSIONS

KEY = "A" * 40


ASKED: dict[str, Any] = {
    "label": "cuda",
    "uri": "https://host/cuda",
    "key_url": "https://host/key",
    "key_fingerprint": KEY,
}


TEXT = dnf.repository_text("cuda", "https://host/cuda", "/etc/pki/rpm-gpg/gpunode-cuda.asc", True)


TRUSTED = AptRepository((KEY,), TEXT, "digest", "digest", permissions=PERMISSIONS)
