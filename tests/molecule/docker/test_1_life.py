"""From nothing to a docker whose containers see their GPUs, by Debian's packages and by Docker's.

Real: docker 20.10 of Debian bookworm and 26.1 of trixie (storage driver vfs), containerd, runc, apt, systemd.
REPACKAGED: docker-ce, docker-ce-cli and containerd.io, from Debian's. SIMULATED: GPUs, NVIDIA's packages and runtime.
"""

from __future__ import annotations

import json

from tests.molecule.conftest import command
from tests.molecule.docker.conftest import DEBIAN, TINY, Bench, Machine, each

# A node that is itself a container has no cgroups to show to one within it, as docker does on cgroup v1.
BEFORE = '{"default-cgroupns-mode": "private"}'
LEFT = "docker ps -aq; docker images -q; ls /var/tmp | grep gpunode || true"


def test_a_bare_node_gets_docker_by_its_source_and_the_second_run_does_nothing(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    each(machines, lambda machine: machine.out("mkdir -p /etc/docker"))
    each(machines, lambda machine: machine.write(BEFORE))
    run = bench.job()
    assert run.code == 0, run.printed
    for machine in machines:
        info = machine.info()
        assert info["ServerVersion"].startswith(machine.version)
        assert (info["DefaultRuntime"], info["CgroupDriver"]) == ("nvidia", "systemd")
        assert info["Runtimes"]["nvidia"]["path"] == "/usr/bin/nvidia-container-runtime"
        assert machine.out("systemctl is-enabled docker") == "enabled"
    packages = "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' 'docker*' | grep ^installed"
    for machine in machines:
        if machine.version == DEBIAN:
            assert machine.out(packages).startswith("installed docker.io 20.10")
        else:
            assert machine.out(packages).split()[2::3] == ["5:26.1.5-1~debian.12~bookworm"] * 2
            # Asked of this one alone, which says of itself that it is on.
            assert machine.info()["CDISpecDirs"]
            assert json.loads(machine.text())["features"] == {"cdi": True}
    started = [machine.started() for machine in machines]
    again = bench.job("deploys.docker.docker")
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    assert [machine.started() for machine in machines] == started
    assert command("gpunode", "drift", bench.inventory()).code == 0


def test_a_container_by_docker_sees_its_gpus_also_after_a_reload_of_systemd_and_one_that_asks_for_none_sees_none(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    each(machines, lambda machine: machine.out(f"docker run -d --name work --network none {TINY} /bin/sleep 900"))
    before = [machine.out(LEFT) for machine in machines]
    run = bench.job("deploys/smoke.py")
    assert run.code == 0, run.printed
    assert run.operations("success") == {} and len(run.operations("no_change")) == 1
    for machine in machines:
        # Who started them: docker's own namespace of containerd.
        assert "/moby/" in machine.out("grep NVIDIA_VISIBLE_DEVICES=all /var/log/gpunode-lab.log")
    # systemd takes the devices that it finds no link to from a container at its next reload.
    each(machines, lambda machine: machine.out("rm /dev/char/195:1"))
    lost = bench.job("deploys/smoke.py")
    assert lost.code != 0
    told = "after `systemctl daemon-reload` a container has lost /dev/nvidia1"
    # Once for each node, and once more for all of them at the end.
    assert lost.printed.count(f"] smoke test: {told}") == len(machines), lost.printed
    each(machines, lambda machine: machine.out("ln -s /dev/nvidia1 /dev/char/195:1"))
    assert [machine.out(LEFT) for machine in machines] == before, "what a person has is left alone, and nothing more"
    each(machines, lambda machine: machine.out("docker rm -f work"))
