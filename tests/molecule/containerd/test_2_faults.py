"""Ways to break it: each ends with the old service running and the reason told. And a file that shadows ours.

Real: containerd, its own check, systemd, the file systems. SIMULATED: NVIDIA's runtime, a link to runc; a service that
ends after its start is killed by a line of its unit's.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.molecule.conftest import tried_before
from tests.molecule.containerd.conftest import CONFIG, Bench, Machine
from tests.support.containerd_files import known_file
from tests.support.messages import unnamed

CRI = 'plugins."io.containerd.grpc.v1.cri"'
OVERRIDE = "/etc/systemd/system/containerd.service.d/50-fault.conf"
# The daemon starts, serves, and is killed a second later, where it has the new configuration.
_ENDS = f"""cat > {OVERRIDE} <<'UNIT'
[Service]
Restart=no
ExecStartPost=/bin/sh -c "grep -q nvidia-container-runtime {CONFIG} || exit 0; (sleep 1; kill -9 $MAINPID) & "
UNIT
systemctl daemon-reload"""
# A key with which the CRI plugin does not load: `config dump` accepts it, and gpunode's editor does not know it.
_AUTHS = "printf '[%s.registry.auths.\"https://a b\"]\\nusername = \"x\"\\n' '{}' >> " + CONFIG


@dataclass(frozen=True)
class Fault:
    """Hold what breaks it, after the daemon has started well with kubeadm's file; what mends it, and the reason.

    `restarted`: the new configuration must be tried to be found wanting, so that the daemon comes back as another one.
    """

    harm: str
    reason: str
    mend: str = ":"
    restarted: bool = False


FAULTS = {
    "an unparsable file": Fault(f"echo 'version = = 2' > {CONFIG}", "the file is not TOML"),
    "a read-only file system": Fault(
        "mount --bind /etc/containerd /etc/containerd; mount -o remount,bind,ro /etc/containerd",
        f"{CONFIG} cannot be written",
        "umount /etc/containerd",
    ),
    "the binary missing": Fault(
        "mv /usr/bin/containerd /usr/bin/containerd.gone",
        "/usr/bin/containerd, which the unit containerd.service runs, is missing",
        "mv /usr/bin/containerd.gone /usr/bin/containerd",
    ),
    "NVIDIA's runtime missing": Fault(
        "rm /usr/bin/nvidia-container-runtime",
        "/usr/bin/nvidia-container-runtime is missing",
        "ln -sf /usr/sbin/runc /usr/bin/nvidia-container-runtime",
    ),
    "a service that ends after its start": Fault(
        _ENDS, "containerd is failed", f"rm {OVERRIDE}; systemctl daemon-reload", restarted=True
    ),
    "a key that the CRI plugin refuses": Fault(
        _AUTHS.format(CRI),
        "containerd refuses the new configuration: invalid plugin config: failed to parse registry url",
    ),
    "a full disk": Fault(
        "cp -a /etc/containerd /tmp/kept; mount -t tmpfs -o size=16k none /etc/containerd; "
        "cp -a /tmp/kept/. /etc/containerd; rm -r /tmp/kept; "
        "cat /dev/zero > /etc/containerd/filler 2>/dev/null || true",
        f"{CONFIG} cannot be written",
        "umount /etc/containerd",
    ),
}


@pytest.fixture
def machine(machines: tuple[Machine, ...]) -> Machine:
    """Return the node with containerd 1.6."""
    return machines[0]


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_ends_with_the_old_service_running_and_the_reason_told(
    name: str, machine: Machine, bench: Bench
) -> None:
    fault = FAULTS[name]
    machine.start_with(known_file("kubeadm", machine.version))
    started = machine.started()
    machine.out(fault.harm)
    file = machine.text()
    try:
        run = bench.run("gpu-1")
        assert run.code == 1, run.printed
        assert fault.reason in run.printed, run.printed
        assert "Traceback" not in run.printed
        assert machine.text() == file
        assert "ActiveState=active" in machine.started()
        assert (machine.started() == started) is not fault.restarted
        if not fault.restarted:
            return
        assert "runs again" in run.printed
        restored = machine.started()
        again = bench.run("gpu-1")
        assert again.code == 1
        assert tried_before(again, "containerd")
        assert machine.started() == restored
    finally:
        machine.out(fault.mend)


def test_no_restart_is_tried_where_the_cri_plugin_refuses_another_program_s_key(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    nodes, images = (machines[0], machines[2]), 'plugins."io.containerd.cri.v1.images"'
    for machine, section in zip(nodes, (CRI, images), strict=True):
        machine.start_with(known_file("kubeadm", machine.version))
        machine.out(f"cp {CONFIG} /tmp/right; {_AUTHS.format(section)}; systemctl restart containerd")
    started = [machine.started() for machine in nodes]
    run = bench.run("gpu-1", "gpu-3")
    assert run.code == 1
    assert unnamed(run.printed, "failed to parse registry url", f"correct registry.auths in {CONFIG}") == []
    assert [machine.started() for machine in nodes] == started
    for machine in nodes:
        machine.out(f"cat /tmp/right > {CONFIG}")
    assert bench.run("gpu-1", "gpu-3").code == 0
    assert [machine.serves() for machine in nodes] == ["ok", "ok"]


def test_a_stale_drop_in_that_shadows_systemd_s_cgroups_is_named_with_its_key_and_nothing_is_changed(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    machine = machines[1]
    stale = "/etc/containerd/conf.d/99-nvidia.toml"
    before = (known_file("kubeadm", machine.version) or "").replace(
        "version = 2\n", 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    )
    section = (known_file("kubeadm", machine.version) or "").replace("SystemdCgroup = true", "SystemdCgroup = false")
    machine.start_with(before)
    machine.out(f"mkdir -p $(dirname {stale}); cat > {stale} <<'FILE'\n{section}\nFILE\nsystemctl restart containerd")
    assert machine.serves() == "ok"
    started = machine.started()
    run = bench.run("gpu-2")
    assert run.code == 1, run.printed
    key = "containerd.runtimes.runc.options.SystemdCgroup"
    assert unnamed(run.printed, stale, f"{key} = false") == []
    assert machine.started() == started
    (drop_in,) = machine.fact(bench)["drop_ins"]
    assert (drop_in["path"], dict(drop_in["says"])[key]) == (stale, "false")
    assert "text" not in drop_in
