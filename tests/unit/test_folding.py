"""Folding of texts and of lists of host names to the width of a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.folding import fold, fold_lines
from gpunode.base.host_names import folded, folded_in_a_line

pytestmark = pytest.mark.pure

NAMES = st.lists(st.from_regex(r"[a-z]{1,12}[0-9]{0,4}", fullmatch=True), unique=True, min_size=1, max_size=60)


@given(NAMES, st.integers(1, 200))
def test_names_in_a_line_are_the_first_and_the_number_of_the_others(names: list[str], columns: int) -> None:
    text = folded_in_a_line(names, columns)
    if text == folded(names):
        return
    shown, _, rest = text.rpartition(" and ")
    (left,) = re.fullmatch(r"(\d+) more nodes", rest).groups()  # type: ignore[union-attr]
    kept = len(names) - int(left)
    assert kept > 0 and shown == folded(names[:kept]) and int(left) > 1
    assert len(text) <= max(80, columns) or len(shown) >= len(names[0])


@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=30), st.integers(4, 40))
def test_a_folded_text_has_every_word_whole_and_colours_take_no_room(words: list[str], columns: int) -> None:
    plain = fold(" ".join(words), columns, "  ")
    assert plain.split() == words
    assert all(len(line) <= columns or len(line.split()) == 1 for line in plain.splitlines())
    coloured = fold(" ".join(f"\x1b[31m{word}\x1b[0m" for word in words), columns, "  ")
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


LINES = st.lists(st.text("ab ", min_size=1, max_size=60), min_size=1, max_size=6)


@given(LINES, st.integers(4, 80))
def test_each_line_of_an_error_is_folded_under_itself_and_every_word_is_there(lines: list[str], columns: int) -> None:
    told = fold_lines("\n".join(lines), columns)
    assert told.split() == " ".join(lines).split()
    at = 0
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        rows = told.split("\n")[at:]
        # What goes on of it stands deeper than it; the next line of the text begins anew.
        words = line.split()
        taken: list[str] = []
        for row in rows:
            taken += row.split()
            at += 1
            assert row is rows[0] or re.match(f" {{{indent + 2}}}[^ ]", row)
            if taken == words:
                break
        assert taken == words
