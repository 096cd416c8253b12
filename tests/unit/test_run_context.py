"""What a run keeps: a value for each run and each host, which begins anew with the next run."""

from __future__ import annotations

import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.context import ctx_host, host

from gpunode.base.run_context import Slot, run_context

pytestmark = pytest.mark.pure


def run() -> State:
    """Return a run of two hosts."""
    return State(Inventory((["@local", "@fake/gpu-2"], {})), Config())


def test_a_value_belongs_to_one_slot_and_to_one_host_of_one_run() -> None:
    names: Slot[list[str]] = Slot(list)
    count = Slot(int)
    first, second = run(), run()
    mine, other = list(first.inventory)
    names.of(mine).append("a")
    count.set(mine, 2)
    assert (names.of(mine), count.of(mine)) == (["a"], 2)
    # The run itself and its inventory are no host.
    assert [names.of(each) for each in (other, first, first.inventory, *second.inventory)] == [[], [], [], [], []]
    names.of(first).append("b")
    assert (names.of(first), names.of(mine), names.of(second)) == (["b"], ["a"], [])


def test_pyinfra_s_name_for_the_current_host_has_that_host_s_values() -> None:
    names: Slot[list[str]] = Slot(list)
    for each in run().inventory:
        with ctx_host.use(each):
            names.of(host).append(each.name)
            assert names.of(each) == [each.name]
            assert run_context(host) is run_context(each)
