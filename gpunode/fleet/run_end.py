"""What a run of pyinfra's own command line learns of its hosts, and the verdict that it ends with.

pyinfra 3.10 ends with a table of operations, which says nothing of the nodes, and with none where no host is left: of
hosts of which none connects it says no more than "No hosts remaining!".
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click
import gevent  # type: ignore[import-untyped]
import pyinfra
from click.core import ParameterSource
from paramiko import SSHException
from pyinfra import logger
from pyinfra.api.command import PyinfraCommand, StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State, StateStage
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_host

from gpunode.base.errors import in_words
from gpunode.base.explanations import ENDING, GPU_OPEN, KEPT, OWN_CAUSE, OWN_REMEDY, explained, failure
from gpunode.base.findings import Finding
from gpunode.base.folding import NARROWEST, UNBOUND
from gpunode.base.messages import Scope, split_remedy
from gpunode.base.run_context import FAILURE_REASONS, Slot
from gpunode.base.terminal import CREDENTIALS, logged, printable
from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.fleet.access import connecting, connection
from gpunode.fleet.call import Call, told_call
from gpunode.fleet.reports.run_end import HostEnd, failed_by, failure_of, refusal_finding, verdict_text
from gpunode.fleet.run import events
from gpunode.fleet.run.events import is_part, stops
from gpunode.fleet.run.progress import wait_line
from gpunode.settings import overrides
from gpunode.settings.problems import SECRET

# What pyinfra's command line may be asked for that is no deploy.
_NO_DEPLOY = ("debug-inventory", "fact", "exec")
# Options of pyinfra's command line that a command to be pasted has in its own form, or leaves out.
_OF_ONE_RUN = ("limit", "exclude", "verbosity", "dry", "diff", "yes", "debug", "debug_all", "json_output")
# Seconds between two looks at which hosts are waited for.
_LOOK = 5.0
# What is known of a host so far.
_ends: Slot[HostEnd | None] = Slot(lambda: None)
# The operation that a run carries out.
_operation: Slot[str | None] = Slot(lambda: None)
# Whether a deploy of gpunode takes part in a host's run: what others do with pyinfra has its own end.
_takes_part = Slot(bool)
# What pyinfra logged as errors of the command that a host runs: a file that is not copied has no other reason.
_logged: Slot[list[str]] = Slot(list)
# What the verdict finds of a run's cluster; None where nothing was judged of it.
_cluster: Slot[HostEnd | None] = Slot(lambda: None)


class Watcher(BaseStateCallback):
    """Note which hosts are not reached, and which operation fails on which host."""

    @staticmethod
    def host_connect_error(state: State, host: Host, error: ConnectError) -> None:
        note(host, unreached=str(error))

    @staticmethod
    def operation_start(state: State, op_hash: str) -> None:
        _operation.set(state, min(state.get_op_meta(op_hash).names, default=None))

    @staticmethod
    def operation_host_error(
        state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Note the operation that failed, with its reasons."""
        if stops(state, host, op_hash):
            name = next(iter(sorted(state.get_op_meta(op_hash).names)), "an operation")
            note(host, failure=failure_of(name, FAILURE_REASONS.of(host)))
        elif not is_part(state, host, op_hash) or state.ops[host][op_hash].global_arguments["_ignore_errors"]:
            _forget(state, host, op_hash)

    @staticmethod
    def operation_host_retry(state: State, host: Host, op_hash: str, retry_num: int, max_retries: int) -> None:
        """Forget why the attempt failed: there is another one (pyinfra's --retry)."""
        _forget(state, host, op_hash)

    @staticmethod
    def operation_host_success(state: State, host: Host, op_hash: str, retry_count: int = 0) -> None:
        """Forget the errors that this operation did not fail by."""
        if not is_part(state, host, op_hash):
            _forget(state, host, op_hash)


def _forget(state: State, host: Host, op_hash: str) -> None:
    """Forget why an operation failed; of one that another operation calls, the last reason alone."""
    del FAILURE_REASONS.of(host)[-1 if is_part(state, host, op_hash) else 0 :]


