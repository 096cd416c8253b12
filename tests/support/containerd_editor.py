"""What several tests share with unit/test_containerd_editor.py."""

from __future__ import annotations

from hypothesis import strategies as st

# U+FFFD is what a byte that is not UTF-8 is read as: such a file is refused, and another test says so.
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="\ufffd"), max_size=20),
)


KEYS = st.from_regex(r"\A[a-z_][a-z0-9_.-]{0,12}\Z")


FOREIGN = st.dictionaries(KEYS, st.one_of(SCALARS, st.dictionaries(KEYS, SCALARS, max_size=3)), max_size=4)
