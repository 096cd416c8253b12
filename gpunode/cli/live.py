"""How far a run is, for whoever watches: drawn anew in a terminal, a line for each step in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gpunode.cli.output import Mode, is_live, is_quiet, mode, no_color
from gpunode.fleet.run.child import Watch
from gpunode.fleet.run.progress import Progress, cut_line, screen, step_line, wait_line

# Seconds between two drawings, where nothing happens that would be worth one.
_REDRAWN = 0.5


@contextmanager
def live(tell: Callable[[str], None]) -> Iterator[Watch]:
    """Yield what shows how far a run is: drawn anew on standard error, a line for each step by `tell`, or nothing."""
    if is_quiet():
        yield lambda progress: None
        return
    with _drawn() if is_live() else _logged(tell) as watch:
        yield watch


@contextmanager
def _drawn() -> Iterator[Watch]:
    # Late, as everything of rich's.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    class Terminal(Console):
        """Raise an error of a terminal that is gone, where rich ends the program, and its standard output before."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError("the terminal is gone")

    console = Terminal(stderr=True, force_terminal=mode() is Mode.TTY or None, no_color=no_color() or None)
    drawn = 0.0
    # Refreshed by hand: rich's own thread and pyinfra's gevent do not get along.
    display = Live(console=console, auto_refresh=False, transient=True)

    def watch(progress: Progress) -> None:
        nonlocal drawn
        now = time.time()
        if now - drawn >= _REDRAWN:
            drawn = now
            display.update(Text("\n".join(screen(progress, now, console.width))), refresh=True)

    # What cannot be drawn ends no run; where it could not begin, the first drawing fails, which the log tells.
    with suppress(Exception):
        display.start()
    try:
        yield watch
    finally:
        with suppress(Exception):
            display.stop()


@contextmanager
def _logged(tell: Callable[[str], None]) -> Iterator[Watch]:
    tells, last = lines(tell), None

    def watch(progress: Progress) -> None:
        nonlocal last
        last = progress
        tells(progress)

    yield watch
    # A step that fails on every host is the last, and pyinfra ends before it tells that it has.
    line = cut_line(last, time.time()) if last is not None else None
    if line is not None:
        with suppress(Exception):
            tell(line)


def lines(tell: Callable[[str], None]) -> Watch:
    """Return what reports each step once, when it has ended, and the hosts that are waited for in it."""
    told, before = 0, time.time()

    def watch(progress: Progress) -> None:
        nonlocal told, before
        step, line, now = progress.step, step_line(progress), time.time()
        if step is not None and (late := wait_line(step.begun, f"operation {step.name}", before, now)) is not None:
            tell(late)
        before = now
        if line is not None and step is not None and step.number != told:
            told = step.number
            tell(line)

    return watch
