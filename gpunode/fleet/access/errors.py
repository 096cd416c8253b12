"""Why no connection came about, or a node runs nothing for the user who came: sudo, the shell, an expired password.

Pure: lines of text in; an explanation out, or the finding that drift, plan and the end of a run tell alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpunode.base.comparison import finding_message
from gpunode.base.errors import in_words
from gpunode.base.explanations import Explanation, rules
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.messages import REMEDY, split_remedy
from gpunode.base.probe_output import CORRECT, TOO_LARGE

# sudo asks within the first lines; a long output is a command's own.
_LINES = 40


_NOT_REACHED, _NOT_READ = "check address, key and known hosts", "look at the node"
_RUN_AGAIN = "run the command again when the node answers; a run waits for a change that goes on there, or undoes it"
_BROKE, _SILENT = "the connection broke", "no answer to three keepalives in 90 s"
_RESTART = f"look at the machine's console and restart it where it hangs; {_RUN_AGAIN}"
_LOOK_AT_PROCESSES = (
    "find the program by `ps -eo pid,stat,lstart,args` on the node (state D: it waits for a device or a file system), "
    "end it or restart the node, and run the command again"
)
_RECORD_AGAIN = "record the facts with `gpunode facts` of the same inventory, or name the hosts to plan with --limit"
_HANGS = (
    "connect by ssh: where that works, `ps -eo pid,stat,etimes,args` on the node shows what hangs, such as a program "
    "that waits for a driver, or a pipe in place of a configuration file; where the node is only slow, set --timeout"
)
CONNECTION = finding_message(
    "node", "connection", "The node cannot be reached.",
    "There was no SSH connection, or no answer in time. Nothing is known of the node.",
    remedies=(_NOT_REACHED, _HANGS), classes=(FindingClass.UNREACHABLE,),
)  # fmt: skip
BROKEN = finding_message(
    "node", "connection-broken", "The connection to the node broke.",
    "The connection ended while the node was read or changed: the node went down, its SSH server was stopped, or the "
    "network failed. What a run began on the node goes on there.",
    remedies=(_RUN_AGAIN,), classes=(FindingClass.UNREACHABLE,),
)  # fmt: skip
SILENT = finding_message(
    "node", "connection-silent", "The node stopped answering.",
    "The SSH server answered none of three keepalives, 30 s apart: the machine is paused, its programs hang, or the "
    "network fails. The connection was ended. What a run began on the node goes on there once the machine does.",
    remedies=(_RESTART,), classes=(FindingClass.UNREACHABLE,),
)  # fmt: skip
HUNG = finding_message(
    "node", "command-hung", "A command on the node did not end.",
    "The connection is alive, but a command did not end: within 10 minutes while the node was read before a run, or "
    "within 3.5 hours in the run. A program waits for a device, a file system or a server. The run left this node. "
    "A transaction goes on there, and is undone where it has not ended after 3 hours.",
    remedies=(_LOOK_AT_PROCESSES,), classes=(FindingClass.ERROR,),
)  # fmt: skip
STATE = finding_message(
    "node", "state", "The node answered, and its state cannot be judged.",
    "An answer was cut off or not understood, sudo is not allowed, or the judging failed. Nothing was changed.",
    remedies=(_NOT_READ,), classes=(FindingClass.ERROR,),
)  # fmt: skip
ANSWER = finding_message(
    "node", "answer-too-large", "The node sent more than gpunode reads.",
    "One command's output is limited to 16 MiB, or 250,000 lines. Nothing is known of the node.",
    remedies=(CORRECT,), classes=(FindingClass.ERROR,),
)  # fmt: skip
UNMATCHED = finding_message(
    "node", "recorded", "The host is in the file of facts or in the inventory, and not in both.",
    "A plan needs the facts and the settings of a host. Nothing was planned for this one.",
    remedies=(_RECORD_AGAIN,), classes=(FindingClass.ERROR,),
)  # fmt: skip


def explained(lines: Iterable[str]) -> Explanation | None:
    """Return why the node ran nothing, and what to do; None where the lines say nothing of that.

    lines: what a command that failed printed
    """
    first = [line.strip() for line, _ in zip(lines, range(_LINES), strict=False)]
    return next((told for rule in rules("access") for line in first if (told := rule.told(line))), None)


def with_remedy(error: str) -> str:
    """Return why no connection came about, in the words that pyinfra has, with what to do where that is known."""
    if REMEDY in error:
        # Of a host key: the connection knew the file (gpunode.fleet.access.connecting).
        return error
    told = next((told for rule in rules("connection") if (told := rule.told(error))), None)
    return error if told is None else f"{error}{REMEDY}{told.remedy}"


def broken(when: str, is_silent: bool = False) -> str:
    """Return what to print of a connection that broke, with its remedy; is_silent: no keepalive was answered."""
    if is_silent:
        return f"{_SILENT} {when}: the machine hangs, or the network is gone{REMEDY}{_RESTART}"
    return f"{_BROKE} {when}{REMEDY}{_RUN_AGAIN}"


def hung(cause: str) -> Finding:
    """Return the finding on a node of which a command did not end."""
    return HUNG.finding(FindingClass.ERROR, "hangs", "ends", cause=cause, remedy=_LOOK_AT_PROCESSES)


def unreached(reason: str | None) -> Finding:
    """Return the finding on a node that was not reached; reason: as pyinfra has it, or with its remedy behind it."""
    cause, remedy = split_remedy(with_remedy(reason or "no connection"))
    if (cause or "").startswith(TOO_LARGE):
        return unreadable(reason)
    message, actual = CONNECTION, "none"
    for words, kind, how in ((_BROKE, BROKEN, "broken"), (_SILENT, SILENT, "silent")):
        if (cause or "").startswith(words):
            message, actual = kind, how
    return message.finding(FindingClass.UNREACHABLE, actual, "ssh", cause=cause, remedy=remedy or _NOT_REACHED)


def unreadable(reason: str | None) -> Finding:
    """Return the finding on a node whose answer cannot be used; reason: with its remedy behind it where it has one."""
    cause, remedy = split_remedy(reason) if reason else (None, None)
    message, actual = (ANSWER, "too large") if (cause or "").startswith(TOO_LARGE) else (STATE, "unreadable")
    return message.finding(FindingClass.ERROR, actual, "readable", cause=cause, remedy=remedy or _NOT_READ)


def unjudged(error: Exception) -> Finding:
    """Return the finding on a node whose odd answer nobody thought of: it is that node's trouble and no other's."""
    return STATE.finding(FindingClass.ERROR, "cannot be judged", cause=in_words(error), remedy=_NOT_READ)


def silent(seconds: float) -> str:
    """Return what to print of a node that is connected, and whose answer does not come, with its remedy."""
    return f"no answer within {seconds:g} s{REMEDY}{_HANGS}"


def unmatched(actual: str, cause: str) -> Finding:
    """Return the finding on a host that a file of facts or the inventory lacks."""
    return UNMATCHED.finding(FindingClass.ERROR, actual, "facts and settings", cause=cause, remedy=_RECORD_AGAIN)