class ErrorLog(logging.Handler):
    """Keep what pyinfra logs as an error while a host runs a command."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of a host."""
        if (host := ctx_host.get()) is not None:
            _logged.of(host).append(click.unstyle(record.getMessage()).removeprefix(f"[{host.name}]").strip())


def executed(execute: Callable[..., Any], command: PyinfraCommand, state: State, host: Host, arguments: Any) -> Any:
    """Execute a command of an operation; where it fails, keep and print the reason."""
    reasons, errors_logged = FAILURE_REASONS.of(host), _logged.of(host)
    errors_logged.clear()
    known = len(reasons)
    try:
        result = execute(command, state, host, arguments)
    except Exception as error:
        # An exception passes through each command that executes another one; a nested operation has its reasons.
        if len(reasons) == known:
            reasons.append(_words(error, arguments.get("_timeout")))
        # pyinfra expects no EOFError of a connection: it would end the run of every host.
        if isinstance(error, EOFError):
            raise SSHException("the node closed it") from error
        raise
    if isinstance(command, StringCommand):
        return _explained(command, state, host, *result)
    if result is False and len(reasons) == known:
        reasons.append("\n".join(map(_shown, errors_logged)))
    return result


def _explained(
    command: StringCommand, state: State, host: Host, succeeded: bool, output: CommandOutput
) -> tuple[bool, CommandOutput]:
    """Return the result of a shell command; the output of one that failed ends with cause and remedy, where known."""
    if succeeded:
        # pyinfra shows no output of a success.
        for line in output if not state.print_output else ():
            if KEPT in line.line:
                host.log_styled(line.line, fg="yellow")
        return succeeded, output
    # Standard error says why.
    words = output.stderr_lines if any(output.stderr_lines) else output.output_lines
    is_ours = ENDING in command.bits and not connecting.is_broken(host.connector)
    found = failure(output.output_lines, command.get_masked_value()) if is_ours else explained(words)
    lines = [text for item in found for text in (f"{OWN_CAUSE} {item.cause}", f"{OWN_REMEDY} {item.remedy}")]
    # What is known of a user's own command follows its words: it may be of a line that is not the cause.
    causes = (*(() if is_ours else words), *(item.cause for item in found))
    FAILURE_REASONS.of(host).append(failed_by(map(_shown, causes), (item.remedy for item in found)))
    for text in lines if state.print_output else ():
        host.log_styled(text, fg="red")
    # What a script itself printed of both is in these; who has a GPU open, where that matters.
    others = [line for line in output if not (is_ours and line.line.startswith((OWN_CAUSE, OWN_REMEDY, GPU_OPEN)))]
    return succeeded, CommandOutput([*others, *(OutputLine("stderr", text) for text in lines)])


def _shown(line: str) -> str:
    """Return a line of a node's output as it is recorded: printable, without passwords, and as a progress bar ended."""
    text = click.unstyle(line.rstrip("\r").rpartition("\r")[2])
    return printable(CREDENTIALS.sub("://***@", logged(text))).rstrip()


def _words(error: Exception, timeout: float | None = None) -> str:
    """Return what an exception says, for people; timeout: the seconds that the command had."""
    if isinstance(error, TimeoutError):
        return f"the command did not end within {timeout} s (_timeout)" if timeout else "no answer came in time"
    if isinstance(error, EOFError | SSHException | ConnectionError):
        return f"the connection broke: {str(error) or 'the node closed it'}"
    return in_words(error)


def watch(state: State) -> None:
    """Watch the hosts of a run."""
    state.add_callback_handler(Watcher())
    if events.EVENTS in os.environ:
        state.add_callback_handler(events.Teller())
    if pyinfra.is_cli:
        gevent.spawn(_log_waits, state)


