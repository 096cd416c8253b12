"""Strike a run of pyinfra with a fault at one of its operations; loaded by config.py of this folder alone.

$GPUNODE_TEST_FAULT is JSON: fault, operation (index), moment (`before` it, or `during` it), container, log (a file
that gets what was struck: a test that struck nothing would show nothing).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gevent  # type: ignore[import-untyped]
from pyinfra.api import Host, State
from pyinfra.api.state import BaseStateCallback

from tests.molecule.interruption.faults import strike

VARIABLE = "GPUNODE_TEST_FAULT"

# Long enough for a package manager to be at work, short enough to be within it.
_DURING_SECONDS = 0.35


class Striker(BaseStateCallback):
    """Strike once, at the operation that was asked for."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked

    def operation_host_start(self, state: State, host: Host, op_hash: str) -> None:  # type: ignore[override]
        if state.get_op_order().index(op_hash) != self.asked["operation"]:
            return
        if self.asked["moment"] == "before":
            self.strike(state, op_hash)
        else:
            gevent.spawn_later(_DURING_SECONDS, self.strike, state, op_hash)

    def strike(self, state: State, op_hash: str) -> None:
        """Tell what is struck, then strike."""
        name = ", ".join(state.get_op_meta(op_hash).names)
        Path(self.asked["log"]).write_text(f"{self.asked['fault']} {self.asked['moment']} {name}\n")
        strike(self.asked["fault"], self.asked["container"])


def install() -> None:
    """Hand pyinfra a Striker with its state; does nothing where no fault is asked for."""
    asked = json.loads(os.environ.get(VARIABLE, "null"))
    if asked is None:
        return
    init = State.init

    def init_with_striker(self: State, *args: Any, **kwargs: Any) -> Any:
        result = init(self, *args, **kwargs)
        self.add_callback_handler(Striker(asked))
        return result

    State.init = init_with_striker  # type: ignore[method-assign]
