"""docker of Debian, from its package to its answer: what takes a reload, what a restart, what is kept, what breaks.

Real: docker.io 20.10 (storage driver vfs), containerd, runc, systemd. SIMULATED: NVIDIA's runtime, a link to runc; a
service that ends after its start is killed by a line of its unit's. The tests follow each other.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, Run, command, inventory_with

CONFIG = "/etc/docker/daemon.json"
CONFIGURE = "Configure docker: default runtime nvidia"
OVERRIDE = "/etc/systemd/system/docker.service.d/50-fault.conf"
STARTED = "systemctl show docker -p ActiveState,MainPID,ExecMainStartTimestampMonotonic"
# Debian's package brings no file, so that `packaged` is `absent`. The driver of kubeadm's example is left out.
FILES = {
    "absent": None,
    "empty": "",
    "kubeadm's": '{\n  "exec-opts": ["native.cgroupdriver=systemd"],\n  "log-driver": "json-file",\n'
    '  "log-opts": {\n    "max-size": "100m"\n  }\n}\n',
    "by hand": '{\n\t"debug": false,\n\t"max-concurrent-downloads": 7,\n\t"live-restore": true,\n'
    '\t"runtimes": {"crun": {"path": "/usr/bin/crun"}},\n\t"labels": ["rack=7"]}',
}


@dataclass(frozen=True)
class Docker:
    """Hold the node, and run docker's part of the main job on it."""

    node: Node
    folder: Path

    def out(self, script: str) -> str:
        done = lab_nodes.run(self.node, script, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def run(self, allow: str = "restart", **asked: object) -> Run:
        settings: dict[str, object] = {
            "driver": {"enabled": False}, "cuda": {"enabled": False}, "disruption": {"allow": allow},
            "docker": {"enabled": True, **asked},
        }  # fmt: skip
        path = Path(inventory_with(self.folder, {self.node.name: settings})).rename(self.folder / "lab.py")
        if not (self.folder / "group_data").exists():
            (self.folder / "group_data").symlink_to(CHECKOUT / "inventories" / "group_data")
        return command("pyinfra", "-y", "--json", str(path), "deploys.docker.docker")

    def start_with(self, text: str | None) -> None:
        """Put a file in place of what is there, and start the daemon anew, by hand."""
        self.out("rm -f /var/lib/gpunode/transactions/docker.json; mkdir -p /etc/docker")
        self.write(text)
        self.out("systemctl reset-failed docker; systemctl restart docker || ! [ -s /etc/docker/daemon.json ]")

    def write(self, text: str | None) -> None:
        encoded = base64.b64encode((text or "").encode()).decode() or "''"
        self.out(f"rm -f {CONFIG}" if text is None else f"echo {encoded} | base64 -d > {CONFIG}")

    def info(self) -> dict[str, Any]:
        """Return what the daemon says of itself."""
        found: dict[str, Any] = json.loads(self.out("docker info --format '{{json .}}'"))
        return found


@pytest.fixture
def docker(nodes: tuple[Node, ...], tmp_path: Path) -> Docker:
    found = Docker(nodes[0], tmp_path)
    found.out("[ -e /usr/bin/nvidia-container-runtime ] || ln -s /usr/sbin/runc /usr/bin/nvidia-container-runtime")
    return found


def test_a_bare_node_gets_docker_with_the_nvidia_runtime_and_the_second_run_does_nothing(docker: Docker) -> None:
    run = docker.run()
    assert run.code == 0, run.printed
    info = docker.info()
    assert (info["DefaultRuntime"], info["CgroupDriver"]) == ("nvidia", "systemd")
    assert info["Runtimes"]["nvidia"]["path"] == "/usr/bin/nvidia-container-runtime"
    started = docker.out(STARTED)
    again = docker.run()
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    assert docker.out(STARTED) == started


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_merged_and_never_replaced(name: str, docker: Docker) -> None:
    # With an empty file docker 20.10 does not start: it does afterwards.
    text = FILES[name]
    docker.start_with(text)
    run = docker.run(source="present")
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == {CONFIGURE}
    before, after = json.loads(text or "{}"), json.loads(docker.out(f"cat {CONFIG}"))
    kept = {key: after.get(key) for key in before if key not in ("runtimes", "exec-opts", "default-runtime")}
    assert kept == {key: value for key, value in before.items() if key in kept}
    assert {**before.get("runtimes", {}), **after["runtimes"]} == after["runtimes"]
    info = docker.info()
    assert (info["DefaultRuntime"], info["CgroupDriver"]) == ("nvidia", "systemd")
    assert info["LiveRestoreEnabled"] is (name == "by hand")
    assert ("crun" in info["Runtimes"]) is (name == "by hand")
    started = docker.out(STARTED)
    again = docker.run(source="present")
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    # Spaces and the order of keys are no difference.
    docker.write(json.dumps(json.loads(docker.out(f"cat {CONFIG}")), sort_keys=True))
    assert docker.run(source="present").operations("success") == {}
    assert docker.out(STARTED) == started


def test_another_default_runtime_takes_a_reload_and_the_daemon_is_the_same_process(docker: Docker) -> None:
    docker.start_with('{"default-runtime": "runc", "exec-opts": ["native.cgroupdriver=systemd"]}')
    started = docker.out(STARTED)
    run = docker.run(source="present")
    assert run.code == 0, run.printed
    assert "docker reads its file again" in run.printed
    assert docker.info()["DefaultRuntime"] == "nvidia"
    assert docker.out(STARTED) == started
    # Both side by side, the other way round.
    assert docker.run(source="present", default_runtime="runc").code == 0
    info = docker.info()
    assert info["DefaultRuntime"] == "runc" and "nvidia" in info["Runtimes"]
    assert docker.out(STARTED) == started


def test_containers_that_a_restart_would_end_are_left_alone_and_live_restore_keeps_them(docker: Docker) -> None:
    docker.start_with('{"exec-opts": ["native.cgroupdriver=cgroupfs"]}')
    docker.out("docker rm -f work 2>/dev/null; tar c -C /srv/gpunode-lab/rootfs . | docker import - tiny")
    # Its own cgroup namespace: a node that is itself a container has no cgroups to show to one within it.
    docker.out("docker run -d --cgroupns private --name work tiny /bin/sleep 900")
    running = docker.out("docker inspect -f '{{.State.Pid}} {{.State.StartedAt}}' work")
    started = docker.out(STARTED)
    run = docker.run(source="present", allow="nothing")
    assert run.code == 0, run.printed
    assert "restart pending" in run.printed and run.operations("success") == {}
    assert docker.out(STARTED) == started
    docker.write('{"exec-opts": ["native.cgroupdriver=cgroupfs"], "live-restore": true}')
    docker.out("systemctl reload docker; sleep 1")
    run = docker.run(source="present", allow="nothing")
    assert run.code == 0, run.printed
    assert "live-restore keeps them running" in run.printed
    assert docker.out(STARTED) != started
    assert docker.info()["CgroupDriver"] == "systemd"
    assert docker.out("docker inspect -f '{{.State.Pid}} {{.State.StartedAt}}' work") == running
    docker.out("docker rm -f work")


_ENDS = f"""mkdir -p $(dirname {OVERRIDE}); cat > {OVERRIDE} <<'UNIT'
[Service]
Restart=no
ExecStartPost=/bin/sh -c "grep -q nvidia-container-runtime {CONFIG} || exit 0; (sleep 1; kill -9 $MAINPID) & "
UNIT
systemctl daemon-reload"""
FAULTS = {
    "an unparsable file": (f"echo '{{' > {CONFIG}", "the file is not JSON", ":"),
    "a read-only file system": (
        "mount --bind /etc/docker /etc/docker; mount -o remount,bind,ro /etc/docker",
        f"{CONFIG} cannot be written",
        "umount /etc/docker",
    ),
    "the binary missing": (
        "mv /usr/sbin/dockerd /usr/sbin/dockerd.gone",
        "/usr/sbin/dockerd, which the unit docker.service runs, is missing",
        "mv /usr/sbin/dockerd.gone /usr/sbin/dockerd",
    ),
    "a service that ends after its start": (_ENDS, "docker is failed", f"rm {OVERRIDE}; systemctl daemon-reload"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_ends_with_the_old_service_running_and_the_reason_told(name: str, docker: Docker) -> None:
    harm, reason, mend = FAULTS[name]
    docker.start_with('{"exec-opts": ["native.cgroupdriver=cgroupfs"], "labels": ["rack=7"]}')
    docker.out(harm)
    file = docker.out(f"cat {CONFIG}")
    try:
        run = docker.run(source="present")
        assert run.code == 1 and "Traceback" not in run.printed, run.printed
        assert reason in run.printed, run.printed
        assert docker.out(f"cat {CONFIG}") == file
        assert docker.info()["DefaultRuntime"] == "runc"
    finally:
        docker.out(mend)


def test_a_flag_of_the_unit_s_own_that_the_file_would_repeat_is_named_before_anything_is_touched(
    docker: Docker,
) -> None:
    docker.start_with(None)
    docker.out(
        "echo 'DOCKER_OPTS=--exec-opt=native.cgroupdriver=cgroupfs' >> /etc/default/docker; systemctl restart docker"
    )
    started = docker.out(STARTED)
    run = docker.run(source="present")
    assert run.code == 1
    assert "dockerd is started with --exec-opt" in run.printed, run.printed
    assert docker.out(STARTED) == started
    docker.out("sed -i /DOCKER_OPTS=--exec/d /etc/default/docker; systemctl restart docker")
