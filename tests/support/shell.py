"""Text of the shell, run for real by sh; programs that a test writes, all SIMULATED, come before the machine's own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

Done = subprocess.CompletedProcess[str]


def programs(folder: Path, **texts: str) -> str:
    """Write programs (apt_get is apt-get), and return a PATH on which they come first."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in texts.items():
        path = folder / "bin" / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return f"{folder}/bin:{os.environ['PATH']}"


def _hears() -> None:
    """Hear what a unit of systemd's hears: by nohup, or behind a &, a shell would not hear two of these."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


def sh(
    text: str,
    *arguments: object,
    given: str | None = None,
    shell: Sequence[str] = ("sh",),
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> Done:
    """Run text with arguments, in this environment but for `env`."""
    line = [*shell, "-c", text, "sh", *map(str, arguments)]
    return subprocess.run(
        line, env={**os.environ, **(env or {})}, input=given, capture_output=True, text=True, check=False, timeout=60,
        cwd=cwd, preexec_fn=_hears,
    )  # fmt: skip
