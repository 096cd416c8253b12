"""Write every reference page: `python -m tests.reference`, which is what `make docs` calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.reference import codes, drift, output, plan, rollout, settings

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings.document,
    "plan.md": plan.document,
    **plan.FILES,
    "drift.md": drift.document,
    "codes.md": codes.document,
    "../tests/reference/ever.txt": codes.ever,
    "rollout.md": rollout.document,
    "output.md": output.document,
    **output.FILES,
}


def main() -> None:
    """Write them into docs/."""
    for name, document in PAGES.items():
        (DOCS / name).write_text(document(), encoding="utf-8")
        print(f"{DOCS / name} written")


if __name__ == "__main__":
    main()
