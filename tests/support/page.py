"""What several tests share with unit/test_page.py."""

from __future__ import annotations

from gpunode.fleet.rollout.progress import Progress
from gpunode.reference import rollout as rollout_reference

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


def rollout() -> Progress:
    """Return the reference's rollout, that a failed node stopped."""
    entries = rollout_reference.example()
    progress = Progress(entries[0])
    for entry in entries[1:-1]:
        progress = progress.after(entry)
    return progress
