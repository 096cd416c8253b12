"""What may be secret is told in no form in which settings hold it, and a word that is refused without its value."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.fleet.page import of_drift
from gpunode.settings.overrides import OverrideError, parse
from gpunode.settings.problems import written

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    "value",
    [
        [{"name": "DB_PASSWORD", "value": "geheim"}],
        {"env": [{"value": "geheim", "name": "API_TOKEN"}]},
        {"apiKey": "geheim"},
        {"tls": {"private_key": "geheim"}},
        {"access-key": "geheim"},
    ],
)
def test_a_secret_is_hidden_in_each_form_that_charts_take(value: object) -> None:
    assert "geheim" not in written(value)


def test_a_variable_of_another_name_is_shown() -> None:
    assert "debug" in written([{"name": "LOG_LEVEL", "value": "debug"}])


def test_a_word_that_is_refused_is_told_without_its_value() -> None:
    with pytest.raises(OverrideError) as refused:
        parse(["Driver.token=geheim"])
    assert "geheim" not in str(refused.value) and "Driver.token" in str(refused.value)


def test_the_page_s_run_on_all_hosts_takes_none_that_the_limit_left_out() -> None:
    document: dict[str, Any] = {
        "inventory": "prod.py", "limit": ["gpu-*"], "set": [], "hosts": {}, "gpunode": "0",
        "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    view = of_drift.view(document)
    assert view.heal_all == "pyinfra prod.py deploys/gpu_node.py --limit 'gpu-*'"
    assert view.heal == "pyinfra prod.py deploys/gpu_node.py"
