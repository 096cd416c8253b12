"""A daemon that ends a few seconds after its start is none that runs: what is read, waited for, judged and told."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyinfra.context import ctx_host

from gpunode.base.comparison import RUN
from gpunode.base.explanations import failure
from gpunode.base.probe_output import checked
from gpunode.base.shell_file import script_file
from gpunode.components.driver.services import services
from gpunode.components.driver.state import parse_driver
from gpunode.facts.node import Node as NodeFact
from gpunode.facts.packages import OutdatedServices
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.facts.runtimes import Docker as DockerFact
from gpunode.fleet import hooks, shared_readings
from gpunode.operations.verify import verified
from gpunode.packages import installed_packages
from gpunode.settings.driver import DriverSettings
from gpunode.system.pci import PciGpus
from gpunode.system.service import ServiceState
from tests.support.messages import unnamed
from tests.support.programs import programs, sh
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD, SETTINGS

pure = pytest.mark.pure
KILLED = (
    'time="2026-01-15T12:00:05Z" level=fatal msg="no space left"',
    "containerd.service: Main process exited, code=killed, status=9/KILL",
    "containerd.service: Failed with result 'signal'.",
)
STEADY_ONE = ServiceState("running")
YOUNG = ServiceState("running", 0, 3.0)
FALLS = ServiceState("running", 1, 4.0, KILLED)


_SYSTEMCTL = """#!/bin/sh
printf 'Names=%s\\nLoadState=loaded\\nUnitFileState=enabled\\nExecStart={ path=%s ; }\\n' "$UNIT" "$LAB/daemon"
printf 'ActiveState=%s\\nSubState=%s\\nNRestarts=%s\\nResult=%s\\nActiveEnterTimestampMonotonic=%s\\n' $STATE
"""
_JOURNALCTL = """#!/bin/sh
echo "$*" > "$LAB/asked"; cat "$LAB/journal"
"""


def _uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


@pytest.fixture(params=["containerd.service", "docker.service"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., ServiceState]:
    """Return what reads the service of a unit that systemd, SIMULATED, tells these states of."""
    for name, text in (("systemctl", _SYSTEMCTL), ("journalctl", _JOURNALCTL), ("daemon", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "journal").write_text("\n".join([*KILLED, "containerd.service: Scheduled restart job", "ready"]))
    fact: Any = ContainerdFact() if request.param == "containerd.service" else DockerFact()

    def one(active: str, sub: str, restarts: int, seconds: float, result: str = "success") -> ServiceState:
        up = _uptime()
        environment = {
            "PATH": f"{tmp_path}:/usr/bin:/bin", "UNIT": request.param, "LAB": str(tmp_path),
            "STATE": f"{active} {sub} {restarts} {result} {int((up - seconds) * 1_000_000)}",
        }  # fmt: skip
        done = subprocess.run(
            ["sh", "-c", fact.command()], env=environment, capture_output=True, text=True, check=False
        )
        found: ServiceState = fact.parse(checked(done.stdout.splitlines())).service
        return found

    return one


@pytest.mark.simulated
def test_systemd_and_the_kernel_s_clock_tell_the_age_and_the_journal_is_asked_of_what_ended_alone(
    read: Callable[..., ServiceState], tmp_path: Path
) -> None:
    before = _uptime()
    young = read("active", "running", 0, 3)
    # However long a busy machine takes to ask.
    late = _uptime() - before
    assert late > 6 or (young.young is not None and 3 <= young.young <= 3.1 + late)
    assert young == replace(YOUNG, young=young.young)
    assert read("active", "running", 1, 3600) == ServiceState("running", 1)
    assert not (tmp_path / "asked").exists()
    assert read("active", "running", 1, 3).said == KILLED
    assert read("activating", "auto-restart", 0, 3) == ServiceState("auto-restart", 0, None, KILLED)
    assert read("failed", "failed", 0, 3, "signal") == ServiceState("failed", 0, None, KILLED, "signal")
    assert "--lines=300" in (tmp_path / "asked").read_text()


@pytest.mark.simulated
@pytest.mark.parametrize("last, process", [
    ("containerd: failed to load TOML: /etc/containerd/config.toml: (26, 11): no such key", "Main"),
    ("unable to configure the Docker daemon with file /etc/docker/daemon.json: invalid character", "Main"),
    ("no such disk: /data is not mounted", "Control"),
    (None, "Main"),
])  # fmt: skip
def test_a_daemon_that_exits_is_told_by_its_last_words(
    read: Callable[..., ServiceState], tmp_path: Path, last: str | None, process: str
) -> None:
    end = f"x.service: {process} process exited, code=exited, status=1/FAILURE"
    failed = "x.service: Failed with result 'exit-code'."
    words = ["Starting x.service - X...", *([last] if last else []), end, failed, "Stopped x.service - X."]
    (tmp_path / "journal").write_text("\n".join(["level=info msg=ready", *words * 3]))
    said = read("activating", "auto-restart", 3, 3, "exit-code").said
    assert said == ((last, end, failed) if last else (failed, end))


class Reading(Host):
    """Answer with one reading after the other."""

    def get_fact(self, fact: type, **_: Any) -> Any:
        found = self.readings[fact]
        return found.pop(0) if len(found) > 1 else found[0]


@pure
@pytest.mark.parametrize("changed, then, slept, told", [
    (0.0, YOUNG, [], 0), (60.0, STEADY_ONE, [7.0], 0), (60.0, FALLS, [7.0], 1),
])  # fmt: skip
def test_the_verdict_looks_again_at_what_this_run_started(
    changed: float, then: ServiceState, slept: list[float], told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = [replace(GOOD, containerd=replace(GOOD.containerd, service=each)) for each in (YOUNG, then)]
    host: Any = Reading({NodeFact: node, OutdatedServices: [installed_packages.OutdatedServices()]})
    waited: list[float] = []
    forgotten: list[Any] = []
    monkeypatch.setattr(hooks, "seconds_of_changes", lambda _: changed)
    monkeypatch.setattr(shared_readings, "read_anew", forgotten.append)
    monkeypatch.setattr("gpunode.operations.verify.sleep", waited.append)
    monkeypatch.setattr("gpunode.operations.verify.kept", lambda: None)
    with ctx_host.use(host):
        assert commands(verified, host, settings=SETTINGS) == []
    assert (waited, forgotten) == (slept, [host] * len(slept))
    assert len(host.refusals) == told and all(unnamed(each, "containerd", "restarting") == [] for each in host.refusals)


# SIMULATED: a unit that does not start, and what systemd and the journal have of it.
_STOPPED_UNIT = """
case "$*" in
  *InvocationID*) echo "InvocationID=$INVOCATION";;
  show*) printf '%s\\n' Result=exit-code ActiveState=failed SubState=failed;;
  start*) echo "Job for $2 failed." >&2; exit 1;;
