"""As many hosts at once as there are, within the limit of open files."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

from pyinfra.api import state as pyinfra_state
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State

# Open files per host while operations run, and those of Python itself: pyinfra's own reckoning.
_FILES_PER_HOST, _FILES = 3, 10


def parallel(
    init: Callable[..., Any], self: State, inventory: Inventory, config: Any, *args: Any, **kwargs: Any
) -> Any:
    """Begin a run with all hosts at once, where nobody chose a number."""
    if config is not None and not config.PARALLEL:
        config.PARALLEL = min(len(inventory), hosts_within_open_files(len(inventory)))
    return init(self, inventory, config, *args, **kwargs)


def hosts_within_open_files(hosts: int) -> int:
    """Return how many hosts fit below the limit of open files, which is raised first as far as it may be."""
    desired = hosts * _FILES_PER_HOST + _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < desired:
        soft = desired if hard == resource.RLIM_INFINITY else min(desired, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return hosts
    # pyinfra read the limit when it was imported, and would warn by that.
    pyinfra_state.MAX_PARALLEL = max(1, (soft - _FILES) // _FILES_PER_HOST)
    return pyinfra_state.MAX_PARALLEL
