"""What is wrong with a command's input, as one message and an exit code; never as a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpunode.base.findings import ExitCode
from gpunode.base.terminal import say


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
        say(str(error), err=True)
        sys.exit(ExitCode.INPUT_REFUSED)
    except (InventoryError, MachinesError) as error:
        say(str(error), err=True)
        sys.exit(ExitCode.ERROR)