esac
"""
_JOURNAL = """
case "$*" in *_SYSTEMD_INVOCATION_ID=abc*) printf "$WORDS";; *) echo 'Failed to start x.service';; esac
"""


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("invocation", "words", "named"),
    [
        ("abc", "cannot open /dev/nvidiactl", "cannot open /dev/nvidiactl"),
        ("abc", "", "Failed to start x.service"),
        ("", "", "Failed to start x.service"),
    ],
)
def test_a_service_that_does_not_start_shows_its_state_and_its_last_words(
    tmp_path: Path, invocation: str, words: str, named: str
) -> None:
    programs(tmp_path, {"systemctl": _STOPPED_UNIT, "journalctl": _JOURNAL})
    variables = {"unit": "x.service", "steps": "enable start", "INVOCATION": invocation, "WORDS": words}
    done = sh(tmp_path, f"set -eu\n{script_file('service_state', 'service_run')}", **variables)
    assert done.returncode == 1
    (found, *_) = failure(done.stderr.splitlines(), "sh")
    assert unnamed(found.cause, "x.service", "ActiveState=failed", "Result=exit-code", named) == []
    assert "journalctl -u x.service" in found.remedy


@pure
def test_a_failed_service_of_the_driver_has_its_words_as_cause() -> None:
    state = parse_driver(["service=nvidia-persistenced failed enabled", "ended=nvidia-persistenced no such user"])
    (finding,) = services(DriverSettings(), state, PciGpus(()))
    assert unnamed(str(finding.cause), "no such user") == [] and finding.remedy != RUN
    stopped = parse_driver(["service=nvidia-persistenced inactive enabled"])
    (finding,) = services(DriverSettings(), stopped, PciGpus(()))
    assert finding.cause is None and finding.remedy == RUN
