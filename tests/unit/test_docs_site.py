"""The site of docs/: what leads nowhere fails its build, by the very configuration that `make lint` builds with."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests import docs_site

pytestmark = [pytest.mark.real, pytest.mark.tier2]

ROOT = docs_site.CONFIGURATION.parent
HOME = "# Home\n\n[one](folder/one.md#a-part-of-it)\n"
ONE = "# One\n\n## A part of it\n\n[home](../index.md)\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a site of two pages, with everything else as mkdocs.yml has it."""
    (tmp_path / "docs" / "folder").mkdir(parents=True)
    (tmp_path / "docs" / "index.md").write_text(HOME)
    (tmp_path / "docs" / "folder" / "one.md").write_text(ONE)
    own = {"INHERIT": str(docs_site.CONFIGURATION), "nav": ["index.md", "folder/one.md"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(own))
    return tmp_path


def faults(folder: Path) -> list[str]:
    return docs_site.build_faults(folder / "mkdocs.yml", folder / "site")


def test_a_site_whose_links_lead_somewhere_is_built_and_fetches_nothing_from_anywhere(small: Path) -> None:
    assert faults(small) == []
    page = (small / "site" / "folder" / "one.html").read_text()
    assert 'id="a-part-of-it"' in page
    assert 'src="http' not in page and 'rel="stylesheet" href="http' not in page


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("index.md", f"{HOME}\n[gone](folder/gone.md)\n", "'folder/gone.md', but the target is not found"),
        ("index.md", HOME.replace("#a-part", "#another-part"), "does not contain an anchor '#another-part-of-it'"),
        ("index.md", f"{HOME}\n[outside](../README.md)\n", "'../README.md', but the target is not found"),
        ("index.md", f"{HOME}\n[a folder](folder)\n", "unrecognized relative link 'folder'"),
        ("index.md", f"{HOME}\n[absolute](/folder/one.md)\n", "absolute link '/folder/one.md'"),
        ("folder/two.md", "# Two\n", 'not included in the "nav" configuration:\n  - folder/two.md'),
    ],
)
def test_what_leads_nowhere_fails_the_build(small: Path, file: str, text: str, says: str) -> None:
    (small / "docs" / file).write_text(text)
    assert any(says in fault for fault in faults(small)), faults(small)


def test_a_page_of_the_navigation_that_is_not_there_fails_the_build(small: Path) -> None:
    (small / "docs" / "index.md").write_text("# Home\n")
    (small / "docs" / "folder" / "one.md").unlink()
    assert any("'folder/one.md' is included in the 'nav'" in fault for fault in faults(small))


def test_a_page_that_no_link_leads_to_is_a_fault(small: Path) -> None:
    docs = small / "docs"
    assert docs_site.unreached(docs) == []
    # They lead to each other, and nobody to them.
    (docs / "two.md").write_text("# Two\n\n[three](three.md)\n")
    (docs / "three.md").write_text("# Three\n\n[two](two.md#two)\n")
    assert docs_site.unreached(docs) == ["three.md", "two.md"]


def test_a_list_that_github_alone_shows_is_a_fault(small: Path) -> None:
    (small / "docs" / "folder" / "one.md").write_text(f"{ONE}\nThree:\n- one\n- two\n- three\n")
    assert faults(small) == []
    (found,) = docs_site.shown_otherwise(small / "docs", small / "site")
    assert "folder/one.md: 0 <li> in the site, 3 on GitHub" in found


def test_every_page_of_docs_is_reached_from_the_index_by_task() -> None:
    assert docs_site.unreached(ROOT / "docs") == []


def test_no_page_has_a_diagram_that_the_theme_fetches_a_program_for() -> None:
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40 and not [text for text in pages if "```mermaid" in text]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_what_links_into_docs_from_outside_leads_to_a_file(name: str) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text())
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_make_lint_builds_the_site() -> None:
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    assert "-m tests.docs_site" in lint


def test_the_picture_of_the_way_of_the_data_names_each_station_in_its_order_and_rooms_that_there_are() -> None:
    picture = ElementTree.parse(ROOT / "docs" / "pictures" / "way-of-the-data.svg")
    texts = [each for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    named = [each.text for each in texts if "name" in str(each.get("class")).split()]
    assert named == ["group_data", "settings", "preflight", "deploy", "operation", "verdict", "fact", "node"]
    rooms = [str(each.text) for each in texts if each.get("class") == "room"]
    assert len(rooms) == len(named) - 1 and all((ROOT / room).is_dir() for room in rooms)
    # It is readable where the page is dark, and for whoever hears it.
    source = (ROOT / "docs" / "pictures" / "way-of-the-data.svg").read_text()
    assert (
        "prefers-color-scheme: dark" in source
        and "<desc " in source
        and "http" not in source.replace("http://www.w3.org", "")
    )
