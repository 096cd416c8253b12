"""Where in the deploy an operation stands, as pyinfra asks it, without reading source files for it.

pyinfra 3.10 walks the stack with `inspect.stack()`, which looks for the source of every frame (cpython issue 92041): it
is the greater part of the controller's work per operation and host. The line numbers are in the frames themselves.
"""

from __future__ import annotations

import sys
from types import FrameType

import pyinfra
from pyinfra.api.state import State
from pyinfra.api.util import PYINFRA_INSTALL_DIR


def operation_order(state: State) -> list[int]:
    """Return what pyinfra's get_operation_order_from_stack returns: line numbers from the deploy file inwards."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    start = 0
    if state.current_deploy_filename:
        # Where the file is nowhere on the stack, pyinfra's own loop ends at its own frame, which it leaves out.
        start = len(frames)
        for number, candidate in enumerate(frames):
            if candidate.f_code.co_filename == state.current_deploy_filename:
                start = number
                break
    numbers = [state.current_op_file_number] if pyinfra.is_cli else []
    install = str(PYINFRA_INSTALL_DIR)
    numbers += [frame.f_lineno for frame in frames[start:] if not frame.f_code.co_filename.startswith(install)]
    return numbers
