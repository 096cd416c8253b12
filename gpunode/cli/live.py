"""How far a run is, for whoever watches: drawn anew in a terminal, a line for each step in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpunode.cli.output import Mode, is_live, is_quiet, mode, no_color
from gpunode.fleet.run.child import Watch
from gpunode.fleet.run.progress import Progress
from gpunode.fleet.run.screen import screen, step_line

# Seconds between two drawings, where nothing happens that would be worth one.
_REDRAWN = 0.5


@contextmanager
def live(tell: Callable[[str], None]) -> Iterator[Watch]:
    """Yield what shows how far a run is: drawn anew on standard error, a line for each step by `tell`, or nothing."""
    if is_quiet():
        yield lambda progress: None
        return
    if not is_live():
        yield lines(tell)
        return
    # Late, as everything of rich's.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True, force_terminal=mode() is Mode.TTY or None, no_color=no_color() or None)
    drawn = 0.0
    # Refreshed by hand: rich's own thread and pyinfra's gevent do not get along.
    with Live(console=console, auto_refresh=False, transient=True) as display:

        def watch(progress: Progress) -> None:
            nonlocal drawn
            now = time.time()
            if now - drawn >= _REDRAWN:
                drawn = now
                display.update(Text("\n".join(screen(progress, now, console.width))), refresh=True)

        yield watch


def lines(tell: Callable[[str], None]) -> Watch:
    """Return what tells of each step once, when it has ended."""
    told = 0

    def watch(progress: Progress) -> None:
        nonlocal told
        line = step_line(progress)
        if line is not None and progress.step is not None and progress.step.number != told:
            told = progress.step.number
            tell(line)

    return watch
