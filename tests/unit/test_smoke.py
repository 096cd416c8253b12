"""What containers saw, and what is said of it."""

from __future__ import annotations

import base64
import inspect
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpunode.base.reading import ParseError, Unknown
from gpunode.base.shell_file import script_file
from gpunode.components.smoke import Smoke, Trial, parse_smoke
from gpunode.deploys import verify as verify_deploy
from gpunode.facts.smoke import Smoke as SmokeFact
from gpunode.lab.packages import container_runtime
from gpunode.operations import smoke
from gpunode.settings import settings_from
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure

DEVICES = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")
SEES, NOTHING = Trial(True, DEVICES), Trial(True)
GOOD = Smoke("ctr", "/usr/bin/nvidia-container-runtime", DEVICES, SEES, NOTHING, NOTHING, SEES)
LOST = Trial(True, DEVICES[1:], DEVICES[:1])


def test_what_the_node_prints_is_read_and_only_our_own_lines_count_as_devices() -> None:
    said = base64.b64encode(b"open=/dev/nvidia0\ndenied=/dev/nvidiactl\nopen=sesame\nlevel=warning\n").decode()
    lines = ["device=/dev/nvidia0", "by=ctr", "runtime=/r", "asking=0", f"asking_said={said}", "silent=1", "tested=yes"]
    found = parse_smoke(lines)
    assert (found.by, found.devices, found.reloaded) == ("ctr", ("/dev/nvidia0",), None)
    assert found.asking is not None
    assert (found.asking.devices, found.asking.denied) == (("/dev/nvidia0",), ("/dev/nvidiactl",))
    assert found.silent == Trial(False)
    with pytest.raises(ParseError, match="end"):
        parse_smoke(lines[:-1])


def test_a_node_whose_containers_see_what_they_should_has_no_problem() -> None:
    assert GOOD.problems == ()
    assert replace(GOOD, envvar=None, reloaded=None).problems == ()


@pytest.mark.parametrize(
    "change, words",
    [
        ({"by": None}, "neither a docker"),
        ({"devices": ()}, "no driver is loaded"),
        ({"asking": Trial(False, said="runc: no such file\n")}, "does not run: runc: no such file"),
        ({"asking": Trial(True, DEVICES[1:]), "reloaded": None}, "does not see /dev/nvidia0"),
        ({"asking": LOST, "reloaded": LOST}, "may not open /dev/nvidia0"),
        ({"silent": SEES}, "asks for no GPU sees /dev/nvidia0"),
        ({"silent": Trial(False)}, "asks for no GPU does not run"),
        ({"envvar": Trial(False, said="ctr: deadline exceeded\n")}, "does not run: ctr: deadline"),
        ({"envvar": SEES}, "an unprivileged container gets /dev/nvidia0"),
        ({"reloaded": LOST}, "after `systemctl daemon-reload` a container has lost /dev/nvidia0"),
        ({"reloaded": Trial(False)}, "after `systemctl daemon-reload` a container has lost"),
    ],
)
def test_each_fault_is_told_with_what_to_do(change: dict[str, object], words: str) -> None:
    (problem,) = replace(GOOD, **change).problems  # type: ignore[arg-type]
    assert words in problem and (";" in problem or "does not run" in problem)


@pytest.mark.real
def test_the_toolkit_s_hooks_find_the_folder_in_the_test_s_root_that_they_write_the_library_cache_to(
    tmp_path: Path,
) -> None:
    script = script_file("smoke_root").replace("/var/tmp/gpunode-smoke", f"{tmp_path}/smoke") + '\necho "$root"\n'
    root = Path(subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.strip())
    config = {"root": {"path": str(root)}}
    container_runtime.update_ldcache(config, tmp_path, "1.20.0")
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    (root / "etc").joinpath("ld.so.conf").unlink()
    (root / "etc").rmdir()
    container_runtime.update_ldcache(config, tmp_path, "1.17.9")
    with pytest.raises(ValueError, match=r"open /etc/ld\.so\.conf: no such file or directory"):
        container_runtime.update_ldcache(config, tmp_path, "1.18.0")
    container_runtime.update_ldcache(config | {"mounts": [{"destination": "/etc/hosts"}]}, tmp_path, "1.18.0")


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


def test_an_unprivileged_container_that_does_not_even_start_by_the_variable_is_as_good() -> None:
    assert replace(GOOD, envvar=Trial(False, said="insufficient privileges")).problems == ()


def test_a_dry_run_starts_no_container(host: Host) -> None:
    host.state = SimpleNamespace(is_executing=False)
    assert commands(smoke.containers, host, reload=True) == []
    assert "when the run is executed" in host.noops[0]


def test_the_operation_fails_with_every_problem_and_changes_nothing(host: Host) -> None:
    host.readings[SmokeFact] = GOOD
    assert commands(smoke.containers, host, reload=True) == []
    assert (host.refusals, len(host.noops)) == ([], 1)
    host.readings[SmokeFact] = replace(GOOD, silent=SEES, envvar=SEES)
    assert commands(smoke.containers, host, reload=True) == []
    assert len(host.refusals) == 2
    host.readings[SmokeFact] = Unknown("silence")
    assert commands(smoke.containers, host, reload=True) == [] and "silence" in host.refusals[-1]


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
    for name in ("verdict", "applied"):
        monkeypatch.setattr(verify_deploy, name, SimpleNamespace(verified=lambda **_: None, recorded=lambda **_: None))
    monkeypatch.setattr(
        verify_deploy, "container_test", SimpleNamespace(containers=lambda name, reload: found.append(reload))
    )
    inspect.unwrap(verify_deploy.verify)()
    assert found == calls
