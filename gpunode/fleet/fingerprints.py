"""What tells whether two readings of an inventory ask for the same of the same machines. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gpunode.settings import Settings

# What says which machine a host is; the rest of pyinfra's own data says how it is reached.
_ADDRESS = ("ssh_hostname", "ssh_port")


def fingerprints(settings: Mapping[str, Settings], data: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return host -> SHA-256 (hex) of its settings and its address."""
    # Hosts with equal settings may have the very same (gpunode.settings.hosts).
    digests: dict[int, str] = {
        id(found): found.digest() for found in {id(each): each for each in settings.values()}.values()
    }
    return {
        host: hashlib.sha256(
            json.dumps([digests[id(found)], *(str(data[host].get(name)) for name in _ADDRESS)]).encode()
        ).hexdigest()
        for host, found in settings.items()
    }
