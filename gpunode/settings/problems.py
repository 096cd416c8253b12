"""What is wrong with settings, as data and as one message, also what pydantic finds in host data."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Any, Literal, get_args, get_origin

from gpunode.base.errors import CodedError
from gpunode.base.folding import folded
from gpunode.base.messages import Code, Mistake, mistake, shown, with_code
from gpunode.base.reading import Reading
from gpunode.settings.component import Component, alternatives, annotation_at
from gpunode.settings.layers import DEEPEST

WRONG_VALUE = mistake(
    "settings.wrong-value", "A setting has a value that cannot be used.",
    "It is out of range, has the wrong form, or names something that does not exist. The message says which.",
    remedy="write a value as the message says (docs/settings.md describes each setting)",
)  # fmt: skip
CONTRADICTION = mistake(
    "settings.contradiction", "Two settings of a host exclude each other.",
    remedy="change one of the two, as the message says",
)  # fmt: skip
UNKNOWN_HOST = mistake(
    "settings.unknown-host", "A setting names a host that is not in the inventory.",
    remedy="add the host to the inventory, or name one of its hosts",
)  # fmt: skip
NOT_ALIKE = mistake(
    "settings.not-alike", "Hosts have different values of a setting that has to be the same for all of them.",
    "A run, a cluster or an IMEX domain has one value of it. The message names the first host and its value.",
    remedy="set it once, in the data of the group that has all of these hosts",
)  # fmt: skip
NODE_NAME = mistake(
    "settings.node-name", "A host's name in the cluster is missing, or another host has the same one.",
    "kubernetes.node_name is the host's name in the inventory unless you set it.",
    remedy="set kubernetes.node_name to the name that `kubectl get nodes` shows",
)  # fmt: skip
HOST_NAME = mistake(
    "settings.host-name", "A host's name or ssh_hostname is none that a machine can have.",
    "It is part of commands, paths and reports: `-oProxyCommand=…` would be an option of ssh, and `../x` another file.",
    remedy="give the host another name; the message has the characters that may be in it",
)  # fmt: skip
IMEX_DOMAIN = mistake(
    "settings.imex-domain", "An IMEX domain is not complete, or its addresses are wrong.",
    "A domain has at least two nodes, each with its own address that the others reach.",
    remedy="give all of the domain's hosts the same imex.domain, set imex.address, or leave imex out",
)  # fmt: skip
UNKNOWN_NAME = mistake(
    "settings.unknown-name", "A name in the host's data is unknown to gpunode and pyinfra.",
    "It is misspelt, from another gpunode, or your own. Your own names may begin with the prefix in the message.",
    remedy="write the intended name (docs/settings.md lists all), or remove it",
)  # fmt: skip
FORMER_NAME = mistake(
    "settings.former-name", "A setting is given by its former and by its present name.",
    remedy="leave the former name out",
)  # fmt: skip
NOT_ALLOWED = mistake(
    "settings.not-allowed", "A setting has a value that is not allowed.",
    remedy="write one of the values that the message lists",
)  # fmt: skip
WRONG_TYPE = mistake(
    "settings.wrong-type", "A setting has a value of the wrong type.",
    "Versions have to be strings: 12.10 without quotes is read as 12.1.",
    remedy="write the type that the message names; quote versions",
)  # fmt: skip
_LONGEST_VALUE = 120
# Each is written by a character at least.
_MOST_SHOWN = 2 * _LONGEST_VALUE
_LONGEST_KEY = 120
_EXPECTED = {
    "string_type": "a string",
    "bool_type": "True or False",
    "int_type": "a whole number",
    "model_type": "a mapping of settings",
    "tuple_type": "a list",
    "dict_type": "a mapping",
}
SECRET = "<not shown>"
_SECRET_NAME = re.compile(
    r"pass(w|phrase|$)|pwd|secret|token|credential|auth|user|login|(api|private|access)[_-]?key", re.IGNORECASE
)


@dataclass(frozen=True)
class Problem(Reading):
    """Hold one mistake: dotted key, the value as written, what is wrong, what is allowed, and the host if known.

    code: what `gpunode explain` knows it by
    """

    key: str
    value: str
    message: str
    allowed: tuple[str, ...] = ()
    host: str | None = None
    code: Code = WRONG_VALUE

    def __str__(self) -> str:
        """Return `HOST: KEY = VALUE: MESSAGE; allowed: A, B [CODE]`."""
        where = f"{self.host}: " if self.host else ""
        allowed = f"; allowed: {', '.join(self.allowed)}" if self.allowed else ""
        return with_code(f"{where}{self.key} = {self.value}: {self.message}{allowed}", self.code)


@dataclass(frozen=True)
class Contradiction(Mistake):
    """Declare settings of one node that exclude each other in a cluster: `contradiction` does."""

    text: str = ""

    def __call__(self, settings: object, **values: object) -> Problem:
        """Return the problem of a node's settings; values: what the text names besides {settings}."""
        key, _, message = self.text.format(settings=settings, **values).partition(" ")
        return Problem(key, written(attrgetter(key)(settings)), message, code=Code(self.code))


def contradiction(row: str, text: str, summary: str = "") -> Contradiction:
    """Declare settings of one node that exclude each other in a cluster.

    text: `KEY WHAT IS WRONG; WHAT TO DO`, with {name} for a value; summary: one without values, where KEY and what is
    wrong have some
    """
    wrong, remedy = shown(text).split("; ", 1)
    detail = "gpunode finds this before it contacts a host. Nothing was done."
    causes = (wrong,) if summary else ()
    return Contradiction(f"settings.{row}", summary or f"{wrong}.", detail, causes, (remedy,), "3", text=text)


