"""Nodes of a cluster, by what kubectl says of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.kubernetes.nodes.cluster_nodes import parse_nodes

pytestmark = pytest.mark.pure


@settings(deadline=None)
@given(st.text(max_size=20) | st.sampled_from(['{"items": 7}', '{"items": [7]}', '{"items": [{"metadata": []}]}']))
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_nodes(text)
