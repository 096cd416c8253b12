"""What is wrong with a command's input, as one message and an exit code; never as a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpunode.base.findings import ExitCode
from gpunode.cli.output import end


@contextmanager
def told() -> Iterator[None]:
    """End the program with 3 where settings or facts are refused, with 1 where the machines cannot be had."""
    # Late, so that the commands' help needs none of it.
    from gpunode.fleet.ci.machines import MachinesError
    from gpunode.fleet.inventory import InventoryError
    from gpunode.node.recorded import FactsError
    from gpunode.settings import SettingsError

    try:
        yield
    except SettingsError as error:
        end(str(error), ExitCode.INPUT_REFUSED, problems=[problem.to_json() for problem in error.problems])
    except FactsError as error:
        end(str(error), ExitCode.INPUT_REFUSED)
    except (InventoryError, MachinesError) as error:
        end(str(error), ExitCode.ERROR)
