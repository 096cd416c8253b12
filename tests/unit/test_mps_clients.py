"""Whose programs a restart of the plugin's MPS daemons would end, by any answer of a cluster."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.decide_restart import parse_clients

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


@given(st.one_of(st.text(), st.recursive(st.none() | st.text(), lambda x: st.lists(x)).map(json.dumps)))
def test_any_text_is_parsed_or_is_no_list_of_pods(text: str) -> None:
    with contextlib.suppress(ParseError):
        assert isinstance(parse_clients(text), dict)
