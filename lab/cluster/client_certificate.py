"""A certificate by which the lab's API server is known to its kubelets: its own authority, and good for that alone."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

_NAME = "gpunode-lab-api-server"
_DAYS = 365


def make(certificate: Path, key: Path) -> None:
    """Write a certificate and its private key (0600), where they are absent."""
    if certificate.exists() and key.exists():
        return
    # They come with paramiko, and take a while to import.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of this machine's containers are its own.
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(private, hashes.SHA256())
    )
    key.unlink(missing_ok=True)
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        plain = serialization.NoEncryption()
        file.write(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
