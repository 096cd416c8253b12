"""Ways to break it: each ends with the old service running and the reason told.

Real: dockerd, its own check, systemd, the file systems. SIMULATED: a service that ends after its start is killed by a
line of its unit's; the one that puts an old file back is a line of the unit's, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.molecule.conftest import thinned, tried_before
from tests.molecule.docker.conftest import CONFIG, DEBIAN, DOCKER, OVERRIDE, Bench, Machine, each

OLD = '{"exec-opts": ["native.cgroupdriver=cgroupfs"], "labels": ["rack=7"]}'
# With a value that no docker takes, in a file that is JSON.
_WRONG = f'sed -i \'s|"labels"|"log-level": "nonsense", "labels"|\' {CONFIG}'
_OVERRIDE = f"mkdir -p $(dirname {OVERRIDE}); cat > {OVERRIDE}"
_NO_OVERRIDE = f"rm {OVERRIDE}; systemctl daemon-reload"
# The daemon starts, answers, and is killed a second later, where it has the new configuration.
_ENDS = f"""{_OVERRIDE} <<'UNIT'
[Service]
Restart=no
ExecStartPost=/bin/sh -c "grep -q nvidia-container-runtime {CONFIG} || exit 0; (sleep 1; kill -9 $MAINPID) & "
UNIT
systemctl daemon-reload"""
_PUTS_BACK = f"""cp {CONFIG} /srv/daemon.json; {_OVERRIDE} <<'UNIT'
[Service]
ExecStartPre=cp /srv/daemon.json {CONFIG}
UNIT
systemctl daemon-reload"""


@dataclass(frozen=True)
class Fault:
    """Hold what breaks it, the reason that is told, by whichever docker where these differ, and what mends it.

    `cdi`: what is asked of CDI; `restarted`: the new configuration must be tried to be found wanting.
    """

    harm: str
    reasons: dict[str, str]
    mend: str = ":"
    cdi: bool | None = None
    restarted: bool = False


def _both(reason: str) -> dict[str, str]:
    return {DEBIAN: reason, DOCKER: reason}


FAULTS = {
    "an unparsable file": Fault(f"echo '{{' > {CONFIG}", _both("the file is not JSON")),
    "what this docker does not know": Fault(":", {DEBIAN: "docker 20.10 has no CDI"}, cdi=True),
    "a read-only file system": Fault(
        "mount --bind /etc/docker /etc/docker; mount -o remount,bind,ro /etc/docker",
        _both(f"{CONFIG} cannot be written"),
        "umount /etc/docker",
    ),
    "the binary missing": Fault(
        "for file in /usr/sbin/dockerd /usr/bin/dockerd; do [ ! -e $file ] || mv $file $file.gone; done",
        {
            DEBIAN: "/usr/sbin/dockerd, which the unit docker.service runs, is missing",
            DOCKER: "/usr/bin/dockerd, which the unit docker.service runs, is missing",
        },
        "for file in /usr/sbin/dockerd /usr/bin/dockerd; do [ ! -e $file.gone ] || mv $file.gone $file; done",
    ),
    "NVIDIA's runtime missing": Fault(
        "mv /usr/bin/nvidia-container-runtime /srv/", _both("/usr/bin/nvidia-container-runtime is missing"),
        "mv /srv/nvidia-container-runtime /usr/bin/",
    ),
    "a service that ends after its start": Fault(_ENDS, _both("docker is failed"), _NO_OVERRIDE, restarted=True),
    "a daemon that does not say what is asked": Fault(
        _PUTS_BACK, _both("lacks DefaultRuntime=nvidia CgroupDriver=systemd"), _NO_OVERRIDE, restarted=True
    ),
    # 20.10 has no check of its own: it is tried, and found wanting.
    "a validation that fails": Fault(_WRONG, {DOCKER: "docker refuses the new configuration"}),
    "a full disk": Fault(
        "cp -a /etc/docker /tmp/kept; mount -t tmpfs -o size=16k none /etc/docker; cp -a /tmp/kept/. /etc/docker; "
        "rm -r /tmp/kept; cat /dev/zero > /etc/docker/filler 2>/dev/null || true",
        _both(f"{CONFIG} cannot be written"),
        "umount /etc/docker",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(FAULTS, "a daemon that does not say what is asked"))
def test_each_fault_ends_with_the_old_service_running_and_the_reason_told(
    name: str, machines: tuple[Machine, ...], bench: Bench
) -> None:
    fault = FAULTS[name]
    harmed = tuple(machine for machine in machines if machine.version in fault.reasons)
    each(harmed, lambda machine: machine.start_with(OLD))
    started = [machine.started() for machine in harmed]
    each(harmed, lambda machine: machine.out(fault.harm))
    files = [machine.text() for machine in harmed]
    try:
        run = bench.run(*harmed, cdi=fault.cdi)
        assert run.code == 1 and "Traceback" not in run.printed, run.printed
        for machine in harmed:
            assert f"[{machine.node.name}] Error" in run.printed, run.printed
            assert fault.reasons[machine.version] in run.printed, run.printed
        assert [machine.text() for machine in harmed] == files
        for machine in harmed:
            info = machine.info()
            assert (info["DefaultRuntime"], info["CgroupDriver"], info["Labels"]) == ("runc", "cgroupfs", ["rack=7"])
        assert [machine.started() != before for machine, before in zip(harmed, started, strict=True)] == [
            fault.restarted
        ] * len(harmed)
        if fault.restarted:
            assert "runs again" in run.printed
            restored = [machine.started() for machine in harmed]
            again = bench.run(*harmed, cdi=fault.cdi)
            assert tried_before(again, "docker"), again.printed
            assert [machine.started() for machine in harmed] == restored
    finally:
        each(harmed, lambda machine: machine.out(fault.mend))


def test_a_flag_of_the_unit_s_own_that_the_file_would_repeat_is_named_before_anything_is_touched(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    (machine,) = (machine for machine in machines if machine.version == DEBIAN)
    machine.start_with(None)
    machine.out(
        "echo 'DOCKER_OPTS=--exec-opt=native.cgroupdriver=cgroupfs' >> /etc/default/docker; systemctl restart docker"
    )
    started = machine.started()
    run = bench.run(machine)
    assert run.code == 1
    assert "--exec-opt" in run.printed, run.printed
    assert machine.started() == started
    machine.out("sed -i /DOCKER_OPTS=--exec/d /etc/default/docker; systemctl restart docker")
