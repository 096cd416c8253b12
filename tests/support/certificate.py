"""A certificate that a test's own server shows, and that vouches for itself."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(key: Path, certificate: Path, holder: str) -> None:
    """Write a key and its certificate, for two days, by openssl; holder: as `DNS:localhost` or `IP:127.0.0.1`."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={holder.partition(':')[2]}", "-addext", f"subjectAltName={holder}", "-keyout", str(key),
         "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
