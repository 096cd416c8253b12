"""A node's answer of very many lines is refused, or judged in time by their number."""

from __future__ import annotations

import time

import pytest

from gpunode.base.probe_output import pairs
from gpunode.base.reading import ParseError
from gpunode.components.runtimes.containerd.state import parse_containerd
from gpunode.system.boot import parse_boot

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("count", [10_001, 200_000])
def test_more_lines_than_a_component_has_are_refused(count: int) -> None:
    with pytest.raises(ParseError):
        pairs(["package=a 1"] * count)


def test_more_drop_ins_than_anybody_has_are_refused() -> None:
    with pytest.raises(ParseError):
        parse_containerd(["drop_in=- /a/1.toml"] * 501)


def test_kernels_are_judged_in_time_by_their_number() -> None:
    line = "kernel={} headers=yes initramfs=1700000000 nouveau=yes"
    boot = parse_boot(["running=6.1", *(line.format(number) for number in range(9_000))])
    started = time.process_time()
    assert boot.new_images
    assert time.process_time() - started < 2
