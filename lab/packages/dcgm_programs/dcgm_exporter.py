#!/usr/bin/python3
"""SIMULATED dcgm-exporter of gpunode's lab: it listens where the real one would, and tells of no GPU.

Real is what it is told by: DCGM_EXPORTER_LISTEN, over which -a counts, and DCGM_REMOTE_HOSTENGINE_INFO.
"""

from __future__ import annotations

import os
import socket
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

TEXT = b"# SIMULATED by gpunode's lab\nDCGM_FI_DEV_GPU_TEMP 0\n"


class Metrics(BaseHTTPRequestHandler):
    """Answer /metrics."""

    def do_GET(self) -> None:
        """Answer with the one line that there is."""
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(TEXT)


class SixServer(HTTPServer):
    """Listen at an IPv6 address."""

    address_family = socket.AF_INET6


def main(arguments: list[str]) -> int:
    """Listen until the end; return another exit status than 0 where that cannot be."""
    listens = os.environ.get("DCGM_EXPORTER_LISTEN", ":9400")
    if "-a" in arguments:
        listens = arguments[arguments.index("-a") + 1]
    if engine := os.environ.get("DCGM_REMOTE_HOSTENGINE_INFO"):
        name, _, number = engine.rpartition(":")
        try:
            socket.create_connection((name, int(number)), timeout=5).close()
        except OSError as error:
            print(f"SIMULATED dcgm-exporter: cannot connect to {engine}: {error}", file=sys.stderr)
            return 1
    host, _, port = listens.rpartition(":")
    host = host.strip("[]")
    server = (SixServer if ":" in host else HTTPServer)((host, int(port)), Metrics)
    print(f"SIMULATED dcgm-exporter: listens at {listens}", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
