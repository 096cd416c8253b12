"""One vocabulary of verdicts: findings and their classes, since when a node waits, and every command's exit codes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from enum import IntEnum, StrEnum
from types import NoneType
from typing import Any

from gpunode.base.disruption import Disruption
from gpunode.base.messages import Scope, as_data, commands_of, keep_as_data


@dataclass(frozen=True)
class NodeSummary:
    """Hold a node's versions, and its GPUs: how many are on the bus, and how many nvidia-smi shows.

    A version that is not there is None. `gpunode` is the one whose run was the last whole one on the node.
    """

    operating_system: str
    kernel: str
    driver: str | None
    driver_flavour: str | None
    cuda: str | None
    toolkit: str | None
    gpu_models: tuple[str, ...]
    gpus_on_bus: int
    gpus: int
    gpunode: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        return {**asdict(self), "gpu_models": list(self.gpu_models)}


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "str | None": (str, NoneType), "int": (int,), "bool": (bool,), "Disruption": (str,),
}  # fmt: skip


def summary_from(found: Mapping[str, Any]) -> NodeSummary:
    """Return the summary of which `to_json` gave this, perhaps with more keys; raise KeyError or ValueError."""
    values = typed_fields(NodeSummary, found)
    texts = {name: as_data(value) for name, value in values.items() if isinstance(value, str)}
    return NodeSummary(**{**values, **texts, "gpu_models": tuple(map(as_data, values["gpu_models"]))})


def typed_fields(kind: type, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataclass's fields by their JSON; raise KeyError or ValueError where one has none of its type."""
    found = {**{each.name: each.default for each in fields(kind) if each.default is not MISSING}, **found}
    return {each.name: _value(found, each.name, str(each.type)) for each in fields(kind)}


def _value(found: Mapping[str, Any], key: str, kind: str) -> Any:
    if kind == "tuple[str, ...]":
        return tuple(_typed({key: each}, key, str) for each in _typed(found, key, list, tuple))
    value = _typed(found, key, *_JSON_TYPES[kind])
    return Disruption[value] if kind == "Disruption" else value


def _typed(found: Mapping[str, Any], key: str, *types: type) -> Any:
    """Return the value of a key; raise ValueError where its type is not one of these."""
    if type(found[key]) not in types:
        raise ValueError(f"{key} is of type {type(found[key]).__name__}")
    return found[key]


class ExitCode(IntEnum):
    """Name what the exit status of a gpunode command says."""

    GOOD = 0
    ERROR = 1
    NEGATIVE = 2
    INPUT_REFUSED = 3
    USAGE = 64


class FindingClass(StrEnum):
    """Name what kind of thing was found."""

    OK = "ok"
    DRIFT = "drift"
    RESTART_PENDING = "restart pending"
    REBOOT_PENDING = "reboot pending"
    NOT_KNOWN = "not known"
    UNSUPPORTED = "unsupported"
    UNREACHABLE = "unreachable"
    ERROR = "error"


# The cluster among hosts, none of which can have this name: pyinfra takes it for a connector's.
CLUSTER = "@cluster"
# Worst first: an error hides whether the rest is good, so it wins over a negative verdict.
EXIT_CODES = {
    FindingClass.ERROR: ExitCode.ERROR,
    FindingClass.UNREACHABLE: ExitCode.ERROR,
    FindingClass.UNSUPPORTED: ExitCode.NEGATIVE,
    FindingClass.DRIFT: ExitCode.NEGATIVE,
    FindingClass.REBOOT_PENDING: ExitCode.NEGATIVE,
    FindingClass.RESTART_PENDING: ExitCode.NEGATIVE,
    FindingClass.NOT_KNOWN: ExitCode.NEGATIVE,
    FindingClass.OK: ExitCode.GOOD,
}
# Of a finding, each a text or None.
_TEXTS = ("actual", "desired", "cause", "remedy", "source")


@dataclass(frozen=True)
class Finding:
    """Hold one comparison of what is with what should be.

    `what` names the thing compared (`loaded module`), `actual` and `desired` are the two sides as text, `cause` and
    `remedy` say why and what to do, `source` says where the desired value is stated. `disturbs` is what its remedy
    costs the node; None where there is none, or nobody can say. `by_person`: no step of a run mends it before a person
    has done something. `since`: when a run first left it as it is, as 2026-01-31T12:00:00Z; None where none did. Two
    findings that differ in that alone are equal. `code`: that of its declaration, which `gpunode explain` prints.
    `log`: where the whole output of an operation that failed is; no other finding has one. A text may be a node's own
    words: each is one line without control characters, and has no backquotes but those around the remedy's commands.
    """

    component: str
    finding_class: FindingClass
    what: str
    actual: str | None = None
    desired: str | None = None
    cause: str | None = None
    remedy: str | None = None
    source: str | None = None
    disruption: Disruption | None = None
    by_person: bool = False
    since: str | None = field(default=None, compare=False)
    log: str | None = None
    code: str = field(kw_only=True)

    def __post_init__(self) -> None:
        """Hold each text as data."""
        keep_as_data(self, "component", "what", "actual", "desired", "cause", "source", "since", "log", "code")

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the commands of the remedy: gpunode's own alone, whatever the node wrote."""
        return commands_of(self.remedy)

    def __str__(self) -> str:
        """Return the finding as a line of a log: class, both sides, cause and remedy."""
        sides = f"{self.component}: {self.what} is {self.actual}, desired {self.desired}"
        cause, remedy = self.cause and f" ({self.cause})", self.remedy and f". Remedy: {self.remedy}"
        return f"{self.finding_class}: {sides}{cause or ''}{remedy or ''}"

    @property
    def is_caution(self) -> bool:
        """Say whether a person should know of it though it is as desired: it is told with cause and remedy."""
        return self.finding_class is FindingClass.OK and self.cause is not None

    @property
    def is_negative(self) -> bool:
        """Return whether the exit code is not 0 because of the finding: not of a state that no setting asks for."""
        if self.finding_class is FindingClass.NOT_KNOWN:
            return self.desired is not None
        return self.finding_class is not FindingClass.OK

    def to_json(self) -> dict[str, Any]:
        """Return the fields and the remedy's commands as plain JSON types; the class stands under `class`."""
        return {
            "code": self.code,
            "component": self.component,
            "class": self.finding_class.value,
            "what": self.what,
            **{name: getattr(self, name) for name in _TEXTS},
            "commands": list(self.commands),
            "disruption": None if self.disruption is None else self.disruption.name,
            "since": self.since,
            **({} if self.log is None else {"log": self.log}),
        }


