"""Which packages a container runtime comes by, from each source."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.deploys import docker as docker_deploy
from gpunode.deploys import runtime_packages
from gpunode.settings import DockerSettings

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("source", "system", "wanted", "repository"),
    [
        ("distribution", ("debian", "12"), {"docker.io": "26.1.5"}, ""),
        ("docker-repository", ("debian", "12"), {"docker-ce": "26.1.5", "docker-ce-cli": "26.1.5"}, "docker"),
        # docker.io is Debian's and its kin's alone.
        ("docker-repository", ("rocky", "9"), {"docker-ce": "26.1.5", "docker-ce-cli": "26.1.5"}, "docker"),
        ("present", ("debian", "12"), None, None),
    ],
)
def test_docker_comes_by_the_packages_of_its_source_whose_repository_is_trusted_first(
    source: Any, system: tuple[str, str], wanted: dict[str, str] | None, repository: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    calls: list[Any] = []
    asked = DockerSettings.model_construct(enabled=True, source=source, version="26.1.5", cdi=None)
    settings = SimpleNamespace(
        docker=asked, toolkit=SimpleNamespace(enabled=True), disruption=SimpleNamespace(allow="restart", max_parallel=1)
    )
    monkeypatch.setattr(docker_deploy, "settings", lambda: settings)
    monkeypatch.setattr(docker_deploy, "drain", lambda: None)
    for module in (docker_deploy, runtime_packages):
        monkeypatch.setattr(module, "distribution", lambda: tables.distribution(*system))
    monkeypatch.setattr(runtime_packages, "trust", calls.append)
    monkeypatch.setattr("gpunode.operations.packages.installed", lambda **said: calls.append(said))
    for name, operation in (("runtime", "configuration"), ("systemd", "running")):
        monkeypatch.setattr(docker_deploy, name, SimpleNamespace(**{operation: lambda **said: None}))
    inspect.unwrap(docker_deploy.docker)()
    found = [call for call in calls if isinstance(call, dict)]
    assert [call for call in calls if isinstance(call, str)] == (["docker"] if repository else [])
    assert [(call["desired"], call["repository"]) for call in found] == [(wanted, repository)][: wanted is not None]
