"""A node of one fact per name, whose readings are shared by many operations."""

from __future__ import annotations

import base64
import gzip
import re
import shlex
import subprocess
from collections.abc import Callable

from pyinfra.connectors.util import CommandOutput

from gpunode.base.probe import LONGEST, Probe
from gpunode.fleet.shared_readings import Changes, Snapshot, as_output


def shell(command: str, path: str | None = None, shell: str = "sh") -> list[str]:
    environment = {"PATH": path} if path else None
    line = [*shell.split(), "-c", command]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def unpacked(batch: str) -> str:
    """Return the batch's command with its shell text as it is before it is compressed, and without its time limit."""
    before, _, after = batch.partition(f"timeout -k 5 {LONGEST} sh -c ")
    limited, end, after = after.partition("; } 2>/dev/null")
    (text,) = shlex.split(limited)
    text = re.sub(
        r'eval "\$\(echo (\S+) .*?\)"', lambda found: gzip.decompress(base64.b64decode(found[1])).decode(), text
    )
    return f"{before}{text}{end}{after}"


def asking(*names: str) -> Probe:
    return Probe([(name if len(names) > 1 else None, f'echo "{name}=${name}"') for name in names])


class Node:
    """Answer with what `facts` hold at that moment, by way of a real sh."""

    def __init__(self, **facts: str) -> None:
        self.facts = facts
        self.commands: list[str] = []
        self.changes = Changes()
        self.now = 0.0
        self.path: str | None = None
        self.snapshot: Snapshot = Snapshot(self.changes, clock=lambda: self.now)
        self.during: Callable[[], None] = lambda: None
        self.spoil: Callable[[list[str]], list[str]] = lambda lines: lines

    def run(self, command: str) -> tuple[bool, CommandOutput]:
        self.commands.append(command)
        settings = "".join(f"export {name}='{value}'\n" for name, value in self.facts.items())
        lines = shell(settings + command, self.path)
        self.during()
        return True, as_output(self.spoil(lines))

    def ask(self, *names: str, stage: str = "execute", arguments: str = "", across: bool = False) -> list[str]:
        succeeded, output = self.snapshot.read(asking(*names), stage, arguments, across, self.run)
        assert succeeded
        return [line for line in output.stdout_lines if line.startswith(("one=", "two=", "three="))]

    def announce(self, *names: str) -> None:
        for name in names:
            self.snapshot.announce(asking(name))

    def change(self, **facts: str) -> None:
        with self.changes.change():
            self.facts |= facts


def session(announced: list[str], steps: list[str]) -> list[str]:
    """Return what each question of a session is answered, and how often the node was asked until then.

    A step is `NAME ...` with `sudo`, `preparing` or `across`, `set NAME=VALUE`, `change NAME=VALUE`, `forget`,
    `announce NAME`, or `at SECONDS`.
    """
    node, found = Node(one="1", two="2", three="3"), []
    node.announce(*announced)
    for step in steps:
        verb, *words = step.split()
        pairs = dict(word.split("=") for word in words if "=" in word)
        match verb:
            case "set":
                node.facts |= pairs
            case "change":
                node.change(**pairs)
            case "forget":
                node.snapshot.forget()
            case "announce":
                node.announce(*words)
            case "at":
                node.now = float(words[0])
            case _:
                names = [word for word in (verb, *words) if word in node.facts]
                stage, sudo = "prepare" if "preparing" in words else "execute", "sudo" if "sudo" in words else ""
                lines = node.ask(*names, stage=stage, arguments=sudo, across="across" in words)
                asked = " ".join(name for name in node.facts if f"${name}" in unpacked(node.commands[-1]))
                found.append(f"{' '.join(lines)}, asked {len(node.commands)} times, last for {asked}")
    return found
