#!/usr/bin/python3
"""Serve the lab's package repositories and .run files on 127.0.0.1:8900, with Range, and log what is asked in part.

SIMULATED fault: `cut_transfer` (a number of bytes) in /etc/gpunode-lab/faults.json ends the transfer of every .run file
at that byte, whatever was promised.
"""

from __future__ import annotations

import json
import re
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_PORT = 8900
_ROOT = "/srv/gpunode-lab/mirror"
_FAULTS = Path("/etc/gpunode-lab/faults.json")
_LOG = Path("/var/log/gpunode-lab.log")


class Handler(SimpleHTTPRequestHandler):
    """Answer whole files as Python's own server does, and .run files from any byte on."""

    def log_message(self, *_: object) -> None:
        """Say nothing: what counts is logged where the lab logs."""

    def do_GET(self) -> None:
        """Answer a request; a part of a .run file by Range."""
        path = Path(self.translate_path(self.path))
        if path.suffix != ".run" or not path.is_file():
            super().do_GET()
            return
        size = path.stat().st_size
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match else 0
        _log(f"{self.path} from byte {start}")
        if start >= size:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if match else 200)
        if match:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        self.wfile.write(path.read_bytes()[start : max(start, _cut_at(size))])
        self.close_connection = True


def _cut_at(size: int) -> int:
    try:
        return int(json.loads(_FAULTS.read_text()).get("cut_transfer", size))
    except (OSError, ValueError):
        return size


def _log(text: str) -> None:
    with _LOG.open("a") as file:
        file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} mirror: {text}\n")


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", _PORT), partial(Handler, directory=_ROOT)).serve_forever()
