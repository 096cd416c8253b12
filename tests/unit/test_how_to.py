"""The how-to pages do what they say: their snippets are entered and run as they stand there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpunode.base import tables
from gpunode.base.tables import reading
from gpunode.cli.plan import plan
from tests.support.how_to import snippet

pytestmark = pytest.mark.pure
CACHED = (tables.distributions, tables.driver_sources)


@pytest.fixture
def centos_stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Enter the rows of the page in the tables."""
    text = reading.text
    (distribution,) = yaml.safe_load(snippet("add-a-distribution.md", "distributions"))
    (system,) = yaml.safe_load(snippet("add-a-distribution.md", "systems"))

    def with_rows(name: str) -> str:
        if name not in ("distributions.yaml", "driver_packages.yaml"):
            return text(name)
        content = yaml.safe_load(text(name))
        if name == "distributions.yaml":
            content["distributions"].append(distribution)
        if name == "driver_packages.yaml":
            for row in content["sources"]:
                if row["source"] == system["source"] and system["like"] in row["systems"]:
                    row["systems"].append(system["id"])
        return yaml.safe_dump(content, sort_keys=False)

    monkeypatch.setattr(reading, "text", with_rows)
    for table in CACHED:
        table.cache_clear()
    yield
    monkeypatch.undo()
    for table in CACHED:
        table.cache_clear()


def decided(tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """Return exit code and verdict of `gpunode plan` for the page's machine with an H100."""
    gpu = {"address": "0000:1a:00.0", "device_id": "2330", "name": "H100 SXM5 80GB", "generation": "hopper"}
    system = json.loads(snippet("add-a-distribution.md", "operating-system"))
    facts = {"schema": 1, "hosts": {"gpu-1": {"facts": {"operating_system": system, "pci": {"gpus": [gpu]}}}}}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "settings.yaml").write_text("driver: {branch: '580'}\ncontainerd: {source: docker-repository}\n")
    arguments = ["--facts", str(tmp_path / "facts.json"), "--settings", str(tmp_path / "settings.yaml"), "--json"]
    done = CliRunner().invoke(plan, arguments)
    return done.exit_code, json.loads(done.output)["hosts"]["gpu-1"]


@pytest.mark.usefixtures("centos_stream")
def test_the_rows_of_the_page_make_a_distribution_that_can_be_planned(tmp_path: Path) -> None:
    code, verdict = decided(tmp_path)
    assert code == 0, verdict
    assert "nvidia-open" in json.dumps(verdict)


def test_without_them_it_is_refused(tmp_path: Path) -> None:
    code, verdict = decided(tmp_path)
    assert code == 2 and "CentOS Stream 9" in json.dumps(verdict)
