"""The pages of all codes: what each message means, and the search for a page by code, text or component."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import gpunode
from gpunode.base.folding import LONGEST
from gpunode.base.importing import uncollected
from gpunode.base.messages import FILLED_IN, Message, as_data, command_error, declared, shown, slug

_MOST_NEAR = 3
UNKNOWN_CODE = command_error(
    "report.unknown-code", "A report has a finding whose code is not one of this gpunode's.",
    "A newer gpunode, or another program, wrote the report. The finding is shown; its cause quotes the code.",
    remedy="update gpunode where the report is read; where it is the newest, find out what wrote the report",
    exit="as the class of the finding says",
)  # fmt: skip
# Code of an earlier gpunode: the present one.
FORMER: Mapping[str, str] = {
    "preflight.cuda-newer-than-table": "preflight.newer-than-known",
    "mig.key-twice": "mig.declaration",
    "preflight.mps-clients-would-end": "device-plugin.helm-release",
    "preflight.restarts-not-known": "device-plugin.cluster",
}
# Modules that declare no message: the lab, what generates the documentation, and the pyinfra modules at the top.
_WITHOUT = frozenset(("lab", "reference", "facts", "operations", "deploys"))


@dataclass(frozen=True)
class Page:
    """Hold what is to be said of a code.

    kind: what sort of message it is; seen: how texts name it; summary: one sentence that stands alone; detail: what it
    means and when it comes; causes, remedies: those that there are, an ellipsis where a node decides; exit: what it
    does to the exit code; scope: of a finding, whether it is about a node or the cluster; else empty
    """

    code: str
    kind: str
    seen: tuple[str, ...]
    summary: str
    detail: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]
    exit: str
    source: str = ""
    scope: str = ""

    @property
    def component(self) -> str:
        """Return the part of the code before the dot, under which it is listed."""
        return self.code.partition(".")[0]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        return {name: list(each) if isinstance(each, tuple) else each for name, each in vars(self).items()}


@cache
def pages() -> Mapping[str, Page]:
    """Return code -> its page, in the order of the codes."""
    load()
    return {code: page_of(each) for code, each in sorted(declared().items())}


@cache
@uncollected()
def load() -> None:
    """Import every module of gpunode's that may declare a message."""
    root = Path(gpunode.__file__).parent
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] not in _WITHOUT and parts[-1] != "__main__" and "migrations" not in parts:
            try:
                import_module(".".join(("gpunode", *parts)).removesuffix(".__init__"))
            except ModuleNotFoundError as error:
                # A module that needs an extra which is not installed; none of these declares a message.
                if (error.name or "gpunode").partition(".")[0] == "gpunode":
                    raise


def page_of(message: Message) -> Page:
    """Return the page of a declared message."""
    texts = {name: tuple(map(shown, getattr(message, name))) for name in ("causes", "remedies")}
    return Page(
        message.code,
        message.kind.value,
        message.seen,
        message.summary,
        " ".join(filter(None, (message.detail, message.always))),
        **texts,
        exit=message.exit,
        source=shown(message.source),
        scope=getattr(message, "scope", ""),
    )


# Characters of what a finding is about, and of what is filled into a remedy.
_SHORT = 200
_COMPONENT = re.compile(r"[a-z][a-z0-9_ -]{0,39}", re.ASCII)


def quoted(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finding of a document that others wrote, in which nothing passes for gpunode's own words.

    Texts are single lines without control characters and backquotes. The code is one of gpunode's, and so is the
    remedy; the document's own code and remedy are quoted in the cause. Raise ValueError or TypeError where the finding
    does not name its component.
    """
    component, what, code, remedy = found["component"], found["what"], found.get("code"), found.get("remedy")
    if not isinstance(what, str) or not _COMPONENT.fullmatch(component):
        raise ValueError(f"{_in_quotes(str(component))} is not a component, or the finding is about nothing")
    clean = {name: as_data(text) if isinstance(text, str) else text for name, text in found.items()}
    clean["what"], own = as_data(what[:_SHORT]), []
    # To import every module takes seconds, and most codes are those of modules that are imported.
    if isinstance(code, str) and code and code not in declared() and code not in FORMER and code not in pages():
        own.append(f"the report's own code: {_in_quotes(code)}")
        clean["code"] = code = UNKNOWN_CODE
    if isinstance(remedy, str):
        clean["remedy"] = _own_remedy(code or code_of(component, what), remedy)
        if clean["remedy"] != remedy:
            own.append(f"the report's own remedy: {_in_quotes(remedy)}")
    return {**clean, "cause": "; ".join(filter(None, (clean.get("cause"), *own)))} if own else clean


def _in_quotes(text: str) -> str:
    return f"“{as_data(text[:_SHORT]).translate({0x201C: None, 0x201D: None})}”"


def _own_remedy(code: str, remedy: str) -> str:
    """Return gpunode's remedy for a code: the one that a report names, without what it fills in, or where they are."""
    for each in declared()[code].remedies if code in declared() else ():
        pattern = f".{{0,{_SHORT}}}".join(map(re.escape, FILLED_IN.split(each)))
        if remedy == shown(each) or re.fullmatch(pattern, remedy[:LONGEST], re.DOTALL):
            return shown(each)
    return f"see `gpunode explain {code}`"


def code_of(component: str, what: str) -> str:
    """Return the code of a finding by how a report names it: that of the declaration that fits; else made of words."""
    named, other = f"{component}: {what} ", f"{slug(component)}.{slug(what)}"
    fits = (page.code for page in pages().values() if any(named.startswith(f"{text} ") for text in page.seen))
    return next(fits, other)


def asked(text: str) -> tuple[Page, ...]:
    """Return the pages that are asked for: of a code, of words that stand in a text, or of a component; else none.

    A code of an earlier gpunode is the one that it is now.
    """
    known, code = pages(), _code(text)
    if code in known:
        return (known[code],)
    name = slug(text)
    of_component = tuple(page for page in known.values() if page.component == name)
    return of_component or tuple(page for page in known.values() if page.code.partition(".")[2] == name)


def _code(text: str) -> str:
    """Return the code that a text is: as it stands in brackets, in capitals, or as the head of a finding says it."""
    bare = text.strip().strip("[]").lower().replace("_", "-")
    component, colon, rest = text.partition(": ")
    return code_of(component, rest.partition(": ")[0]) if colon else FORMER.get(bare, bare)


def near(text: str) -> tuple[str, ...]:
    """Return codes that somebody may have meant, the nearest first."""
    name = _code(text)
    found = difflib.get_close_matches(name, pages(), _MOST_NEAR, 0.6)
    subjects = {page.code.partition(".")[2]: page.code for page in pages().values()}
    found += [subjects[each] for each in difflib.get_close_matches(name.rpartition(".")[2], subjects, _MOST_NEAR, 0.75)]
    return tuple(dict.fromkeys(found))[:_MOST_NEAR]
