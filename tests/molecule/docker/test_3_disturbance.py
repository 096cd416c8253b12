"""What takes a reload, what a restart, and what becomes of the containers that run."""

from __future__ import annotations

from tests.molecule.docker.conftest import DOCKER, TINY, Bench, Machine, each

RUNS = "docker inspect -f '{{.State.Pid}} {{.State.StartedAt}}' work"


def test_another_default_runtime_takes_a_reload_and_the_daemon_is_the_same_process(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    text = '{"default-runtime": "runc", "exec-opts": ["native.cgroupdriver=systemd"]}'
    each(machines, lambda machine: machine.start_with(text))
    started = [machine.started() for machine in machines]
    run = bench.run()
    assert run.code == 0, run.printed
    assert [machine.info()["DefaultRuntime"] for machine in machines] == ["nvidia"] * len(machines)
    assert [machine.started() for machine in machines] == started
    # Both side by side, the other way round.
    assert bench.run(default_runtime="runc").code == 0
    for machine in machines:
        info = machine.info()
        assert info["DefaultRuntime"] == "runc" and "nvidia" in info["Runtimes"]
    assert [machine.started() for machine in machines] == started


def test_cdi_takes_a_restart_and_is_on_and_off_as_it_is_asked(machines: tuple[Machine, ...], bench: Bench) -> None:
    (machine,) = (machine for machine in machines if machine.version == DOCKER)
    for asked in (True, False):
        started = machine.started()
        run = bench.run(machine, cdi=asked)
        assert run.code == 0, run.printed
        assert bool(machine.info()["CDISpecDirs"]) is asked
        assert machine.started() != started
        assert bench.run(machine, cdi=asked).operations("success") == {}


def test_containers_that_a_restart_would_end_are_left_alone_and_live_restore_keeps_them(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    old = '{"exec-opts": ["native.cgroupdriver=cgroupfs"]'
    each(machines, lambda machine: machine.start_with(f"{old}}}"))
    # Its own cgroup namespace: a node that is itself a container has no cgroups to show to one within it.
    work = f"docker run -d --cgroupns private --name work {TINY} /bin/sleep 900"
    each(machines, lambda machine: machine.out(work))
    running = [machine.out(RUNS) for machine in machines]
    started = [machine.started() for machine in machines]
    run = bench.run(allow="nothing")
    assert run.code == 0, run.printed
    assert "restart pending" in run.printed and run.operations("success") == {}
    assert [machine.started() for machine in machines] == started
    each(machines, lambda machine: machine.write(f'{old}, "live-restore": true}}'))
    each(machines, lambda machine: machine.out("systemctl reload docker; sleep 1"))
    run = bench.run(allow="nothing")
    assert run.code == 0, run.printed
    for machine, before in zip(machines, started, strict=True):
        assert machine.started() != before
        assert machine.info()["CgroupDriver"] == "systemd"
    assert [machine.out(RUNS) for machine in machines] == running
    each(machines, lambda machine: machine.out("docker rm -f work"))
