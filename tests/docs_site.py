"""The site of docs/, built strictly: `python -m tests.docs_site`, which `make lint` calls.

A fault is a link or an anchor that leads nowhere, a page that mkdocs.yml does not list, one that no link of the index
leads to, and one that the site shows otherwise than GitHub does: a list that needs an empty line before it, say.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort, ConfigurationError

CONFIGURATION = Path(__file__).resolve().parents[1] / "mkdocs.yml"
START = "index.md"
# What the two readings of a page have to have as often as each other.
_COUNTED = {"h1", "h2", "h3", "h4", "li", "pre", "table", "tr", "em", "strong", "img"}


class _Warnings(logging.Handler):
    """Keep what MkDocs warns of, and print nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.said.append(record.getMessage())


def build_faults(configuration: Path, site: Path) -> list[str]:
    """Build the site into a folder, strictly, and return what MkDocs finds wrong."""
    # Material says on each build until when it is supported: mkdocs.yml says so, too.
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    warnings, logger = _Warnings(), logging.getLogger("mkdocs")
    logger.addHandler(warnings)
    logger.propagate = False
    try:
        build(load_config(str(configuration), site_dir=str(site), strict=True))
    except (Abort, ConfigurationError) as error:
        return warnings.said or [str(error)]
    finally:
        logger.removeHandler(warnings)
    return warnings.said


def unreached(docs: Path) -> list[str]:
    """Return the pages that no way of links leads to from the first one, by their paths in docs/."""
    found, waiting = {START}, [START]
    while waiting:
        page = waiting.pop()
        for link in re.findall(r"\]\(([^)#\s]+\.md)[)#]", (docs / page).read_text(encoding="utf-8")):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
            if ":" not in link and target not in found and (docs / target).is_file():
                found.add(target)
                waiting.append(target)
    return sorted(set(_pages(docs)) - found)


def shown_otherwise(docs: Path, site: Path) -> list[str]:
    """Return which pages have other lists, tables, blocks or headings in the site than on GitHub."""
    github = MarkdownIt("commonmark").enable("table")
    faults = []
    for page in _pages(docs):
        theirs = _count(github.render((docs / page).read_text(encoding="utf-8")))
        built = (site / page).with_suffix(".html").read_text(encoding="utf-8")
        # The theme's own lists are outside of the article.
        ours = _count(built.partition("<article")[2].partition("</article>")[0])
        faults += [
            f"{page}: {ours[tag]} <{tag}> in the site, {theirs[tag]} on GitHub; put an empty line before the block"
            for tag in sorted(_COUNTED)
            if ours[tag] != theirs[tag]
        ]
    return faults


class _Counter(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] += 1


def _count(html: str) -> Counter[str]:
    parser = _Counter()
    parser.feed(html)
    return parser.found


def _pages(docs: Path) -> Iterator[str]:
    return (str(path.relative_to(docs)) for path in sorted(docs.rglob("*.md")))


def main() -> int:
    """Build the site, say each fault on a line of its own, and return 1 where there is one."""
    docs, site = CONFIGURATION.parent / "docs", CONFIGURATION.parent / ".site"
    faults = build_faults(CONFIGURATION, site)
    faults += [f"{page}: no link leads to it from {START}" for page in unreached(docs)]
    # Where MkDocs gave up, there is nothing to compare.
    faults = faults or shown_otherwise(docs, site)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"docs/: {len(list(_pages(docs)))} pages, {len(faults)} faults; the site is in {site.name}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
