"""Programs that stand before a node's own on the path, SIMULATED, and shell text that is run with them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def programs(folder: Path, bodies: Mapping[str, str]) -> None:
    """Write programs into a folder: name -> what their shell does."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


def sh(folder: Path, text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run shell text in a folder, whose programs come first; its exit code is the caller's to judge."""
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **variables}
    command = ["sh", "-c", text, "sh", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
