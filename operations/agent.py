"""The agent by which a node asks for itself: its files and its timer, and nothing of it where it goes.

Its files are no part of what a run applies: they are installed before there is a run, and by nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.agent.files import GATE, LEFT, OPTIONAL, PLACES, SERVICE, TIMER, UNITS, Install, texts
from gpunode.base.shell_file import script_file
from gpunode.facts.file import File
from gpunode.facts.system import Unit
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.files import is_written, write_command
from gpunode.operations.script import script_command


@node_operation
def installed(desired: Install) -> Iterator[Any]:
    """Keep the agent's files, and its timer running, now and at boot."""
    changed = False
    files = texts(desired, host.name)
    given_up = [path for path in OPTIONAL if path not in files and read_fact(File, path, path=path).sha256 is not None]
    if given_up:
        changed = True
        yield script_command(_WITHOUT, *given_up, gate="" if f"{UNITS}/{GATE}" in files else GATE)
    for path, (text, mode) in files.items():
        if not is_written(path, text, mode):
            changed = True
            yield write_command(path, text, mode)
    timer = read_fact(Unit, TIMER, unit=TIMER)
    if changed or not timer.enabled or not timer.running:
        yield StringCommand("systemctl", "daemon-reload")
        yield StringCommand("systemctl", "enable", "--quiet", QuoteString(TIMER))
        # Started anew, so that it counts by what its file says now.
        yield StringCommand("systemctl", "restart", QuoteString(TIMER))
        return
    host.noop("the agent is installed as desired")


# What an earlier installation had and this one has not.
_WITHOUT = """
[ -z "$gate" ] || systemctl stop --quiet "$gate" 2>/dev/null || true
rm -f -- "$@"
"""
_GONE = script_file("agent_remove")


@node_operation
def removed(textfile: str | None = None) -> Iterator[Any]:
    """Take the agent away with all that it left: programs, state, report, metric; what it brought about stays.

    + textfile: folder that its metric went to
    """
    known = (*LEFT, str(PLACES.report))
    if not any(read_fact(File, path, path=path).sha256 is not None for path in known):
        host.noop("there is no agent")
        return
    metric = [f"{textfile}/gpunode_agent.prom"] if textfile else []
    yield script_command(_GONE, *LEFT, *metric, timer=TIMER, service=SERVICE, gate=GATE)
