"""gpunode's command line as a function of its words, for tests/cases."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import jsonschema
from pyinfra_cli import util
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from gpunode import cli
from gpunode.fleet import drift
from tests.reference.output import SCHEMAS
from tests.reference.schemas import error_schema, facts_schema
from tests.support.cases import named
from tests.support.messages import unnamed
from tests.support.one_document import CHECKOUT

HEAD = {"schema", "gpunode", "at", "counts", "exit_code"}
_NO_SETTINGS = {"GPUNODE_SET": "", "GPUNODE_SET_LIMIT": "", "GPUNODE_OUTPUT": ""}


@dataclass(frozen=True)
class Ended:
    """Hold how the program ended.

    document: the JSON that it printed; lines: how many it printed on each stream; unnamed: of the names, those that the
    document's error or, without one, nothing printed has; told: of the texts, those that were printed; kept: its files
    """

    status: int
    document: Any
    lines: tuple[int, int]
    unnamed: list[str]
    told: list[str]
    kept: list[str]
    output: str
    error: str


def judged(command: str, printed: str, status: int) -> dict[str, Any]:
    """Return the one document that was printed, after a look at its head and its schema."""
    found: dict[str, Any] = json.loads(printed)
    facts = DRAFT202012.create_resource(facts_schema())
    registry = Registry().with_resource("../plan/facts.schema.json", facts)
    failed = "error" in found and "hosts" not in found
    schema = error_schema() if failed else SCHEMAS[command]()
    jsonschema.Draft202012Validator(schema, registry=registry).validate(found)
    assert found.keys() >= (HEAD - {"counts"} if failed else HEAD) and found["exit_code"] == status
    return found


def _fields(found: dict[str, Any]) -> Any:
    """Return a mapping, of which a case names all keys where it holds counts, and else the fields that it is about."""
    return found if all(isinstance(value, int) for value in found.values()) else SimpleNamespace(**found)


def gpunode(
    words: str,
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    names: tuple[str, ...] = (),
    tells: tuple[str, ...] = (),
    found: str | None = None,
) -> Ended:
    """Run the program in a folder of these files, or in the checkout where there are none.

    names: values to look for; tells: texts, of which `told` has those that are anywhere in what was printed; found: the
    path of the reports that `gpunode drift` comes to
    """
    out, err = io.StringIO(), io.StringIO()
    util.PYTHON_CODES.clear()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if files is not None else CHECKOUT
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, {**_NO_SETTINGS, **(environment or {})}))
        stack.enter_context(mock.patch("sys.argv", ["gpunode", *shlex.split(words)]))
        # By it click tells `gpunode` from `python -m pytest`.
        stack.enter_context(mock.patch.dict("sys.modules", {"__main__": ModuleType("__main__")}))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        if found is not None:
            stack.enter_context(mock.patch.object(drift, "inspect", lambda *_, **__: named(found)))
        if "NO_COLOR" not in (environment or {}):
            os.environ.pop("NO_COLOR", None)
        status = 0
        try:
            # Of help click returns.
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        kept = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) if files else []
    printed, said = out.getvalue(), err.getvalue()
    assert "Traceback" not in printed + said
    document: Any = None
    if printed.startswith("{"):
        document = json.loads(printed)
        command = words.split()[: 2 if words.startswith(("mig", "lab")) else 1]
        judged(" ".join(command), printed, status)
    return Ended(
        status,
        json.loads(printed, object_hook=_fields) if document else None,
        (len(printed.splitlines()), len(said.splitlines())),
        unnamed(document["error"] if document and "error" in document else printed + said, *names),
        [text for text in tells if text in printed + said],
        kept,
        printed,
        said,
    )
