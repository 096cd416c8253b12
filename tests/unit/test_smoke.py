"""What containers saw, and what is said of it."""

from __future__ import annotations

import inspect
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host

from gpunode.base.shell_file import script_file
from gpunode.deploys import verify as verify_deploy
from gpunode.facts.toolkit import Smoke as SmokeFact
from gpunode.operations import verify
from gpunode.settings import settings_from
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure


@pytest.mark.real
def test_the_toolkit_s_hooks_find_the_folder_in_the_test_s_root_that_they_write_the_library_cache_to(
    tmp_path: Path,
) -> None:
    script = script_file("smoke_root").replace("/var/tmp/gpunode-smoke", f"{tmp_path}/smoke") + '\necho "$root"\n'
    root = Path(subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.strip())
    # Hooks from 1.18 on end where the folder is not there; the scenario `toolkit` runs them.
    assert (root / "etc").is_dir()


@pytest.mark.real
@pytest.mark.parametrize(
    "text, device",
    [
        ('[nvidia-container-runtime]\n  mode = "cdi"\n', "cdi/nvidia.com/gpu/all"),
        ("[nvidia-container-runtime]\nmode='cdi'\n", "cdi/nvidia.com/gpu/all"),
        ('[nvidia-container-runtime]\nmode = "auto"\n#mode = "cdi"\n', "all"),
        ('[nvidia-container-runtime]\nmode = "jit-cdi"\n', "all"),
        (None, "all"),
    ],
)
def test_a_container_asks_by_a_mount_that_the_toolkit_s_mode_takes(
    text: str | None, device: str, tmp_path: Path
) -> None:
    """In mode cdi the real runtime before 1.18 passes over a mount of a plain name."""
    file = tmp_path / "config.toml"
    if text is not None:
        file.write_text(text)
    command = str(SmokeFact().command(reload=False))
    chosen = command[command.index("device=/var/run") : command.index("by_crictl() {")]
    script = f'CONFIG={file}\n{chosen}echo "$device"\n'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"/var/run/nvidia-container-devices/{device}"
    for way in ("ctr", "crictl", "docker"):
        start = script_file(f"smoke_{way}")
        assert start.count("$device") == 1 and "nvidia-container-devices" not in start


def test_a_dry_run_starts_no_container(host: Host) -> None:
    host.state = SimpleNamespace(is_executing=False)
    assert commands(verify.containers, host, reload=True) == []
    assert len(host.noops) == 1 and host.refusals == []


def test_systemd_is_not_reloaded_under_other_people_s_containers_unless_that_is_allowed() -> None:
    careful, free = (str(SmokeFact().command(reload=reload)) for reload in (False, True))
    assert "reload=no;" in careful and "reload=yes;" in free
    assert '[ "$reload" = yes ] || [ "$others" -eq 0 ]' in careful


@pytest.mark.parametrize(
    "asked, calls",
    [
        ({}, []),
        ({"verify": {"smoke": True}}, [True]),
        ({"verify": {"smoke": True}, "disruption": {"allow": "nothing"}}, [False]),
    ],
)
def test_a_run_starts_containers_only_where_the_settings_ask_for_it(
    asked: dict[str, Any], calls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    monkeypatch.setattr(verify_deploy, "settings", lambda: settings_from(asked))
    monkeypatch.setattr(verify_deploy, "applied", SimpleNamespace(recorded=lambda **_: None))
    verdict = SimpleNamespace(verified=lambda **_: None, containers=lambda name, reload: found.append(reload))
    monkeypatch.setattr(verify_deploy, "verdict", verdict)
    with ctx_host.use(Host({})):
        inspect.unwrap(verify_deploy.verify)()
    assert found == calls
