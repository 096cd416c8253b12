"""A setting whose default is refused once another one asks for it: docs/settings.md says that it is required then."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.settings import SettingsError, check_hosts

pytestmark = pytest.mark.pure
DOCS = Path(__file__).parents[2] / "docs"
SHA = "0123456789abcdef" * 4
# What asks for it, and the setting that is missing then.
ASKING: list[tuple[Mapping[str, Any], str]] = [
    ({"driver": {"source": "runfile"}}, "driver.version"),
    ({"driver": {"source": "runfile", "version": "580.95.05"}}, "driver.runfile_sha256"),
    ({"cuda": {"source": "runfile", "runfile_sha256": SHA}}, "cuda.release"),
    ({"cuda": {"source": "runfile", "release": "12.9.1"}}, "cuda.runfile_sha256"),
    ({"imex": {"enabled": True}}, "imex.domain"),
    ({"sharing": {"strategy": "time-slicing"}}, "sharing.replicas"),
    ({"gpushare": {"inspect_url": "https://example.org/x"}}, "gpushare.inspect_sha256"),
    (
        {"rdma_shared_device_plugin": {"enabled": True, "resources": {"a/b": {"vendors": ["15b3"]}}}},
        "rdma_shared_device_plugin.image",
    ),
    (
        {"rdma_shared_device_plugin": {"enabled": True, "image": "example.org/a:1"}},
        "rdma_shared_device_plugin.resources",
    ),
    (
        {"kubernetes": {"enabled": True, "version": "1.31"}, "device_plugin": {"method": "gpushare"}},
        "gpushare.schedulers",
    ),
]


@pytest.mark.parametrize(("data", "key"), ASKING, ids=[key for _, key in ASKING])
def test_what_is_required_once_another_setting_asks_for_it_is_documented_so(data: Mapping[str, Any], key: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_hosts({"gpu-1": dict(data)}, frozenset())
    assert key in {problem.key for problem in refused.value.problems}, refused.value
    component, _, name = key.partition(".")
    section = (
        (DOCS / "settings.md").read_text(encoding="utf-8").partition(f"\n## {component}\n")[2].partition("\n## ")[0]
    )
    (row,) = re.findall(rf"^\| `{name}` \|.*$", section, re.MULTILINE)
    assert "equired" in row and "| required |" not in row


def test_the_page_on_upgrades_takes_a_branch_that_is_maintained() -> None:
    page = (DOCS / "how-to" / "upgrade-the-driver.md").read_text(encoding="utf-8")
    (version,) = re.findall(r'"version": "(\d+)\.', page)
    branch = tables.drivers().branches[version]
    assert branch.end_of_life != "past" and f"to {version})" in page
