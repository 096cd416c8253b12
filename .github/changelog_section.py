"""Print the section of CHANGELOG.md for a release tag: `python3 .github/changelog_section.py v0.1.0`.

Fails where the tag does not name the version in pyproject.toml, and where the changelog has no section
`## 0.1.0 - 2026-12-31` for it or the section is empty. Takes nothing but Python 3.11.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def section(changelog: str, version: str) -> str:
    """Return the text between the version's heading and the next version's; empty where there is none."""
    heading = rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"
    match = re.search(heading, changelog, re.MULTILINE | re.DOTALL)
    return match[1].strip() if match else ""


def main(arguments: list[str]) -> int:
    """Print the section; return 1 with a message where it cannot be had."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    (tag,) = arguments
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag != f"v{version}":
        print(f"the tag is {tag}, and pyproject.toml has version {version}: tag v{version}", file=sys.stderr)
        return 1
    text = section((CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not text:
        print(f"CHANGELOG.md has no section, or an empty one: write `## {version} - YYYY-MM-DD`", file=sys.stderr)
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