def _log_waits(state: State) -> None:
    """Log which hosts are waited for, since when and in what."""
    now = time.time()
    while True:
        before = now
        gevent.sleep(_LOOK)
        now = time.time()
        begun: dict[str, dict[str, float]] = {}
        for host in state.inventory:
            if (since := connection.waited_for.get(host.name)) is not None:
                names = state.get_op_meta(host.executing_op_hash).names if host.executing_op_hash else ()
                what = f"operation {min(names)}" if names else "it is read"
                begun.setdefault(what, {})[host.name] = since
        for what, hosts in begun.items():
            if (line := wait_line(hosts, what, before, now)) is not None:
                logger.info(line)


def takes_part(host: Host) -> None:
    """Note that a deploy of gpunode's is to say something of this host."""
    _takes_part.set(host, True)
    events.tell("judged", host=host.name)


def refused(host: Host, reasons: Iterable[Refusal | str]) -> None:
    """Note why preflight refuses a host."""
    note(host, refused=tuple(map(_finding_of, reasons)))


def judged(host: Host, findings: Iterable[Finding]) -> None:
    """Note the verdict's findings on a host; those on its cluster come behind those on the node."""
    note(host, findings=(*(_end(host).findings or ()), *findings))


def cluster_judged(state: State, name: str, findings: Iterable[Finding]) -> None:
    """Note the verdict's findings on the cluster: each once, as it was found last."""
    before = _cluster.of(state)
    every = (*((before.findings if before else None) or ()), *findings)
    found = {(item.component, item.what): item for item in every}
    _cluster.set(state, HostEnd(name, findings=tuple(found.values()), scope=Scope.CLUSTER))


def tell(state: State) -> None:
    """Log the verdict of a run that was carried out, where gpunode had a part in it: the last that a person reads.

    So is one logged that ended while it connected, with no host left or too few (pyinfra's --fail-percent), and one
    that an error ended while it was prepared.
    """
    hosts = [host for host in state.inventory if state.is_host_in_limit(host)]
    ours = any(_takes_part.of(host) for host in hosts)
    _note_broken(state, hosts)
    lost = state.current_stage == StateStage.Connect and any(_end(host).unreached for host in hosts)
    lost = lost or (state.current_stage == StateStage.Prepare and _what_ended_it() is not None)
    if not (ours and (lost or state.current_stage >= StateStage.Execute)) and not (lost and _is_asked_for()):
        return
    _note_cut_off(state, hosts)
    # Of a host that was not reached no deploy could say whether it takes part.
    shown = [host for host in hosts if _takes_part.of(host) or lost or _end(host).unreached is not None]
    ends = [replace(_end(host), log="the output above") for host in shown]
    if (cluster := _cluster.of(state)) is not None:
        ends.append(cluster)
    events.tell("ended", hosts=[end.to_json() for end in ends])
    columns = max(NARROWEST, get_terminal_size((100, 24)).columns) if sys.stderr.isatty() else UNBOUND
    logger.info("--> Verdict:")
    for line in verdict_text(ends, columns, _call(hosts)).splitlines():
        logger.info(logged(line))


def _note_broken(state: State, hosts: Iterable[Host]) -> None:
    """Note the hosts that failed because the connection to them broke, and during what; and those lost before a run."""
    for host in filter(state.failed_hosts.__contains__, hosts):
        if connecting.is_broken(host.connector):
            failure = _end(host).failure
            step = f"during {failure.what}" if failure else "while the node was read"
            note(host, unreached=connecting.why_broken(host.connector, step))
        elif _end(host) == HostEnd(host.name) and (reasons := FAILURE_REASONS.of(host) or _logged.of(host)):
            note(host, failure=failure_of("the reading of the node", reasons))


