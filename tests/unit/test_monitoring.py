"""docs/examples/monitoring asks for metrics and labels that there are, and tests each of its alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gpunode.base.findings import FindingClass
from gpunode.cli.drift import drift
from gpunode.fleet.reports.prometheus import metrics
from tests.reference.drift import example

pytestmark = pytest.mark.pure

CHECKOUT = Path(__file__).parents[2]
EXAMPLES = CHECKOUT / "docs" / "examples" / "monitoring"
_METRIC = re.compile(r"\bgpunode_\w+")
_SELECTOR = re.compile(r"(gpunode_\w+)\{([^}]*)\}")
_LABEL = re.compile(r'(\w+)\s*(?:=|!=|=~|!~)\s*"([^"]*)"')


def exported() -> dict[str, set[str]]:
    """Return metric -> its labels, of the example of docs/drift.md, in which each metric is."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics(example(), 0).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def queries(panel: Any) -> Iterator[str]:
    """Yield every query of a dashboard, those of its variables as well."""
    if isinstance(panel, dict):
        for key, value in panel.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from queries(value)
    elif isinstance(panel, list):
        for each in panel:
            yield from queries(each)


def dashboard() -> Any:
    return json.loads((EXAMPLES / "dashboard.json").read_text())


def asked() -> list[str]:
    return [*(rule["expr"] for rule in rules()), *queries(dashboard())]


def test_each_query_names_metrics_and_labels_that_there_are() -> None:
    there = exported()
    for query in asked():
        assert set(_METRIC.findall(query)) <= set(there), query
        for metric, selector in _SELECTOR.findall(query):
            for label, value in _LABEL.findall(selector):
                assert label in there[metric], query
                if label == "class":
                    assert value in set(FindingClass), query


def test_each_metric_is_looked_at() -> None:
    assert {name for query in asked() for name in _METRIC.findall(query)} == set(exported())


def test_what_an_alert_s_words_name_is_a_label_of_its_metric() -> None:
    there = exported()
    for rule in rules():
        words = " ".join(rule["annotations"].values())
        labels = set(re.findall(r"\$labels\.(\w+)", words))
        assert all(labels <= there[name] for name in _METRIC.findall(rule["expr"])), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "action"}


def test_each_alert_is_tested_firing_and_silent() -> None:
    tests = yaml.safe_load((EXAMPLES / "alerts.test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


def test_panels_stand_side_by_side_and_have_numbers_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24


def test_the_service_calls_a_command_that_there_is_and_may_write_where_it_says() -> None:
    # A key may stand there several times.
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    text = (EXAMPLES / "gpunode-drift.service").read_text()
    unit.read_string(text)
    (metrics_file,) = re.findall(r"^Environment=METRICS=(.+)$", text, re.MULTILINE)
    assert str(Path(metrics_file).parent) == unit["Service"]["ReadWritePaths"]
    assert metrics_file.endswith(".prom")
    words = unit["Service"]["ExecStart"].split()
    assert words[0].removeprefix(unit["Service"]["WorkingDirectory"]) == "/.venv/bin/gpunode"
    assert words[1] == drift.name and words[2] in {option for each in drift.params for option in each.opts}
    assert metrics_file in (CHECKOUT / "docs" / "how-to" / "monitoring.md").read_text()
