"""What the repository's own inventories may name; `gpunode check` itself is in tests/cases."""

from __future__ import annotations

import runpy

import pytest

from gpunode.fleet.inventory import foreign_names
from gpunode.settings import settings_from
from tests.support.one_document import CHECKOUT

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("group", ["all", "ci", "lab", "prod"])
def test_the_groups_of_the_repository_are_right(group: str) -> None:
    data = runpy.run_path(str(CHECKOUT / "inventories" / "group_data" / f"{group}.py"))
    settings_from(data, foreign_names())


def test_the_names_of_pyinfras_connectors_are_let_through() -> None:
    assert {"ssh_user", "ssh_key", "ssh_hostname", "ssh_known_hosts_file", "docker_platform"} <= foreign_names()
