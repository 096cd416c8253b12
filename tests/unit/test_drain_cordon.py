"""Whose cordon is on a node, and what gpunode notes of its own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.kubernetes.nodes.cluster_nodes import ANNOTATION, ClusterNode, Note, parse_node
from gpunode.kubernetes.nodes.cordon import lifted, taken
from tests.support.simulated_node import NOW, Cluster

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


def test_a_person_who_writes_into_the_annotation_makes_no_cordon_ours() -> None:
    for text in ("hands off", "[1]", "{", '{"cordon": "me"}'):
        cluster = Cluster()
        cluster.node["metadata"]["annotations"][ANNOTATION] = text
        cluster.by_hand(True)
        found = parse_node(json.dumps(cluster.node))
        assert not found.is_held_back


notes = st.builds(
    Note, state=st.sampled_from(["draining", "drained", "drain blocked"]), reason=st.text(), since=st.just(NOW),
    cordon=st.sampled_from(["gpunode", "other"]), message=st.text(),
)  # fmt: skip
held = st.builds(
    ClusterNode, name=st.just("gpu-1"), labels=st.just({}), ours=st.none(), allocatable=st.just({}),
    version=st.just("7"), unschedulable=st.booleans(), note=st.none() | notes, set_by_others=st.booleans(),
    ready=st.booleans(), boot_id=st.sampled_from(["", "a"]),
)  # fmt: skip


@given(held)
def test_nothing_but_our_own_cordon_is_ever_lifted(cordon: ClusterNode) -> None:
    patch = lifted(cordon)
    lifts = patch is not None and "spec" in patch
    assert lifts == cordon.is_held_back
    assert not (cordon.unschedulable and (cordon.note is None or cordon.set_by_others) and lifts)
    # Also where an API server tells nobody who set what.
    assert not lifts or (cordon.note is not None and cordon.note.cordon == "gpunode")


@given(held, st.text())
def test_a_cordon_is_taken_only_where_nobody_else_has_one_and_always_with_its_note(
    cordon: ClusterNode, reason: str
) -> None:
    note, patch = taken(cordon, reason, NOW)
    theirs = cordon.unschedulable and not cordon.is_held_back
    assert ("spec" in patch) is not theirs and (note.cordon == "gpunode") is not theirs
    assert patch["metadata"]["resourceVersion"] == cordon.version
    assert json.loads(patch["metadata"]["annotations"][ANNOTATION])["cordon"] == note.cordon


@given(notes)
def test_a_note_is_read_as_it_was_written(note: Note) -> None:
    cluster = Cluster()
    short = replace(note, reason=note.reason[:2000], message=note.message[:2000])
    cluster.node["metadata"]["annotations"][ANNOTATION] = note.text
    assert parse_node(json.dumps(cluster.node)).note == short
