"""An operation's place in the deploy, without a search for source files."""

from __future__ import annotations

import sys
from types import FrameType

import pyinfra
from pyinfra.api.state import State
from pyinfra.api.util import PYINFRA_INSTALL_DIR


def operation_order(state: State) -> list[int]:
    """Return what pyinfra's get_operation_order_from_stack returns: line numbers from the deploy file inwards.

    pyinfra 3.10 walks the stack with `inspect.stack()`, which looks for the source of every frame (cpython issue
    92041): it is the greater part of the controller's work per operation and host. The numbers are in the frames.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    if file := state.current_deploy_filename:
        # Where the file is nowhere on the stack, pyinfra's own loop ends at its own frame, which it leaves out.
        frames = frames[next((at for at, each in enumerate(frames) if each.f_code.co_filename == file), len(frames)) :]
    numbers = [state.current_op_file_number] if pyinfra.is_cli else []
    install = str(PYINFRA_INSTALL_DIR)
    return numbers + [each.f_lineno for each in frames if not each.f_code.co_filename.startswith(install)]
