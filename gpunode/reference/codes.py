"""Generate gpunode/data/codes.json, which `gpunode explain` reads, and docs/codes.md from it.

codes.json has the pages that no module declares: those of `pages/`, written by hand, with the reasons and remedies of
refusals and contradictions from their tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from gpunode.base import explained
from gpunode.base.codes import preflight
from gpunode.base.findings import ExitCode
from gpunode.base.messages import declared
from gpunode.base.tables.reading import content

_PAGES = Path(__file__).resolve().parent / "pages"
# Every code that there ever was, a line each; `make docs` adds to it and takes nothing away.
EVER = _PAGES / "ever.txt"
_FILLED_IN = re.compile(r"\{[^{}]*\}")
_BY_NODE = "…"
FINDING, REFUSAL, CAUTION, MISTAKE, ERROR = "finding", "refusal", "caution", "mistake in settings", "error of a command"
# Of a row in the table of preflight the code says whether it refuses: `refusal("ROW"` or `caution("ROW"`.
_ROW_OF = re.compile(r'\bcaution\(\s*"([a-z0-9-]+)"')

Page = dict[str, Any]


def _written(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_PAGES / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def _said(texts: Iterable[str]) -> list[str]:
    """Return what of these says anything, each once."""
    return [text for text in dict.fromkeys(map(str.strip, texts)) if text.strip("… :;/,.")]


def _shown(text: str) -> str:
    """Return a text of a table with an ellipsis where something is filled in."""
    return _FILLED_IN.sub(_BY_NODE, text).replace("……", _BY_NODE)


def _cautions() -> set[str]:
    """Return the rows of preflight's table that are told as cautions."""
    return {row for path in (_PAGES.parents[1] / "node").rglob("*.py") for row in _ROW_OF.findall(path.read_text())}


def _preflight() -> Iterator[tuple[str, Page]]:
    table, cautions = content("preflight.yaml"), _cautions()
    for row, written in _written("preflight").items():
        page = {"summary": written} if isinstance(written, str) else dict(written)
        kind = page.pop("kind", CAUTION if row in cautions else REFUSAL)
        said = table.get(row, {})
        refused = "Preflight says it before anything is touched: nothing is done to this node, and the others go on."
        told = "The run goes on all the same."
        detail = [page.pop("detail", ""), refused if kind == REFUSAL else told]
        exits = "2, of gpunode drift, plan and a run; 3 of gpunode check, where no node can have it"
        yield (
            preflight(row),
            {
                "kind": kind,
                "seen": [],
                "summary": page.pop("summary"),
                "detail": " ".join(filter(None, detail)),
                "causes": _said([_shown(said.get("reason", ""))]),
                "remedies": _said([_shown(said.get("remedy", "")), page.pop("remedy", "")])
                or ["do as the message says: what helps depends on the node"],
                "source": _shown(said.get("source", "")),
                "exit": exits if kind == REFUSAL else "0: it changes none",
            },
        )


def _settings() -> Iterator[tuple[str, Page]]:
    table = content("contradictions.yaml")
    for row, written in _written("settings").items():
        page = {"summary": written} if isinstance(written, str) else dict(written)
        said = table.get(row)
        yield (
            f"settings.{row}",
            {
                "kind": MISTAKE,
                "seen": [],
                "summary": page["summary"],
                "detail": page.get(
                    "detail", "Both cannot be had together in a cluster. No host was contacted, nothing was done."
                ),
                "causes": [f"{_shown(said['key'])}: {_shown(said['message'])}"] if said else [],
                "remedies": [page.get("remedy", "change one of the settings that the message names")],
                "exit": str(page.get("exit", int(ExitCode.INPUT_REFUSED))),
            },
        )


def _errors() -> Iterator[tuple[str, Page]]:
    for code, page in _written("commands").items():
        found = {
            "kind": page.get("kind", ERROR),
            "seen": [],
            "summary": page["summary"],
            "detail": page["detail"],
            "causes": [],
        }
        yield code, {**found, "remedies": [page["remedy"]], "exit": str(page["exit"])}


def pages() -> dict[str, Page]:
    """Return code -> its page, in the order of the codes; raise ValueError where a code has two."""
    found: dict[str, Page] = {}
    for code, page in (*_preflight(), *_settings(), *_errors()):
        if code in found:
            raise ValueError(f"{code} is written twice in {_PAGES}")
        found[code] = page
    return dict(sorted(found.items()))


def former() -> dict[str, str]:
    """Return code of an earlier gpunode -> the one that it is now."""
    return dict(_written("former"))


def data() -> str:
    """Return the text of gpunode/data/codes.json: the pages that no module declares."""
    explained.load()
    written = {code: page for code, page in pages().items() if code not in declared()}
    return json.dumps({"former": former(), "pages": written}, indent=1, ensure_ascii=False) + "\n"


def ever() -> str:
    """Return the text of the list of all codes that there ever were, with those that are new."""
    before = EVER.read_text(encoding="utf-8").splitlines() if EVER.is_file() else []
    return "\n".join(sorted({*before, *explained.pages()})) + "\n"


_HEAD = """# Codes

Generated by `make docs`; a test keeps it current. Do not edit by hand.

Every finding, refusal, mistake and error of a command ends in its code, a finding's head for example:
`driver: loaded module: drift, gpu-1 [driver.loaded-module]`. A code stays the same whatever a node filled in, and from
release to release: where one goes away, its former name leads to the one that it is now. It stands in the JSON
documents (`code`), in JUnit, in Prometheus' metrics (the label `code` of `gpunode_node_finding`) and on the pages of
`--html`.

```sh
gpunode explain driver.loaded-module       # what it means, why it comes, what to do, what it does to the exit code
gpunode explain "driver: loaded module"    # as a text says it
gpunode explain driver                     # the codes of a component
gpunode explain                            # all codes, each with its summary
gpunode explain --json                     # all pages, for programs
```
"""
_TITLES = {
    FINDING: "Findings",
    REFUSAL: "Refusals of preflight",
    CAUTION: "Cautions",
    MISTAKE: "Mistakes in settings",
    ERROR: "Errors of commands",
}


def document() -> str:
    """Return the text of docs/codes.md."""
    parts = [_HEAD]
    for kind, title in _TITLES.items():
        parts += [f"## {title}\n", "| code | says |", "|---|---|"]
        parts += [f"| `{page.code}` | {page.summary} |" for page in explained.pages().values() if page.kind == kind]
        parts.append("")
    return "\n".join(parts)