def finding_from(found: Mapping[str, Any]) -> Finding:
    """Return the finding of which `to_json` gave this; raise KeyError or ValueError where it did not."""
    disruption = _typed(found, "disruption", str, NoneType)
    return Finding(
        finding_class=FindingClass(found["class"]),
        disruption=None if disruption is None else Disruption[disruption],
        **{name: _typed(found, name, str) for name in ("component", "what", "code")},
        **{name: _typed(found, name, str, NoneType) for name in ("since", *_TEXTS)},
        log=_typed({"log": None, **found}, "log", str, NoneType),
    )


@dataclass(frozen=True)
class NodeReport:
    """Hold the findings of one node, or of its cluster; `summary`: what it is, where it could be read, which makes no
    report another one.

    name: the host's, or the cluster's by its settings, which may be a host's as well
    at: when the node itself found them, as 2026-01-31T12:00:00Z, but for those of `agent`; None where they are new
    """

    name: str
    findings: tuple[Finding, ...]
    summary: NodeSummary | None = field(default=None, compare=False)
    at: str | None = None
    scope: Scope = Scope.NODE

    @property
    def title(self) -> str:
        """Return the name as people read it."""
        return as_data(self.name if self.scope is Scope.NODE else cluster_title(self.name))


def cluster_title(name: str) -> str:
    """Return the name of a cluster as people read it, which no host has."""
    return "the cluster" if name == Scope.CLUSTER else f"the cluster {name}"


def cluster_of(reports: Iterable[NodeReport]) -> NodeReport | None:
    """Return the report of the cluster; None where none was judged."""
    return next((each for each in reports if each.scope is Scope.CLUSTER), None)


def nodes_of(reports: Iterable[NodeReport]) -> tuple[NodeReport, ...]:
    """Return the reports of nodes."""
    return tuple(each for each in reports if each.scope is Scope.NODE)


def worst(findings: Iterable[Finding]) -> FindingClass:
    """Return the gravest class among `findings`; ok where there are none."""
    return gravest(finding.finding_class for finding in findings)


def gravest(classes: Iterable[FindingClass]) -> FindingClass:
    """Return the gravest of these classes; ok where there are none."""
    present = set(classes)
    return next((candidate for candidate in EXIT_CODES if candidate in present), FindingClass.OK)


def totals(findings: Collection[Finding]) -> str:
    """Return `44 of 46 as desired, 2 not known`."""
    counts = Counter(item.finding_class for item in findings)
    unknown = counts[FindingClass.NOT_KNOWN]
    good = f"{counts[FindingClass.OK]} of {len(findings)} as desired"
    return f"{good}, {unknown} not known" if unknown else good


def verdict(findings: Iterable[Finding]) -> ExitCode:
    """Return the exit code of a run: 0 without a negative finding, 1 on an error or an unreachable host, else 2."""
    return EXIT_CODES[worst(item for item in findings if item.is_negative)]


PENDING = (FindingClass.RESTART_PENDING, FindingClass.REBOOT_PENDING)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_LONGEST = 300


def waiting(findings: Iterable[Finding], before: Mapping[str, str], now: str) -> dict[str, str]:
    """Return what waits -> since when: what waited before keeps its time, and what waits no more is left out.

    + before: as this returned it at the end of the run before; now: as 2026-01-31T12:00:00Z
    """
    return {key: before.get(key, now) for key in map(_key, findings) if key is not None}


def with_since(findings: Iterable[Finding], recorded: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the findings, each that waits with the time since when it does; one that no run has left yet has none."""
    keyed = ((item, _key(item)) for item in findings)
    return tuple(replace(item, since=recorded[key]) if key and key in recorded else item for item, key in keyed)


def parse_waiting(found: Any) -> dict[str, str]:
    """Return what a record says of it; an entry that no gpunode wrote says nothing, for a hand may have edited it."""
    entries = found.items() if isinstance(found, dict) else ()
    return {
        key: since
        for key, since in entries
        if isinstance(key, str) and key.isprintable() and len(key) <= _LONGEST
        if isinstance(since, str) and _TIME.fullmatch(since)
    }


def _key(item: Finding) -> str | None:
    key = f"{item.component}: {item.what}"
    return key if item.finding_class in PENDING and key.isprintable() and len(key) <= _LONGEST else None
