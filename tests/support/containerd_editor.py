"""Helpers and data for the tests of containerd editor."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import strategies as st

from gpunode.components.containerd.drop_in import drop_in
from gpunode.components.containerd.editor import Runtimes
from gpunode.components.containerd.state import effective_runtimes

# U+FFFD is what a byte that is not UTF-8 is read as: such a file is refused, and another test says so.
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="\ufffd"), max_size=20),
)


KEYS = st.from_regex(r"\A[a-z_][a-z0-9_.-]{0,12}\Z")


FOREIGN = st.dictionaries(KEYS, st.one_of(SCALARS, st.dictionaries(KEYS, SCALARS, max_size=3)), max_size=4)


def default_of(text: str) -> str | None:
    """Return the default runtime that a file comes to."""
    return effective_runtimes(text)[0]


def drop_in_says(root: str, version: str, desired: Runtimes) -> dict[str, Any]:
    """Return what a drop-in beside a root file says."""
    return tomllib.loads(drop_in(root, version, desired))
