"""What a JSON document of gpunode's tells of each host: how it is, and which findings it says nothing of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from functools import cached_property
from typing import Any

from gpunode.base.document import AGENT_SCHEMA, AHEAD, REPORT_SCHEMA, ROLLOUT_SCHEMA, UPDATE, newer
from gpunode.base.errors import CodedError
from gpunode.base.explained import code_of, quoted
from gpunode.base.findings import CLUSTER, ExitCode, FindingClass
from gpunode.base.messages import command_error
from gpunode.history.intervals import End, Key, State

# The longest that a text is kept; a node may say anything.
LONGEST = 2_000
CONNECTION, STATE = ("node", "connection"), ("node", "state")
_PREFLIGHT = "preflight"
_OK = FindingClass.OK.value
_AGENT = "agent"
# Of whom a report says something even where it says nothing of what the settings ask.
_NOT_JUDGED = frozenset({"node", _AGENT, "run"})
# How a judge says that it knows nothing.
_UNKNOWN = frozenset({"not known", "unknown", "unreadable", "not read", "cannot be judged"})
# What is told of a host whose reader was lost (gpunode/fleet/engine/readings.py): it may never have been asked.
_READER_LOST = "engine.part-lost"


class NoDocumentError(CodedError):
    """Say why something is no document that a history can take."""

    code = command_error(
        "history.no-document", "A file is not a JSON document that a history can take.",
        "It takes the output of `gpunode drift`, `apply` and `agent collect` with --output json, and reports of "
        "agents. A plan describes what a run would do, not the state of hosts.",
        remedy="import the output of one of these commands", exit="3",
    )  # fmt: skip


class FutureError(NoDocumentError):
    """Say that a document is of a time that has not come."""

    code = command_error(
        "history.future", "A document, or what a history has, is of a time that is later than now.",
        "It would hide what is found until then. Five minutes are allowed between the clocks of two machines.",
        remedy="check this machine's clock and that of the document's; `gpunode history forget --after now` removes "
        "from a history what is later than now",
        exit="3 of `gpunode history import`; a caution of other commands",
    )  # fmt: skip


class Scope(Enum):
    """Name how much of a host a document tells."""

    # It was not reached: what was so may still be so.
    NOTHING = auto()
    # It answered, and was not understood.
    ANSWERED = auto()
    # Preflight refuses it: what is not told may not have been judged.
    REFUSED = auto()
    # What was judged is told; something else may not have been looked at.
    PARTS = auto()
    # What is not told is over.
    ALL = auto()


@dataclass(frozen=True)
class Host:
    """Hold what was told of a host: how much, its findings as the document has them, and when they were found.

    by_itself: its own agent found them, which nobody had to reach it for
    """

    name: str
    scope: Scope
    findings: Sequence[Mapping[str, Any]]
    at: datetime
    by_itself: bool = False

    @cached_property
    def states(self) -> Mapping[Key, State]:
        """Return the findings that are not as desired; of several of one name the first."""
        found: dict[Key, State] = {}
        for each in self.findings:
            if each["class"] != _OK:
                found.setdefault(_key(each), _state(each))
        return found

    @cached_property
    def is_known(self) -> bool:
        """Say whether all that the settings ask of the host was read and understood."""
        return self.scope is Scope.ALL and all(state.desired is None for _, state in self._not_known)

    @property
    def has_answered(self) -> bool:
        """Say whether the host was reached."""
        return self.scope is not Scope.NOTHING and not self.by_itself

    @property
    def is_understood(self) -> bool:
        """Say whether what the host answered was understood, as far as it was read."""
        return self.scope not in (Scope.NOTHING, Scope.ANSWERED)

    def found(self, key: Key) -> State | End | None:
        """Return how a finding is that was told before; None where nothing is said of it."""
        if key in self.states:
            return self.states[key]
        if key in self._good:
            return End.GOOD
        if self.scope is Scope.NOTHING or (self.by_itself and key == CONNECTION):
            return None
        if key == CONNECTION or (key == STATE and self.is_understood):
            return End.GOOD
        if key[1] == _PREFLIGHT and self.is_understood:
            return End.NOT_TOLD if self.scope is Scope.REFUSED else End.GOOD
        # What is not said of a component of which something is not known may be so.
        components = {component for (component, _), _ in self._not_known}
        unknown = key[0] in components or (components and key[0] not in self._components)
        return End.NOT_TOLD if self.scope is Scope.ALL and not unknown else None

    @cached_property
    def _good(self) -> frozenset[Key]:
        return frozenset(_key(each) for each in self.findings if each["class"] == _OK)

    @cached_property
    def _components(self) -> frozenset[str]:
        return frozenset(each["component"] for each in self.findings)

    @cached_property
    def _not_known(self) -> Sequence[tuple[Key, State]]:
        """Return the findings that say that something is not known."""
        classes = (FindingClass.ERROR, FindingClass.NOT_KNOWN)
        return [each for each in self.states.items() if each[1].finding_class in classes and each[1].actual in _UNKNOWN]


@dataclass(frozen=True)
class Told:
    """Hold what a document tells: by which command, when (UTC), of which inventory, and of which hosts.

    whole: whether it tells of every host of the inventory; inventory, state: as the document has them. A host stands
    there twice where a document tells of it of two times. The cluster is a host named CLUSTER; has_cluster: whether the
    document says if there is one, which those of an earlier gpunode do not
    """

    command: str
    at: datetime
    inventory: str | None
    gpunode: str
    exit_code: int
    hosts: tuple[Host, ...]
    whole: bool
    state: str | None = None
    has_cluster: bool = False

    @property
    def nodes(self) -> int:
        """Return how many hosts it tells of."""
        return sum(host.name != CLUSTER for host in self.hosts)


def told(document: Any, command: str | None = None, now: datetime | None = None) -> Told:
    """Return what a document of drift, apply, rollout, ci or an agent tells; raise NoDocumentError where it is none.

    command: by which it was made; by default as it looks. now: of a document that others wrote, the time at which it is
    read; None where this gpunode has just made it
    """
    try:
        if reason := _newer(document):
            raise NoDocumentError(f"{reason}; {UPDATE}")
        if now is not None and (at := _time(document["at"])) > now + AHEAD:
            raise FutureError(f"it is of {at:%Y-%m-%d %H:%M} UTC, {at - now} later than now by this machine's clock")
        found = _told(document, command, now)
        # Read the states now: where a finding is malformed, the document is refused here and not while it is written.
        tuple(host.states for host in found.hosts)
        return found
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise NoDocumentError(f"this is no document of gpunode drift, apply, rollout or an agent: {error}") from None


def _newer(document: Mapping[str, Any]) -> str | None:
    """Return why a document is not read: it, or the one that an agent's report holds, has an unknown version."""
    if "agent" in document:
        return newer(document, AGENT_SCHEMA) or newer(document, REPORT_SCHEMA, "document_schema")
    return newer(document, ROLLOUT_SCHEMA if "waves" in document else REPORT_SCHEMA)


