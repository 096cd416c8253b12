"""What is asked of the cluster, and told to it, in an operation: where that fails, it is the host that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pyinfra.api import FunctionCommand, Host, State

from gpunode.base.decision import Decision
from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.cluster import ClusterError
from gpunode.operations.failure import OperationRefused

T = TypeVar("T")


def answered(what: str, ask: Callable[[], T]) -> T:
    """Return what the cluster answers; raise OperationRefused, by what was asked, where it does not."""
    try:
        return ask()
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{what}: {error}") from None


def decided(decide: Callable[[], Decision[T]]) -> Decision[T]:
    """Return what is to be done in the cluster; raise OperationRefused where nobody can say, or nothing may be done."""
    try:
        decision = decide()
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    if decision.refusal is not None:
        raise OperationRefused(f"{decision.refusal}\nnothing was changed in the cluster")
    return decision


def told(change: Callable[[], Any]) -> FunctionCommand:
    """Return the command that changes something in the cluster; where that fails, cause and remedy are told."""
    return FunctionCommand(_tell, [change], {})


def _tell(state: State, host: Host, change: Callable[[], Any]) -> bool:
    try:
        change()
    except (ClusterError, ParseError) as error:
        for line in str(error).splitlines():
            host.log_styled(line, fg="red")
        return False
    return True
