"""A docker that dies five seconds after its start: the verdict looks again, and the run is no success.

Real: dockerd, systemd, its journal. SIMULATED: what ends it, a line of its unit's.
"""

from __future__ import annotations

from pathlib import Path

from tests.molecule.conftest import command
from tests.molecule.docker.conftest import DEBIAN, OVERRIDE, Bench, Machine

AGAIN = "looking again in"
_DIES = f"""mkdir -p $(dirname {OVERRIDE}); cat > {OVERRIDE} <<'UNIT'
[Service]
ExecStartPost=/bin/sh -c "(sleep 5; kill -9 $MAINPID) &"
UNIT
systemctl daemon-reload"""


def test_a_docker_that_dies_five_seconds_after_its_start_is_no_success(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    (machine,) = (machine for machine in machines if machine.version == DEBIAN)
    # Another cgroup driver takes a restart.
    machine.start_with('{"exec-opts": ["native.cgroupdriver=cgroupfs"]}')
    machine.out(_DIES)
    deploy = Path(bench.inventory(machine.node.name, source="present")).parent / "docker_alone.py"
    deploy.write_text(
        "from gpunode.deploys.docker import docker\nfrom gpunode.deploys.verify import verify\n\ndocker()\nverify()\n"
    )
    path = str(deploy.parent / "lab.py")
    try:
        run = command("pyinfra", "-y", "--json", path, str(deploy))
        assert run.code == 1 and AGAIN in run.printed, run.printed
        # Its unit starts it again after two seconds.
        assert "docker: service is restarting, desired running" in run.printed, run.printed
        assert "Main process exited, code=killed, status=9/KILL" in run.printed
    finally:
        machine.out(f"rm {OVERRIDE}; systemctl daemon-reload; systemctl reset-failed docker; systemctl restart docker")
