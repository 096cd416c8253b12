"""What the tests of a document's page share."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpunode.cli.plan import as_json
from gpunode.fleet.page.html import document_page
from gpunode.fleet.rollout.conduct import document as rollout_document
from gpunode.fleet.rollout.progress import Progress
from tests.reference import plan as plan_reference
from tests.reference import rollout as rollout_reference
from tests.support import fleet_documents as fleet

EVIL = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</td></table>",
    "{{ 7*7 }}",
    "\u202egnp.exe",
    "\x1b]52;c;ZXZpbA==\x07",
    "\ud800",
    "<!--",
    "]]>",
    "&amp;",
    "\x00",
    "javascript:alert(1)",
)


def rollout() -> dict[str, Any]:
    """Return the document of the reference's rollout, that a failed node stopped."""
    entries = rollout_reference.example()
    progress = Progress(entries[0])
    for entry in entries[1:-1]:
        progress = progress.after(entry)
    return rollout_document(progress, Path(".rollout/prod"))


def page(command: str) -> str:
    """Return the page of a small document of a command."""
    planned = as_json(plan_reference.example(), fleet.CALL, "0.1.0", datetime(2026, 1, 15, tzinfo=UTC))
    documents = {"drift": lambda: fleet.fleet(24), "plan": lambda: planned, "rollout": rollout}
    return document_page(command, documents[command]())
