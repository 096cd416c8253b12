"""How many of the pods that hold a node up are named; why each does, tests/cases/tests.support.drain_pods.why has."""

from __future__ import annotations

import json

import pytest

from gpunode.kubernetes.drain.commands import blocking, parse_pods
from gpunode.settings.kubernetes import DrainSettings
from tests.support.simulated_node import pod

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


def test_of_many_pods_the_first_are_named_and_the_others_counted() -> None:
    pods = parse_pods(json.dumps({"items": [pod(f"web-{number}") for number in range(11)]}))
    found = blocking(pods, (), DrainSettings.model_validate({}))
    assert len(found) == 9 and found[-1].startswith("3 ")
