"""The generated pages of docs/."""

from __future__ import annotations

import pytest

from gpunode.reference.__main__ import DOCS, PAGES

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"
