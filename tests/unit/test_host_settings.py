"""A deploy asks for its host's settings again and again: they are validated once, and anew when the data changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyinfra.api import Config, Host, Inventory, State
from pyinfra.context import ctx_host, ctx_state

from gpunode.deploys import component
from gpunode.settings import SettingsError, settings_from

pytestmark = pytest.mark.pure


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    named = [("gpu-1", {"cuda": {"version": "12.8"}, "x_rack": 4}), ("gpu-2", {"cuda": {"version": "12.6"}})]
    inventory = Inventory((named, {"driver": {"branch": "580"}}))
    ctx_state.set(State(inventory, Config()))
    one, two = inventory
    yield one, two
    ctx_host.reset()
    ctx_state.reset()


@pytest.fixture
def validated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The version of CUDA in each data that was validated."""
    done: list[str] = []

    def noting(data: Any) -> Any:
        done.append(data["cuda"]["version"])
        return settings_from(data)

    monkeypatch.setattr(component, "settings_from", noting)
    return done


def _cuda(host: Host) -> str | None:
    with ctx_host.use(host):
        return component.settings().cuda.version


def test_each_hosts_settings_are_validated_once(hosts: tuple[Host, Host], validated: list[str]) -> None:
    one, two = hosts
    assert [_cuda(host) for host in (one, two, one, two)] == ["12.8", "12.6", "12.8", "12.6"]
    assert validated == ["12.8", "12.6"]


def test_data_that_a_deploy_changes_count_from_then_on(hosts: tuple[Host, Host], validated: list[str]) -> None:
    one, _ = hosts
    assert _cuda(one) == "12.8"
    one.data.cuda = data = {"version": "12.9"}
    assert _cuda(one) == "12.9"
    data["version"] = "12.5"
    assert _cuda(one) == "12.5"
    assert validated == ["12.8", "12.9", "12.5"]


def test_data_that_became_wrong_are_refused_each_time(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    _cuda(one)
    one.data.cuda = {"versoin": "12.9"}
    for _ in range(2):
        with pytest.raises(SettingsError, match="versoin"):
            _cuda(one)
