"""Files that people have become the right ones, in the root file and by a drop-in; a second run does nothing.

Real: containerd of Debian bookworm, trixie and sid, runc, systemd. SIMULATED: NVIDIA's runtime, a link to runc.
tests/unit/test_real_containerd.py starts these programs with many more files.
"""

from __future__ import annotations

from tests.molecule.containerd.conftest import CONFIG, DROP_IN, Bench, Machine, each
from tests.support.containerd_files import known_file

NVIDIA = "/usr/bin/nvidia-container-runtime"
CONFIGURE = "Configure containerd: default runtime {}"
# Version -> the file that its node has.
FILES = {"1.6": "by hand", "1.7": "absent", "2": "kubeadm"}


def test_a_file_becomes_the_right_one_and_keeps_its_comments_and_foreign_values(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    before = {machine: known_file(FILES[machine.version], machine.version) for machine in machines}
    each(machines, lambda machine: machine.start_with(before[machine]))
    run = bench.run()
    assert run.code == 0, run.printed
    assert len(run.operations("success")[CONFIGURE.format("nvidia")]) == len(machines), run.printed
    for machine in machines:
        default, runtimes = machine.runtimes()
        assert (default, runtimes["nvidia"], runtimes["runc"]) == ("nvidia", (True, NVIDIA), (True, None)), machine
        assert machine.serves() == "ok"
        lines = machine.text().splitlines()
        assert [line for line in (before[machine] or "").splitlines() if "#" in line and line not in lines] == []
        assert machine.out(f"[ -e {DROP_IN} ] && echo yes || true") == ("yes\n" if machine.version == "2" else "")
    assert machines[0].merged()["oom_score"] == -999
    assert machines[0].runtimes()[1]["crun"] == (False, "/usr/bin/crun")


def test_a_changed_comment_restarts_nothing_and_a_changed_value_does(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    # As after a boot: systemd started the daemon, not a run of gpunode's.
    each(machines, lambda machine: machine.out(f"systemctl restart containerd; echo '# no restart' >> {CONFIG}"))
    each(machines, lambda machine: machine.serves())
    started = [machine.started() for machine in machines]
    run = bench.run()
    assert (run.code, run.operations("success")) == (0, {}), run.printed
    assert [machine.started() for machine in machines] == started
    assert all("# no restart" in machine.text() for machine in machines)
    each(machines, lambda machine: machine.out(f"sed -i '/^oom_score/d; 1i oom_score = -998' {CONFIG}"))
    run = bench.run()
    assert run.code == 0, run.printed
    assert len(run.operations("success")[CONFIGURE.format("nvidia")]) == len(machines)
    for machine, earlier in zip(machines, started, strict=True):
        assert machine.started() != earlier
        assert machine.merged()["oom_score"] == -998


def test_runtimes_move_to_a_drop_in_and_back(machines: tuple[Machine, ...], bench: Bench) -> None:
    machine = machines[1]
    for placement, cgroup in (("drop-in", True), ("root", False)):
        run = bench.run(machine.node.name, default_runtime="runc", placement=placement, systemd_cgroup=cgroup)
        assert run.code == 0, run.printed
        assert CONFIGURE.format("runc") in run.operations("success"), run.printed
        default, runtimes = machine.runtimes()
        assert (default, runtimes["nvidia"]) == ("runc", (cgroup, NVIDIA))
        assert machine.merged()["oom_score"] == -998
        assert machine.out(f"[ -e {DROP_IN} ] && echo yes || true") == ("yes\n" if placement == "drop-in" else "")
