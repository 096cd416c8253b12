"""Signatures by OpenSSH's own program: whatever holds the key, a file, an agent or a token, signs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpunode.agent.pull import NAMESPACE, SIGNER
from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error

# How often the program is asked, and the seconds that it has each time.
_ATTEMPTS, _SECONDS = 3, 20


class SigningError(CodedError):
    """Say why a bundle could not be signed, and what to do."""

    code = command_error(
        "agent.not-signed", "A bundle could not be signed, or a key is not usable.",
        "The message has the reason of ssh-keygen. Nothing was written.",
        remedy="give a key without a passphrase, or the public half of one that ssh-agent holds",
    )  # fmt: skip


def signature(text: bytes, key: Path) -> bytes:
    """Return the signature of a text; raise SigningError.

    key: a private key, or a public one whose private half ssh-agent holds
    """
    words = ["ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", str(key)]
    try:
        done = _signed(words, text)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SigningError(f"ssh-keygen cannot be run: {error}; install openssh-client") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise SigningError(
            f"{key}: ssh-keygen did not sign with it: {said}; a key with a passphrase is held by ssh-agent: give its "
            "public key then"
        )
    return done.stdout


def _signed(words: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    """Return what came of the program; one that does not answer, as an agent that was asked may not, is asked anew."""
    for attempt in range(_ATTEMPTS):
        try:
            # Nobody is asked for a passphrase: many bundles are signed at once.
            return subprocess.run(words, input=text, capture_output=True, timeout=_SECONDS, start_new_session=True)
        except subprocess.TimeoutExpired:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("each attempt returns or raises")


def signers(public_key: str) -> str:
    """Return the file by which a node trusts a public key for bundles, and for nothing else; raise SigningError."""
    lines = [line for line in public_key.splitlines() if line.strip() and not line.startswith("#")]
    words = lines[0].split() if len(lines) == 1 else []
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        raise SigningError("this is not one public key as ssh-keygen writes it: give the file that ends in .pub")
    return f'{SIGNER} namespaces="{NAMESPACE}" {words[0]} {words[1]}\n'
