"""Debian's containerd asked for beside Docker CE, which it would remove: refused before anything is touched.

Real: apt, dpkg, systemd, Debian's containerd and docker. REPACKAGED: docker-ce, docker-ce-cli and containerd.io, with
the relations of Docker's own (lab/world/docker.yaml).
"""

from __future__ import annotations

from tests.molecule.conftest import command
from tests.molecule.docker.conftest import DOCKER, Bench, Machine

THERE = "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' | sort"


def test_the_distribution_s_containerd_beside_docker_ce_is_refused_and_nothing_is_removed(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    (machine,) = [each for each in machines if each.version == DOCKER]
    before, started = machine.out(THERE), machine.started()
    assert "installed docker-ce " in before and "installed containerd.io " in before
    # What apt would do of itself.
    trial = machine.out("apt-get -s -q install --no-install-recommends containerd")
    assert "Remv docker-ce " in trial and "Remv containerd.io " in trial
    path = bench.inventory(machine.node.name, source="present", containerd="distribution")
    run = command("pyinfra", "-y", "--json", path, "deploys/gpu_node.py")
    assert run.code != 0
    assert "containerd.io, docker-ce" in run.printed
    assert "set containerd.source = 'docker-repository'" in run.printed
    # Without preflight, as where something else has come since: the transaction itself asks apt first.
    asked = '[["apt", {"containerd": null}], {"instead": "set containerd.source = \'docker-repository\'"}]'
    alone = command("pyinfra", "-y", "--json", path, "operations.packages.installed", asked)
    assert alone.code != 0
    assert "containerd would remove" in alone.printed and "docker-ce" in alone.printed, alone.printed
    assert "remedy: “set containerd.source = 'docker-repository'" in alone.printed
    assert (machine.out(THERE), machine.started()) == (before, started)
