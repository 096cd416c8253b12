"""Which packages a container runtime comes by, from each source."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api import StringCommand
from pyinfra.context import ctx_host

from gpunode.base import tables
from gpunode.components.runtimes.containerd.decide import desired_of
from gpunode.deploys import docker as docker_deploy
from gpunode.deploys import repositories
from gpunode.facts.runtimes import Containerd
from gpunode.operations import containerd, packages
from gpunode.packages.installed_packages import InstalledPackages
from gpunode.settings import DockerSettings, settings_from
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

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
    for module in (docker_deploy, repositories):
        monkeypatch.setattr(module, "distribution", lambda: tables.distribution(*system))
    monkeypatch.setattr(repositories, "trust", calls.append)
    monkeypatch.setattr("gpunode.operations.packages.installed", lambda **said: calls.append(said))
    for name, operation in (("runtime", "configuration"), ("systemd", "running")):
        monkeypatch.setattr(docker_deploy, name, SimpleNamespace(**{operation: lambda **said: None}))
    inspect.unwrap(docker_deploy.docker)()
    found = [call for call in calls if isinstance(call, dict)]
    assert [call for call in calls if isinstance(call, str)] == (["docker"] if repository else [])
    assert [(call["desired"], call["repository"]) for call in found] == [(wanted, repository)][: wanted is not None]


@pytest.mark.parametrize(
    ("there", "allow", "containers", "upgraded"),
    [
        ("1.6.20", "nothing", 2, False),
        ("1.6.20", "nothing", 0, True),
        ("1.6.20", "restart", 2, True),
        (None, "nothing", 2, True),
    ],
)
def test_a_runtime_s_packages_are_not_upgraded_where_containers_would_feel_it_and_nothing_is_allowed(
    there: str | None, allow: str, containers: int, upgraded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    operation = packages.installed
    settings = settings_from({"containerd": {"version": "1.7"}, "disruption": {"allow": allow}})
    monkeypatch.setattr(repositories, "distribution", lambda: tables.distribution("debian", "12"))
    monkeypatch.setattr("gpunode.operations.packages.installed", lambda **said: calls.append(said))
    desired = desired_of(settings)
    now = partial(containerd.packages_now, desired)
    repositories.installed("containerd", "distribution", dict.fromkeys(desired.packages, "1.7"), now)
    (arguments,) = calls
    packages_there = InstalledPackages((("containerd", f"{there}-1"),) if there else ())
    manager = SimpleNamespace(installed=lambda _: packages_there, install=lambda names, *_: StringCommand(*names))
    state = replace(GOOD.containerd, version=there, active=there is not None, shims=containers)
    host = Host({Containerd: state})
    monkeypatch.setattr(packages, "FAMILIES", {"apt": manager})
    with ctx_host.use(host):
        given = commands(operation, host, **{key: arguments[key] for key in arguments if key != "name"})
    assert given == (["containerd=1.7"] if upgraded else [])
    facts = ("restart pending", "2 containers", "disruption.allow", "nothing")
    assert [unnamed(noop, *facts) for noop in host.noops] == ([] if upgraded else [[]])