def _note_cut_off(state: State, hosts: Iterable[Host]) -> None:
    """Note the hosts on which a run had not ended when something ended it that is no host's own failure."""
    # pyinfra is through with the operations when it sets the next stage; it disconnects whatever ended it. A run that
    # is only prepared ends by SystemExit.
    how = _what_ended_it()
    if state.current_stage > StateStage.Execute or (state.current_stage == StateStage.Prepare and how is None):
        return
    how = how or "it was interrupted"
    step = f"in “{name}”" if (name := _operation.of(state)) else "before its last operation"
    for host in hosts:
        if host in state.active_hosts and _end(host).left_alone is None:
            note(host, cut_off=f"pyinfra ended {step}: {how}")
        elif _end(host) == HostEnd(host.name):
            # No operation failed: the host was lost while the run was prepared.
            note(host, cut_off="\n".join(_logged.of(host)) or how)


def _is_asked_for() -> bool:
    """Say whether pyinfra's command line asks for a deploy of gpunode's, of which none could say so itself yet."""
    context = click.get_current_context(silent=True)
    words = tuple(map(str, context.params.get("operations") or ())) if context else ()
    if not words or words[0] in _NO_DEPLOY:
        return False
    # A file, or the module of a function: deploys/gpu_node.py, deploys.drain.uncordon.
    files = words if words[0].endswith(".py") else (f"{words[0].rpartition('.')[0].replace('.', '/')}.py",)
    with suppress(OSError):
        return any("gpunode" in Path(file).read_text(encoding="utf-8", errors="replace") for file in files)
    return False


def _what_ended_it() -> str | None:
    """Return what is on its way through pyinfra's own `finally`: an error, with its line of a deploy file, or None."""
    error = sys.exc_info()[1]
    if not isinstance(error, Exception):
        return None
    # The command line's own errors hold what they are about.
    cause, file = getattr(error, "exception", error), getattr(error, "filename", None)
    lines = [frame.lineno for frame in traceback.extract_tb(cause.__traceback__) if file and frame.filename == file]
    if isinstance(cause, SyntaxError):
        return f"{cause.filename}, line {cause.lineno}: {cause.msg}"
    return f"{f'{file}, line {lines[-1]}: ' if lines else ''}{_words(cause)}"


def _call(hosts: Iterable[Host]) -> Call:
    """Return how the run was called: by a command of gpunode's that says so, or by pyinfra's own command line."""
    if (told := told_call(os.environ)) is not None:
        return told
    context = click.get_current_context(silent=True)
    words = context.params if context else {}
    # gpunode's commands have no --exclude: the hosts that were left stand by their names.
    limit = [escape(host.name) for host in hosts] if words.get("exclude") else words.get("limit") or ()
    operations = tuple(map(str, words.get("operations") or ()))
    options = tuple(_options(context)) if context else ()
    return Call(str(words.get("inventory") or "") or None, tuple(limit), overrides.shown(), operations, options)


def _options(context: click.Context) -> Iterator[str]:
    """Yield the words of pyinfra's command line that say how hosts are reached and with which data."""
    for option in context.command.params:
        name = str(option.name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not given or not isinstance(option, click.Option) or name in _OF_ONE_RUN:
            continue
        value = context.params[name]
        for each in value if option.multiple else (value,):
            yield option.opts[0]
            if not option.is_flag:
                yield overrides.shown_word(str(each)) if name == "data" else SECRET if "password" in name else str(each)


def _end(host: Host) -> HostEnd:
    return _ends.of(host) or HostEnd(host.name)


def note(host: Host, **found: Any) -> None:
    """Note fields of a host's end, see HostEnd."""
    _ends.set(host, replace(_end(host), **found))


NOT_JUDGED = RefusalMessage(
    "not-judged", "Preflight could not judge the node.",
    component="node", source="the answer of the node or the cluster",
    detail="The node, or the cluster that must be asked first, did not answer.",
    remedies=("look at the node, or at what the cause names",),
)  # fmt: skip


def _finding_of(reason: Refusal | str) -> Finding:
    if isinstance(reason, Refusal):
        return refusal_finding(reason)
    cause, remedy = split_remedy(reason)
    return refusal_finding(NOT_JUDGED(reason=cause, remedy=remedy or "look at the node"))
