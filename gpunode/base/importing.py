"""Import much at once for less: modules stay, so that a search among them for garbage finds next to nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile, and leave out of every later collection what is there at the end.

    A command imports some 800 modules, and the collector would go through all of them 160 times: a tenth of the time.
    """
    if not gc.isenabled():
        # Within another one, or of a program that wants it so.
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
