"""Nodes and files for the tests of containerd."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gpunode.components.runtimes.containerd.decide import Desired, desired_of, judge_of
from gpunode.components.runtimes.containerd.drop_in import drop_in
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.containerd.state import Containerd
from gpunode.components.runtimes.runtime import Runtimes
from gpunode.settings import settings_from
from tests.support.verify import GOOD

DATA = Path(__file__).parents[1] / "unit" / "data"
# U+FFFD is what a byte that is not UTF-8 is read as: such a file is refused.
_SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="\ufffd"), max_size=20),
)
_KEYS = st.from_regex(r"\A[a-z_][a-z0-9_.-]{0,12}\Z")
FOREIGN = st.dictionaries(_KEYS, st.one_of(_SCALARS, st.dictionaries(_KEYS, _SCALARS, max_size=3)), max_size=4)
JUDGE = judge_of(Desired(), GOOD.containerd)


def state(version: str, text: str | None, **fields: Any) -> Containerd:
    """Return a node whose daemon runs well by the desired configuration, with another root file."""
    return replace(GOOD.containerd, version=version, config_text=text, **fields)


def spare() -> Containerd:
    """Return a node that runs as desired, and whose root file lacks a default of containerd's."""
    text = render((DATA / "in-containerd16-kubeadm.toml").read_text(), "1.7.24", Runtimes())
    less = text.replace("privileged_without_host_devices = false\n", "")
    return state("1.7.24", less, merged_text=text, merged="same", loaded="same")


def desired(data: dict[str, Any]) -> Desired:
    """Return the containerd that settings describe."""
    return desired_of(settings_from(data))


def rendered(root: str, version: str, desired: Runtimes) -> dict[str, Any]:
    """Return the CRI plugin's table of the rendered root file, which a second rendering leaves alone."""
    text = render(root, version, desired)
    assert render(text, version, desired) == text
    return next(table for name, table in tomllib.loads(text)["plugins"].items() if "cri" in name)


def drop_in_document(root: str, version: str, desired: Runtimes) -> dict[str, Any]:
    """Return the parsed text of the drop-in for a root file."""
    return tomllib.loads(drop_in(root, version, desired))
