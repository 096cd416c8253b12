#!/usr/bin/python3
"""SIMULATED nv-hostengine of gpunode's lab: it listens where the real one does, and asks no GPU."""

from __future__ import annotations

import socket
from pathlib import Path

WATCHES = Path("/run/gpunode-lab/dcgm-watches")


def main() -> None:
    """Listen at 127.0.0.1:5555; what was watched ended with the engine before."""
    WATCHES.unlink(missing_ok=True)
    with socket.create_server(("127.0.0.1", 5555)) as server:
        print("SIMULATED nv-hostengine: listens at 127.0.0.1:5555", flush=True)
        while True:
            server.accept()[0].close()


if __name__ == "__main__":
    main()
