"""What is wrong with a command's input, as one message with its code, and an exit code; never as a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from gpunode.base.codes import with_code
from gpunode.base.errors import CodedError
from gpunode.base.findings import ExitCode
from gpunode.base.terminal import say

# What no class of its own stands for; `gpunode explain` has their pages.
NOT_WRITTEN = "report.not-written"
NOT_READ = "file.unreadable"
NO_FACTS = "facts.none"
NOTHING_TO_CHANGE = "apply.nothing-to-change"
BROKEN_OFF = "run.broken-off"
UNKNOWN_CODE = "explain.unknown"
NO_CLUSTER = "cluster.none"
RUNTIME_REFUSED = "runtime.refused"
ALREADY_THERE = "init.already-there"
NOT_MADE = "init.not-written"
CRASHED = "gpunode.crashed"
INTERRUPTED = "gpunode.interrupted"
USAGE = "gpunode.usage"


def end(text: str, code: str, status: ExitCode) -> NoReturn:
    """Say why the command cannot do its work, with its code behind it, and end the program."""
    say(with_code(text, code), err=True)
    sys.exit(status)


def end_by(error: CodedError, status: ExitCode, before: str = "") -> NoReturn:
    """Say an error with its code, and end the program; before: what stands in front of it."""
    from gpunode.settings.problems import SettingsError

    text = f"{before}{error}"
    # Each of its mistakes has a code.
    say(text if isinstance(error, SettingsError) else with_code(text, error.code), err=True)
    sys.exit(status)


@contextmanager
def told() -> Iterator[None]:
    """End the program with 3 where settings or facts are refused, with 1 where the machines cannot be had."""
    # Late, so that the commands' help needs none of it.
    from gpunode.fleet.ci.machines import MachinesError
    from gpunode.fleet.inventory import InventoryError
    from gpunode.node.recorded import FactsError
    from gpunode.settings import SettingsError
    from gpunode.settings.overrides import OverrideError

    try:
        yield
    except (SettingsError, OverrideError, FactsError) as error:
        end_by(error, ExitCode.INPUT_REFUSED)
    except (InventoryError, MachinesError) as error:
        end_by(error, ExitCode.ERROR)
