"""Every file that people have becomes the right one, under containerd 1.6, 1.7 and 2; the second run does nothing.

Real: containerd of Debian bookworm, trixie and sid, runc, systemd. SIMULATED: NVIDIA's runtime, a link to runc.
"""

from __future__ import annotations

import tomllib

import pytest

from tests.molecule.conftest import thinned
from tests.molecule.containerd.conftest import CONFIG, DROP_IN, Bench, Machine, each
from tests.molecule.containerd.files import comments, foreign
from tests.support.containerd_files import FILES, known_file

WANTED = {"nvidia": (True, "/usr/bin/nvidia-container-runtime"), "runc": (True, None)}
CONFIGURE = "Configure containerd: default runtime nvidia"


@pytest.mark.parametrize("name", thinned(FILES, "empty", "packaged"))
def test_every_file_becomes_the_right_one_and_the_second_run_does_nothing(
    name: str, machines: tuple[Machine, ...], bench: Bench
) -> None:
    each(machines, lambda machine: machine.start_with(known_file(name, machine.version)))
    run = bench.run()
    assert run.code == 0, run.printed
    assert len(run.operations("success")[CONFIGURE]) == len(machines), run.printed
    for machine in machines:
        before = known_file(name, machine.version) or ""
        default, runtimes = machine.runtimes()
        assert default == "nvidia", machine
        assert {key: runtimes[key] for key in WANTED} == WANTED, machine
        assert machine.serves() == "ok"
        after = machine.text()
        assert [line for line in comments(before) if line not in after.splitlines()] == []
        kept = foreign(tomllib.loads(after))
        assert {key: kept.get(key) for key in foreign(tomllib.loads(before))} == foreign(tomllib.loads(before))
        merged = foreign(machine.merged())
        # What the file says of others is what containerd obeys, whichever of the files it stands in.
        assert name != "by hand" or merged[("oom_score",)] == -999
        assert ("crun" in runtimes) == (name == "by hand")
        in_drop_in = machine.version == "2"
        assert machine.out(f"[ -e {DROP_IN} ] && echo yes || true") == ("yes\n" if in_drop_in else "")
    started = [machine.started() for machine in machines]
    again = bench.run()
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    assert [machine.started() for machine in machines] == started


def test_a_changed_comment_restarts_nothing_and_is_no_change(machines: tuple[Machine, ...], bench: Bench) -> None:
    # As after a boot: systemd started the daemon, not a run of gpunode's.
    each(machines, lambda machine: machine.out("systemctl restart containerd"))
    each(machines, lambda machine: machine.serves())
    started = [machine.started() for machine in machines]
    for machine in machines:
        machine.out(f"echo '# no restart' >> {CONFIG}")
    run = bench.run()
    assert (run.code, run.operations("success")) == (0, {}), run.printed
    assert [machine.started() for machine in machines] == started
    assert all("# no restart" in machine.text() for machine in machines)
    # The same file with another value takes the restart.
    for machine in machines:
        machine.out(f"sed -i '1i oom_score = -998' {CONFIG}; sed -i '/^oom_score = -999/d' {CONFIG}")
    run = bench.run()
    assert run.code == 0, run.printed
    assert len(run.operations("success")[CONFIGURE]) == len(machines)
    for machine, before in zip(machines, started, strict=True):
        assert machine.started() != before
        assert machine.merged()["oom_score"] == -998
