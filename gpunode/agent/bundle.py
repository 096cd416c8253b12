"""A bundle: what one host is to be, in one file that is signed as it is.

It holds the host's own data and nobody else's, its number, how long it counts, and which program carries it out. What a
cluster is to get is not part of it: a node that pulls has no credentials of its cluster. OpenSSH's own program signs:
whatever holds the key, a file, an agent or a token.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import yaml

from gpunode.agent.files import FIRST_PULL, Install, texts
from gpunode.agent.pull import NAMESPACE, SCHEMA, SIGNER, utc
from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error
from gpunode.settings import Settings, SettingsError, component_models, settings_from

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
    for left in reversed(range(_ATTEMPTS)):
        try:
            # Nobody is asked for a passphrase: many bundles are signed at once.
            done = subprocess.run(words, input=text, capture_output=True, timeout=_SECONDS, start_new_session=True)
            break
        except (OSError, subprocess.TimeoutExpired) as error:
            # Ask again where an agent does not answer.
            if isinstance(error, OSError) or not left:
                raise SigningError(f"ssh-keygen cannot be run: {error}; install openssh-client") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise SigningError(
            f"{key}: ssh-keygen did not sign with it: {said}; a key with a passphrase is held by ssh-agent: give its "
            "public key then"
        )
    return done.stdout


def signers(public_key: str) -> str:
    """Return the file by which a node trusts a public key for bundles, and for nothing else; raise SigningError."""
    lines = [line for line in public_key.splitlines() if line.strip() and not line.startswith("#")]
    words = lines[0].split() if len(lines) == 1 else []
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        raise SigningError("this is not one public key as ssh-keygen writes it: give the file that ends in .pub")
    return f'{SIGNER} namespaces="{NAMESPACE}" {words[0]} {words[1]}\n'


# What EC2 takes, the least of the clouds, in bytes; it may be compressed.
MOST = 16384
_HEAD = """\
#cloud-config
# Made by `gpunode agent user-data`: at first boot this machine pulls its signed bundle, and from time to time after it.
# It holds no secret. Let it be the last part of the user data: then lists of earlier parts are kept beside its own.
"""
# cloud-init renders jinja, by which it puts in the name that the cloud gave the machine; all the rest is none of it.
_TEMPLATE, _RAW, _END = "## template: jinja\n", "# {% raw %}\n", "# {% endraw %}\n"
_NAME = "{% endraw %}{{ v1.local_hostname }}{% raw %}"
# No host of an inventory is called this.
_STANDS_FOR_NAME = "NAME OF THE MACHINE"
# By the later part's word its lists go behind those of earlier ones; else they would take their place.
_MERGED = [{"name": "list", "settings": ["append"]}, {"name": "dict", "settings": ["no_replace", "recurse_list"]}]


def user_data(desired: Install, host: str | None) -> str:
    """Return the user data by which cloud-init has machines pull one bundle at their first boot.

    It holds no secret: on most clouds every process of a machine may read its user data, pods too.

    host: the inventory's host whose bundle they take; None: each machine takes that of its own name in the cloud
    """
    found = texts(desired, _STANDS_FOR_NAME if host is None else host)
    begins = (package_files("gpunode") / "agent" / "first_pull.sh").read_text(encoding="utf-8")
    found[FIRST_PULL] = (f"#!/bin/sh\n{begins}", "755")
    entries = [{"path": path, "permissions": f"0{mode}", "content": text} for path, (text, mode) in found.items()]
    document = {"merge_how": _MERGED, "write_files": entries}
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20)
    if host is not None:
        return _HEAD + text
    return _TEMPLATE + _HEAD + _RAW + text.replace(json.dumps(_STANDS_FOR_NAME), f'"{_NAME}"') + _END


def compressed(text: str) -> bytes:
    """Return user data as cloud-init takes it as well, and the same for the same."""
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


class _Dumper(yaml.SafeDumper):
    """Write texts of several lines as they are, so that a person can read what is put on the machine."""


def _string(dumper: yaml.SafeDumper, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _string)


# What is of a cluster as a whole, or made by it: a push does that.
OF_CLUSTER = frozenset(
    {
        "kubernetes", "device_plugin", "gpu_operator", "gpushare", "sharing", "dcgm_exporter_chart",
        "rdma_shared_device_plugin",
    }
)  # fmt: skip


class BundleError(CodedError):
    """Say which host's settings no bundle can carry, and what to do."""

    code = command_error(
        "agent.no-bundle", "A host's settings cannot be put into a bundle.",
        "Part of them comes from other hosts (an IMEX domain) or the cluster, or cannot be written as JSON. Nothing "
        "was written.",
        remedy="configure this host with a push, and leave it out with --limit", exit="3",
    )  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Hold what carries bundles out: the digest of its file, and the Python and machine that it is made for."""

    sha256: str
    python: str
    machine: str


@dataclass(frozen=True)
class Bundle:
    """Hold what is signed.

    issued, expires: UTC, in whole seconds; number: it rises from one bundle to the next, but for a node that has taken
    one of the withdrawn numbers
    """

    host: str
    number: int
    issued: datetime
    expires: datetime
    gpunode: str
    program: Program
    settings: Mapping[str, Any]
    withdrawn: tuple[int, ...] = ()

    def text(self) -> str:
        """Return the file's content, the same for the same."""
        times = {name: utc(getattr(self, name).timestamp()) for name in ("issued", "expires")}
        found = {"schema": SCHEMA, **asdict(self), **times}
        return json.dumps(found, indent=1, sort_keys=True) + "\n"


def carried(host: str, data: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the data that a bundle carries for a host; raise BundleError where it would become something else by it.

    data: the host's, its groups' among them; settings: what they are on the controller

    Of a cluster's node nothing that disturbs it is done by a pull: it cannot be drained without the cluster's
    credentials, and waits for a push.
    """
    if settings.imex.enabled:
        raise BundleError(
            f"{host}: imex: the nodes of its domain are other hosts of the inventory, which a bundle does not carry: "
            "bring these hosts by a push, and leave them out by --limit"
        )
    found = {name: value for name, value in data.items() if name in component_models() and name not in OF_CLUSTER}
    found.pop("engine", None)
    if settings.kubernetes.enabled:
        found["disruption"] = {**found.get("disruption", {}), "allow": "nothing"}
    try:
        text = json.dumps(found)
    except (TypeError, ValueError) as error:
        raise BundleError(f"{host}: its data cannot be written as JSON: {error}; give texts, numbers, lists") from None
    again: dict[str, Any] = json.loads(text)
    try:
        carried_settings = settings_from(again)
    except SettingsError as error:
        raise BundleError(
            f"{host}: without what is of its cluster its settings are refused, and a bundle has no more: {error}; "
            "bring this host by a push, and leave it out by --limit"
        ) from None
    before, after = settings.to_json(), carried_settings.to_json()
    left = {*OF_CLUSTER, "engine", *(("disruption",) if settings.kubernetes.enabled else ())}
    if other := [name for name in before if name not in left and before[name] != after[name]]:
        raise BundleError(f"{host}: {', '.join(other)} would become something else in JSON: give lists, and no tuples")
    return again
