"""One reading of a node serves many operations: each host's snapshot, and the hooks by which pyinfra reads from it.

An operation asks for its own small reading. Once it is known what the operations of a run are going to ask (the deploys
announce it), the first question fetches all answers in one round trip. The rules that keep this right:

- Any command that is not a probe counts as a change, and a change on any host ends every reading of every host: a step
  on one machine (a drain, say) may change another.
- A reading that was under way while something changed is handed to the one who asked, and not kept.
- Preparation and execution do not share a reading where a plan is shown between them, which somebody may think over;
  in a run that asks nobody (`pyinfra -y`) they do. None is kept longer than MAX_AGE.
- An answer that is not whole is not kept: the probe is then run alone, as plain text. A node without gzip needs that.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyinfra.api.host import Host
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.probe import Announced, Probe, batch_answers, batch_command
from gpunode.base.run_context import ANNOUNCING, Slot

# Seconds. What a command started may go on after the command has ended, and other people work on nodes too.
MAX_AGE = 30.0


@dataclass
class Changes:
    """Count what this run changes, on all hosts together."""

    count: int = 0

    @contextmanager
    def change(self) -> Iterator[None]:
        """Mark a change; it counts when it begins, and again when it has ended, however it ended."""
        self.count += 1
        try:
            yield
        finally:
            self.count += 1


@dataclass
class Snapshot:
    """Hold what one host answered since the last change."""

    changes: Changes
    clock: Callable[[], float] = time.monotonic
    _announced: Counter[str] = field(default_factory=Counter)
    _asked: Counter[str] = field(default_factory=Counter)
    _answers: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _valid: tuple[int, str] = (-1, "")
    _stage: str = ""
    _taken: float = 0.0
    _settled: bool = True

    def announce(self, probe: Probe) -> None:
        """Note that `probe` is going to be asked."""
        self._announced.update(probe.texts)

    def forget(self) -> None:
        """Drop every answer: what is asked next is asked of the host."""
        self._answers.clear()

    def read(
        self, probe: Probe, stage: str, arguments: str, across: bool, run: Callable[[str], tuple[bool, CommandOutput]]
    ) -> tuple[bool, CommandOutput]:
        """Return (succeeded, answer) of `probe`: from what is known, or by running it with what was announced.

        stage: with each, what is announced is going to be asked anew.
        across: whether readings of one stage are used in the next.
        arguments: how commands run (sudo and the like); readings are kept apart by it.
        """
        self._forget_what_is_stale(stage, across)
        self._asked.update(probe.texts)
        known = {text for kept, text in self._answers if kept == arguments}
        if known.issuperset(probe.texts):
            return True, as_output(probe.lines(self._selected(arguments)))
        texts: list[str] = [text for text in dict.fromkeys(probe.texts) if text not in known]
        if self._settled:
            texts += [
                text
                for text, times in self._announced.items()
                if times > self._asked[text] and text not in known and text not in texts
            ]
        # While every operation changes something, each asks for its own alone: the rest would be outdated unread.
        self._settled = True
        valid, mark = self._valid, secrets.token_hex(8)
        succeeded, answer = run(batch_command(texts, mark))
        # From its end: a node that is slow to answer (a wedged GPU) would else be asked anew by every operation.
        taken = self.clock()
        if not succeeded:
            return succeeded, answer
        answers = batch_answers(texts, mark, answer.stdout_lines)
        if answers is None:
            return run(probe)
        merged = self._selected(arguments) | answers
        if valid == self._valid == (self.changes.count, "" if across else stage):
            # Ages count from the oldest answer that is kept.
            self._taken = self._taken if self._answers else taken
            self._answers |= {(arguments, text): lines for text, lines in answers.items()}
        return True, as_output(probe.lines(merged))

    def _selected(self, arguments: str) -> dict[str, list[str]]:
        return {text: lines for (kept, text), lines in self._answers.items() if kept == arguments}

    def _forget_what_is_stale(self, stage: str, across: bool) -> None:
        now = (self.changes.count, "" if across else stage)
        if stage != self._stage:
            self._asked.clear()
            self._settled = True
        elif now != self._valid:
            self._settled = False
        self._stage = stage
        if now != self._valid or self.clock() - self._taken > MAX_AGE:
            self._answers.clear()
        self._valid = now


Method = Callable[..., Any]

# Of all hosts: whatever changes one may change what another one says.
changes = Changes()
_snapshot: Slot[Snapshot] = Slot(lambda: Snapshot(changes))


def snapshot(host: Host) -> Snapshot:
    """Return the host's snapshot."""
    return _snapshot.of(host)


def read_anew(host: Host) -> None:
    """Have the host's next question answered by the host, whatever is known of it."""
    snapshot(host).forget()


def changing(method: Method, *args: Any, **kwargs: Any) -> Any:
    """Call what may change the node, behind which no answer counts any more."""
    with changes.change():
        return method(*args, **kwargs)


def shared(run_shell_command: Method, self: Host, command: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a command; what only reads is answered from the snapshot where that knows it."""
    if not isinstance(command, Probe):
        return changing(run_shell_command, self, command, *args, **kwargs)
    known = snapshot(self)
    if ANNOUNCING.of(self):
        known.announce(command)
        raise Announced
    return known.read(
        command,
        stage="execute" if self.state is not None and self.state.is_executing else "prepare",
        # A run that shows no plan which somebody may think over before it is carried out (`pyinfra -y`).
        across=self.state is not None and not self.state.should_check_for_changes(),
        # How it is printed makes no difference to what is read.
        arguments=repr(sorted((key, value) for key, value in kwargs.items() if not key.startswith("print_"))),
        run=lambda text: run_shell_command(self, text, *args, **kwargs),
    )


def as_output(lines: list[str]) -> CommandOutput:
    """Return lines as what a command printed."""
    return CommandOutput([OutputLine("stdout", line) for line in lines])