def _told(document: Any, command: str | None, now: datetime | None) -> Told:
    at = _time(document["at"])
    at = at if now is None else min(at, now.replace(microsecond=0))
    is_rollout, is_apply, is_agent = "waves" in document, "left_alone" in document, "agent" in document
    command = command or ("rollout" if is_rollout else "apply" if is_apply else "agent" if is_agent else "drift")
    # A rollout's own document says of its nodes what its readings have said before.
    hosts = {} if is_rollout else document["hosts"]
    if is_agent and len(hosts) != 1:
        raise ValueError("an agent reports one host")
    whole = not (is_rollout or is_apply or is_agent) and command == "drift" and not document.get("limit")
    inventory, state = document.get("inventory"), document.get("state")
    reports = [each for name, host in hosts.items() for each in _hosts(kept(name), _quoted(host, now), at, is_apply)]
    if not is_rollout and (cluster := document.get("cluster")) is not None:
        # It is judged by what a run of the nodes that were read would change: what fewer nodes leave out is not over.
        in_part = is_apply or not whole or any(each.scope is not Scope.ALL for each in reports)
        of_cluster = _quoted(cluster, now)["findings"]
        reports.append(Host(CLUSTER, _scope(of_cluster, in_part), of_cluster, at))
    return Told(
        command,
        at,
        None if inventory is None else kept(inventory),
        kept(document["gpunode"] or "unknown"),
        int(ExitCode(int(document["exit_code"]))),
        tuple(reports),
        whole,
        None if state is None else kept(state),
        "cluster" in document,
    )


def _quoted(host: Mapping[str, Any], now: datetime | None) -> Mapping[str, Any]:
    return host if now is None else {**host, "findings": [quoted(each) for each in host["findings"]]}


def _hosts(name: str, host: Mapping[str, Any], at: datetime, is_apply: bool) -> Iterator[Host]:
    """Yield what is told of a host: what its agent found at a time of its own, and what is known of the agent now."""
    findings, own = host["findings"], host.get("at")
    if own is not None:
        found = [each for each in findings if each["component"] != _AGENT]
        # By a clock that is ahead nothing was found later than it was told.
        yield Host(name, _scope(found, is_apply), found, min(_time(own), at), by_itself=True)
        findings = [each for each in findings if each["component"] == _AGENT]
    yield Host(name, _scope(findings, is_apply), findings, at)


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.year < 1970:
        raise ValueError(f"{text} is a time before 1970")
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).replace(microsecond=0)


def _scope(findings: Iterable[Mapping[str, Any]], is_apply: bool) -> Scope:
    components, bad, reached = set(), [], True
    for each in findings:
        component, what, found = each["component"], each["what"], each["class"]
        if not isinstance(component, str) or not isinstance(what, str):
            raise TypeError("component and what have to be texts")
        components.add(component)
        if found != _OK:
            bad.append((component, what, FindingClass(found)))
            reached = reached and each.get("code") != _READER_LOST
    if not reached or any(found is FindingClass.UNREACHABLE for _, _, found in bad):
        return Scope.NOTHING
    if any(what == _PREFLIGHT for _, what, _ in bad):
        return Scope.REFUSED
    if any((component, what) == STATE for component, what, _ in bad):
        return Scope.ANSWERED
    if components <= _NOT_JUDGED:
        # Of a run that was cut off, and says nothing else of the host.
        return Scope.NOTHING if components <= {"run"} else Scope.ANSWERED
    return Scope.PARTS if is_apply else Scope.ALL


def _key(finding: Mapping[str, Any]) -> Key:
    return kept(finding["component"]), kept(finding["what"])


def _state(finding: Mapping[str, Any]) -> State:
    actual, desired, cause, remedy = (
        None if finding[name] is None else kept(finding[name]) for name in ("actual", "desired", "cause", "remedy")
    )
    code = finding.get("code") or code_of(finding["component"], finding["what"])
    return State(finding["class"], actual, desired, kept(code), cause, remedy)


def kept(text: str) -> str:
    """Return a text as a database takes it: no NUL, no half of a character, no longer than LONGEST; raise TypeError."""
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} stands where a text has to")
    whole = text
    if not whole.isascii() or not whole.isprintable():
        whole = whole.encode("utf-8", "replace").decode().replace("\0", " ")
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"
