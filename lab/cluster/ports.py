"""Ports on loopback that stay a cluster's for as long as it lives."""

from __future__ import annotations

import socket
from pathlib import Path

from gpunode.lab.state import read_json, write_json

ADDRESS = "127.0.0.1"


def port(folder: Path, name: str) -> int:
    """Return the port that is noted in `folder` under that name; a free one is noted where there is none."""
    path = folder / "ports.json"
    noted = read_json(path)
    if name not in noted:
        with socket.socket() as free:
            free.bind((ADDRESS, 0))
            noted[name] = free.getsockname()[1]
        write_json(path, noted)
    return int(noted[name])
