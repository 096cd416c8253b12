"""Values that NVIDIA's templates read though the chart does not list them."""

from __future__ import annotations

import pytest

from gpunode.settings.chart import known
from tests.support.helm import unknown

pytestmark = pytest.mark.pure


def test_values_that_templates_read_though_the_chart_does_not_list_them_are_not_told() -> None:
    values = {"sleepInterval": "30s", "nvidiaDevRoot": "/", "gfd": {"args": ["a"], "arg": []}}
    unlisted = known().unlisted_values["nvidia-device-plugin"]
    assert unknown(values, "gfd: {enabled: false}", (*unlisted, "*.args")) == ["gfd.arg"]
    # A remedy of gpunode's own names none that is then told.
    assert set(known().unread_values.values()) <= set(unlisted)
