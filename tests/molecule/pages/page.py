"""A page of docs/ as steps: commands with the exit status that the page tells, what they print, settings entered.

In the pages: a block `sh` is run, by bash that stops at the first failure; `sh exits N` ends with that status. A block
`text` that follows holds what must stand in its output, line by line. A block `python FILE` or `yaml FILE` is
added to that file of the checkout, or makes it. Blocks of other languages are not looked at.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.molecule.conftest import CHECKOUT, SECONDS

_BLOCK = re.compile(r"^```(?P<kind>\w+)(?: (?P<argument>[^\n]+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Command:
    """Hold a block of commands, the exit status that the page tells, and the lines that it says are printed."""

    text: str
    status: int
    printed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """Hold settings that the reader enters in a file."""

    file: str
    text: str


def steps(page: str) -> list[Command | Entry]:
    """Return what a page of docs/ lets its reader do, in order."""
    found: list[Command | Entry] = []
    for block in _BLOCK.finditer((CHECKOUT / "docs" / page).read_text(encoding="utf-8")):
        kind, argument, text = block["kind"], block["argument"] or "", block["text"]
        if kind == "sh":
            status = re.fullmatch(r"exits (\d+)", argument)
            assert status or not argument, f"{page}: ```sh {argument}: not known"
            found.append(Command(text, int(status[1]) if status else 0))
        elif kind == "text":
            assert found and isinstance(found[-1], Command), f"{page}: output follows no command: {text}"
            found[-1].printed.extend(line.strip() for line in text.splitlines() if line.strip())
        elif kind in ("python", "yaml") and argument:
            found.append(Entry(argument, text))
    return found


def followed(step: Command | Entry, copy: Path, environment: dict[str, str]) -> str | None:
    """Do one step in the copy; return what is not as the page tells, None where all is."""
    if isinstance(step, Entry):
        path = copy / step.file
        path.write_text(f"{path.read_text()}\n{step.text}" if path.exists() else step.text)
        return None
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step.text],
        cwd=copy, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    if done.returncode != step.status:
        return f"{step.text.strip()}: exit {done.returncode}, not {step.status}:\n{printed}"
    missing = [line for line in step.printed if line not in printed]
    return f"{step.text.strip()}: does not print {missing}:\n{printed}" if missing else None