class SettingsError(CodedError, ValueError):
    """Hold every problem of one host's, or of all hosts', settings; its text is the one message that lists them."""

    code = mistake(
        "settings.refused", "The settings of one or several hosts have mistakes, and nothing was done.",
        remedy="correct each, and check with `gpunode check INVENTORY`, which contacts no host",
    )  # fmt: skip

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Take the problems in the order in which they are listed."""
        self.problems = tuple(problems)
        lines = tuple(_once(self.problems))
        head = f"{len(lines)} mistake{'' if len(lines) == 1 else 's'} in the settings; nothing was done:"
        super().__init__("\n".join([head, *(f"  {line}" for line in lines)]))


def _once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield each mistake once, for all hosts that have it: what a group's data says is said of every host."""
    hosts: dict[Problem, list[str]] = {}
    for problem in problems:
        of = hosts.setdefault(replace(problem, host=None), [])
        if problem.host is not None and problem.host not in of:
            of.append(problem.host)
    for problem, of in hosts.items():
        yield replace(problem, host=folded(of) or None)


def written(value: object) -> str:
    """Return a value as a person wrote it, without what stands before an @ (a password), cut to a readable length."""
    text = repr(_masked(value, DEEPEST, iter(range(_MOST_SHOWN))))
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def hides(value: object) -> bool:
    """Say whether a value has something in it that `written` does not show, or more than a person reads."""
    return _masked(value, DEEPEST, iter(range(_MOST_SHOWN))) != value


def _masked(value: object, depth: int, left: Iterator[int]) -> object:
    """Return a value without credentials, at any depth; before it is cut, since the cut may take away the @.

    What is deeper, or more than `left` values behind, is left out: a value may hold itself.
    """
    if depth == 0 or next(left, None) is None:
        return _Text("…")
    if isinstance(value, str):
        before, at, after = value.rpartition("@")
        return f"{before.partition('//')[0] + '//' if '//' in before else ''}***@{after}" if at else value
    if isinstance(value, Mapping):
        # As Kubernetes writes a container's variable: {"name": "DB_PASSWORD", "value": "…"}.
        named = "value" if is_secret(value.get("name", "")) else None
        return {
            _key(_masked(key, depth - 1, left)): SECRET
            if is_secret(key) or key == named
            else _masked(item, depth - 1, left)
            for key, item in islice(value.items(), _LONGEST_VALUE)
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(item, depth - 1, left) for item in islice(value, _LONGEST_VALUE)]
    # bytes, a parsed address, anything that an inventory may build.
    return value if value is None or isinstance(value, bool | int | float) else _Text(_masked(repr(value), depth, left))


def _key(value: object) -> object:
    """Return a value as a key of a mapping; one that was a tuple is written by then."""
    return value if isinstance(value, str | bool | int | float | None) else _Text(repr(value))


def is_secret(name: object) -> bool:
    """Say whether a name is one that people give to secrets: its value is never shown."""
    return _SECRET_NAME.search(str(name)) is not None


class _Text(str):
    """Stand for a value that has been written already."""

    __repr__ = str.__str__


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name that `name` most likely meant; None if none is near."""
    found = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.6)
    return found[0] if found else None


def dotted(*parts: object) -> str:
    """Return a key as one line, whatever characters somebody put into it."""
    text = ".".join(str(part) for part in parts)
    return text if text.isprintable() and len(text) <= _LONGEST_KEY and "@" not in text else written(text)


def problem_of(component: str, model: type[Component], error: Mapping[str, Any]) -> Problem:
    """Return an error of pydantic's as a problem; component: the name under which host data has the settings."""
    path: tuple[int | str, ...] = error["loc"]
    key = dotted(component, *path)
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        within = annotation_at(model, path[:-1])
        if now := within.former.get(str(path[-1])):
            message = f"is the former name of {now}, which is set, too; leave it out"
            return Problem(key, written(value), message, code=FORMER_NAME)
        allowed = tuple(within.model_fields)
        near = nearest(str(path[-1]), allowed)
        shown = SECRET if is_secret(path[-1]) else written(value)
        message = f"unknown setting{f'; did you mean {near!r}?' if near else ''}"
        return Problem(key, shown, message, allowed, code=UNKNOWN_NAME)
    if kind == "literal_error":
        # Beside None, where that is allowed as well.
        literals = [part for part in alternatives(annotation_at(model, path)) if get_origin(part) is Literal]
        choices = tuple(str(choice) for part in literals for choice in get_args(part))
        return Problem(key, written(value), "not allowed", choices, code=NOT_ALLOWED)
    if kind == "value_error":
        return Problem(key, written(value), str(error["ctx"]["error"]))
    if kind == "too_long":
        return Problem(key, written(value), f"has {len(value)} entries; {error['ctx']['max_length']} are the most")
    if kind == "greater_than_equal":
        return Problem(key, written(value), f"must be {error['ctx']['ge']} or more")
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        # 12.10 would be read as 12.1: numbers are refused even where they happen to come out right.
        return Problem(key, written(value), f"must be a string: quote it, '{value}'", code=WRONG_TYPE)
    if kind in _EXPECTED:
        message = f"must be {_EXPECTED[kind]}, not {type(value).__name__}"
        return Problem(key, written(value), message, code=WRONG_TYPE)
    return Problem(key, written(value), str(error["msg"]))
