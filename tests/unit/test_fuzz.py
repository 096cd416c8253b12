"""What the fuzzer (tests/fuzz) broke once is replayed, and each reader of a node's answers is one of its targets."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpunode import facts
from gpunode.facts.base import NodeFact
from gpunode.facts.node import PARTS
from tests.fuzz.__main__ import CORPUS, within_limits
from tests.fuzz.targets import FACTS, SAMPLES, targets

pytestmark = pytest.mark.pure

TARGETS = {each.name: each for each in targets()}
KEPT = [str(path.relative_to(CORPUS)) for path in sorted(CORPUS.glob("*/*.txt"))]
# These have several parts, of which each is a target, or are read by a target of their own.
_OF_PARTS = {"Node", "NodeWithCandidates", "Machine", "Requirements", "AgentReport"}


@pytest.mark.parametrize("kept", KEPT)
def test_what_broke_a_reader_once_breaks_it_no_more(kept: str) -> None:
    path = Path(kept)
    within_limits(TARGETS[path.parent.name], (CORPUS / path).read_bytes().decode("utf-8", "surrogatepass"))


def _of(kind: type[NodeFact[Any]]) -> Iterator[type[NodeFact[Any]]]:
    for each in kind.__subclasses__():
        yield each
        yield from _of(each)


def test_every_fact_is_fuzzed_from_a_sample() -> None:
    for path in Path(facts.__path__[0]).rglob("*.py"):
        if path.name != "__init__.py":
            name = ".".join(path.relative_to(facts.__path__[0]).with_suffix("").parts)
            importlib.import_module(f"gpunode.facts.{name}")
    fuzzed = {each.parse for each in (*FACTS, *PARTS.values())}
    own = [each for each in _of(NodeFact) if each.__module__.startswith("gpunode.")]
    assert {each.__name__ for each in own if each.parse not in fuzzed} <= _OF_PARTS
    assert {path.name for path in SAMPLES.iterdir() if path.is_dir()} == set(TARGETS)
