"""Whose files are changed, what is done under running containers, and what a node's kernel gets.

Real: containerd, runc, systemd, the kernel's parameters (of the node's own network). SIMULATED: NVIDIA's runtime.
"""

from __future__ import annotations

import base64

from tests.molecule.containerd.conftest import CONFIG, Bench, Machine
from tests.support.containerd_files import known_file

CONFIGURE = "Configure containerd: default runtime nvidia"
FILE = "/etc/sysctl.d/90-gpunode-kubernetes.conf"
OTHER = "/srv/other.toml"
UNIT = "/etc/systemd/system/containerd.service.d/20-other-file.conf"
SYSCTLS = ("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables", "net.ipv4.ip_forward")
# What containerd takes for granted, and gpunode writes.
SPARE = "privileged_without_host_devices"


def test_what_takes_no_restart_is_written_under_running_containers_and_what_does_waits(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    machine = machines[2]
    node = machine.node.name
    machine.start_with(known_file("kubeadm", machine.version))
    assert bench.run(node, placement="root").code == 0
    machine.out(f"sed -i /{SPARE}/d {CONFIG}; systemctl restart containerd")
    machine.serves()
    machine.out(f"PATH={machine.folder}:$PATH ctr run --detach --rootfs /srv/gpunode-lab/rootfs work /bin/sleep 900")
    started = machine.started()
    run = bench.run(node, allow="nothing", placement="root")
    assert run.code == 0, run.printed
    assert CONFIGURE in run.operations("success"), run.printed
    before = machine.text()
    assert SPARE in before
    waits = bench.run(node, allow="nothing", placement="root", systemd_cgroup=False)
    assert (waits.code, waits.operations("success")) == (0, {}), waits.printed
    assert "restart pending" in waits.printed
    assert (machine.text(), machine.started()) == (before, started)
    assert "RUNNING" in machine.out(f"{machine.folder}/ctr task ls | grep work")
    machine.out(f"{machine.folder}/ctr task rm -f work; {machine.folder}/ctr container rm work")


def test_of_two_containerds_on_a_node_the_running_unit_s_binary_and_file_are_configured(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    machine = next(machine for machine in machines if machine.folder != "/usr/bin")
    node = machine.node.name
    machine.start_with(known_file("kubeadm", machine.version))
    own = base64.b64encode((known_file("kubeadm", machine.version) or "").encode()).decode()
    starts = f"ExecStart=\\nExecStart={machine.folder}/containerd --config {OTHER}\\n"
    machine.out(
        f"echo {own} | base64 -d > {OTHER}; printf '[Service]\\n{starts}' > {UNIT}; systemctl daemon-reload; "
        "systemctl restart containerd"
    )
    untouched = machine.text()
    # The one that a shell finds is the other one.
    assert "1.6." in machine.out("containerd --version")
    try:
        assert machine.serves() == "ok"
        run = bench.run(node, placement="root")
        assert run.code == 0, run.printed
        fact = machine.fact(bench)
        assert (fact["binary"], fact["config_path"]) == (f"{machine.folder}/containerd", OTHER)
        assert fact["version"].startswith(machine.version)
        assert fact["default_runtime"] == "nvidia" and fact["cri_plugin"] == "ok"
        assert "nvidia-container-runtime" in machine.text(OTHER)
        assert machine.text() == untouched
    finally:
        machine.out(f"rm {UNIT}; systemctl daemon-reload; systemctl restart containerd")


def test_the_kernel_gets_what_kubernetes_needs_now_and_at_every_boot(
    machines: tuple[Machine, ...], bench: Bench
) -> None:
    machine = machines[0]
    node, off = machine.node.name, " ".join(f"{name}=0" for name in SYSCTLS)
    machine.start_with(known_file("kubeadm", machine.version))
    machine.out(f"sysctl -w {off}")
    assert bench.run(node).code == 0
    assert machine.out(f"sysctl -n {' '.join(SYSCTLS)}").split() == ["0", "0", "0"], "nobody asked"
    run = bench.run(node, kubernetes_sysctls=True)
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == {
        "Persist what Kubernetes needs of the kernel", "Set what Kubernetes needs of the kernel",
    }  # fmt: skip
    assert machine.out(f"sysctl -n {' '.join(SYSCTLS)}").split() == ["1", "1", "1"]
    # What systemd does with the file at a boot; with all files it would set the kernel of the lab's machine.
    machine.out(f"sysctl -w {off}; /usr/lib/systemd/systemd-sysctl {FILE}")
    assert machine.out(f"sysctl -n {' '.join(SYSCTLS)}").split() == ["1", "1", "1"]
    assert machine.out("cat /etc/modules-load.d/gpunode-containerd.conf").split()[-2:] == ["overlay", "br_netfilter"]
