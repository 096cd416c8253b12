"""Failure stays on its node: the one way in which an operation of ours gives up.

An exception that leaves a generator aborts every host of a run, and a fact that fails in execution hands its default to
an operation that then acts on it (pyinfra 3.10). `node_operation` turns the first into a failing command;
`read_fact` the second.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator
from copy import copy
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from pyinfra import host
from pyinfra.api import FunctionCommand, Host, StringCommand, operation
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operation import OperationMeta, PyinfraOperation
from pyinfra.context import ctx_host

from gpunode.base.comparison import RUN_AGAIN
from gpunode.base.decision import Decision
from gpunode.base.errors import in_words
from gpunode.base.explanations import ENDING
from gpunode.base.reading import Reading, Unknown
from gpunode.base.run_context import COMMAND_ERROR, FAILURE_REASONS, Slot
from gpunode.operations import node_lock
from gpunode.operations.phase import announced, is_announcing

if TYPE_CHECKING:
    from gpunode.facts.base import NodeFact

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Reading)
Command = StringCommand | FunctionCommand | str


class OperationRefused(Exception):
    """Say why an operation does nothing on this node, and what to do about it."""


class WaitsForCluster(OperationRefused):
    """Say what an operation leaves as it is because the node's cluster does not answer.

    A run that reports the cluster at its end goes on with the node, and fails there.
    """


# Whether a later operation of the run fails the host by the cluster.
reports_cluster = Slot(bool)


def fail(reason: str) -> FunctionCommand:
    """Return a command that logs `reason` for its host and fails: later operations leave this host alone."""
    return FunctionCommand(lambda state, host: failed(host, reason), [], {})


def failed(host: Host, reason: str) -> bool:
    """Log why the operation of a host fails, and keep it for the verdict; return False."""
    FAILURE_REASONS.of(host).append(reason)
    for line in reason.splitlines():
        host.log_styled(line, fg="red")
    return False


def reason_of(error: Exception) -> str:
    """Return why an operation or a deploy was given up."""
    # Where a reading fails on the last host, pyinfra says no more than "No hosts remaining!".
    return (isinstance(error, PyinfraError) and COMMAND_ERROR.of(ctx_host.get())) or in_words(error)


def explained_command(command: StringCommand) -> StringCommand:
    """Return `command` as one whose output ends with its exit status, see gpunode.fleet.run_end.executed."""
    if ENDING in command.bits:
        return command
    ending = copy(command)
    ending.bits = (*command.bits, ENDING)
    return ending


def node_operation(function: Callable[P, Iterator[Any]], changes: bool = True) -> PyinfraOperation[P]:
    """Make a pyinfra operation whose errors fail the one host that they happen on.

    changes: whether it may change the node, for which it needs the node's lock
    """

    @operation()
    @wraps(function)
    def contained(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, None, None]:
        try:
            if changes and (reason := node_lock.refusal()) is not None:
                yield fail(reason)
                return
            for command in function(*args, **kwargs):
                yield explained_command(command) if isinstance(command, StringCommand) else command
        except WaitsForCluster as refusal:
            if host.state.is_executing and not reports_cluster.of(ctx_host.get()):
                yield fail(str(refusal))
            else:
                host.noop(str(refusal))
                host.log(f"pending: {refusal}")
        except OperationRefused as refusal:
            yield fail(str(refusal))
        except Exception as error:
            yield fail(reason_of(error))

    @wraps(contained)
    def entered(*args: Any, **kwargs: Any) -> OperationMeta:
        if is_announcing(ctx_host.get()):
            announced(function, *args, **kwargs)
            return OperationMeta("", None)
        return contained(*args, **kwargs)

    return cast(PyinfraOperation[P], entered)


def has_work(operation: Callable[..., Any], **arguments: Any) -> bool:
    """Say whether an operation of ours would do anything, by what is known of the node; what it says of that is said.

    One that cannot tell is to say so itself, when it is carried out.
    """
    try:
        return next(iter(inspect.unwrap(operation)(**arguments)), None) is not None
    except Exception:
        return True


def read_fact(fact: type[NodeFact[R]], what: str, **arguments: Any) -> R:
    """Return what a fact reads of the node; raise OperationRefused where the node did not answer."""
    reading: R | Unknown = host.get_fact(fact, **arguments)
    if isinstance(reading, Unknown):
        raise OperationRefused(
            f"{what} is unknown ({reading.reason}); nothing was changed. Remedy: look at the node, and {RUN_AGAIN}"
        )
    return reading


def change_now(kind: type[T], decision: Decision[Any]) -> T | None:
    """Return the change of that kind which a run makes now, None where there is none; raise OperationRefused."""
    if decision.refusal is not None:
        raise OperationRefused(decision.refusal)
    for step in decision.steps:
        if step.waits is not None:
            host.log(f"reboot pending: {step.waits}")
        elif isinstance(step.change, kind):
            return step.change
    return None


@partial(node_operation, changes=False)
def refuse(reasons: list[str]) -> Iterator[Any]:
    """Fail this host with its reasons, and no other host."""
    yield fail("\n".join(f"refused: {reason}" for reason in reasons))


@partial(node_operation, changes=False)
def leave_alone(reason: str) -> Iterator[Any]:
    """Say why nothing is done to this host, which is no failure."""
    host.noop(reason)
    yield from ()
