"""The kubelet's configuration: what its flags, file and drop-ins come to, and what of it a node is refused for."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.probe_output import checked
from gpunode.base.reading import ParseError
from gpunode.components.runtime_packages import RuntimePackages
from gpunode.facts.kubelet import Kubelet as Fact
from gpunode.node.preflight import refusals
from gpunode.node.preflight.kubelet import kubelet_cautions, kubelet_refusals
from gpunode.settings import settings_from
from gpunode.system.kubelet import NOTED, Kubelet, KubeletConfiguration, parse_kubelet
from tests.support.preflight import machine

pytestmark = pytest.mark.pure

KUBEADM = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
systemReserved: {memory: 1Gi}
evictionHard: {memory.available: 200Mi}
"""


def _read(*arguments: str, files: tuple[str, ...] = (), version: str = "v1.29.3") -> Kubelet:
    lines = [f"kubelet=Kubernetes {version}", *(f"argument={each}" for each in ("/usr/bin/kubelet", *arguments))]
    encoded = (base64.b64encode(text.encode()).decode() for text in files)
    return parse_kubelet([*lines, *(f"file=/etc/{number} {text}" for number, text in enumerate(encoded))])


def _configured(*arguments: str, files: tuple[str, ...] = ()) -> KubeletConfiguration:
    found = _read(*arguments, files=files).configuration
    assert found is not None
    return found


def test_a_kubelet_that_says_nothing_has_the_kubelet_s_own_defaults() -> None:
    found = _configured()
    assert (found.cgroup_driver, found.cpu_manager_policy, found.topology_manager_policy) == (
        "cgroupfs",
        "none",
        "none",
    )
    assert (found.system_reserved, found.kube_reserved, found.eviction_hard, found.file) == ((), (), (), None)


def test_a_drop_in_counts_before_the_file_and_a_flag_before_both() -> None:
    drop_in = "cgroupDriver: cgroupfs\nsystemReserved: {cpu: 500m}\ncpuManagerPolicy: static\n"
    found = _configured("--config=/etc/0", files=(KUBEADM, drop_in))
    assert (found.cgroup_driver, found.cpu_manager_policy, found.file) == ("cgroupfs", "static", "/etc/0")
    assert found.system_reserved == (("cpu", "500m"), ("memory", "1Gi"))
    assert found.eviction_hard == (("memory.available", "200Mi"),)
    flags = ("--cgroup-driver", "systemd", "--system-reserved=memory=2Gi,cpu=1", "--eviction-hard=memory.available<1Gi")
    found = _configured("--config", "/etc/0", *flags, files=(KUBEADM, drop_in))
    assert (found.cgroup_driver, found.file) == ("systemd", "/etc/0")
    assert found.system_reserved == (("cpu", "1"), ("memory", "2Gi"))
    assert found.eviction_hard == (("memory.available", "1Gi"),)


def test_what_no_kubelet_could_read_or_none_that_runs_has_no_configuration() -> None:
    assert _read("--config=/etc/0", files=("cgroupDriver: [",)).configuration is None
    assert parse_kubelet(["kubelet=Kubernetes v1.29.3"]) == Kubelet("1.29.3", None)
    assert parse_kubelet([]) == Kubelet(None, None)
    with pytest.raises(ParseError):
        parse_kubelet(["argument=kubelet", "file=/etc/0 *"])


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=30)), st.text())
def test_any_arguments_and_any_file_are_read_or_have_no_configuration(arguments: list[str], text: str) -> None:
    found = _read(*arguments, files=(text.encode(errors="replace").decode(),)).configuration
    assert found is None or isinstance(found.cgroup_driver, str)


def test_the_probe_reads_a_kubelet_that_runs_its_file_and_its_drop_ins_in_order(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(KUBEADM)
    (tmp_path / "conf.d").mkdir()
    for name, policy in (("20-b.conf", "static"), ("10-a.conf", "none"), ("README", "wrong")):
        (tmp_path / "conf.d" / name).write_text(f"cpuManagerPolicy: {policy}\n")
    flags = (f"--config={tmp_path}/config.yaml", "--config-dir", f"{tmp_path}/conf.d")
    kubelet = subprocess.Popen(["sh", "-c", "read line", "kubelet", *flags], stdin=subprocess.PIPE)
    try:
        _program(tmp_path / "kubelet", "echo 'Kubernetes v1.29.3'")
        shown = f"Names=kubelet.service\\nLoadState=loaded\\nMainPID={kubelet.pid}"
        # Older than its files, by which it was started all the same.
        shown += "\\nActiveEnterTimestamp=Tue 2020-11-24 10:00:00.000000 UTC"
        _program(tmp_path / "systemctl", f"printf '{shown}\\n'")
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        began = Path(f"/proc/{kubelet.pid}/stat").read_text().rpartition(")")[2].split()[19]
        read = [tmp_path / "config.yaml", tmp_path / "conf.d/10-a.conf", tmp_path / "conf.d/20-b.conf"]
        digests = [f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path}" for path in read]
        (tmp_path / "noted").write_text("".join(f"{line}\n" for line in (f"{kubelet.pid} {began}", *digests)))
        command = Fact().command().replace(NOTED, str(tmp_path / "noted"))
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
    finally:
        kubelet.communicate(b"\n", timeout=10)
    found = parse_kubelet(checked(done.stdout.splitlines()))
    assert found.version == "1.29.3" and found.configuration is not None
    assert (found.configuration.cgroup_driver, found.configuration.cpu_manager_policy) == ("systemd", "static")
    assert found.configuration.file == f"{tmp_path}/config.yaml" and not found.stale
    lines = checked(done.stdout.splitlines())
    assert parse_kubelet([line for line in lines if not line.startswith("noted=")]).stale


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("said", "settings", "versions", "refused"),
    [
        ("systemd", {}, ("1.29.3", "1.7.24"), False),
        ("cgroupfs", {}, ("1.29.3", "1.7.24"), True),
        ("cgroupfs", {"containerd": {"systemd_cgroup": False}}, ("1.29.3", "1.7.24"), False),
        ("systemd", {"containerd": {"systemd_cgroup": False}}, ("1.29.3", "1.7.24"), True),
        # containerd 2 says which it is, and a kubelet of 1.31 asks.
        ("cgroupfs", {}, ("1.31.0", "2.0.0"), False),
        ("cgroupfs", {}, ("1.31.0", "1.7.24"), True),
        # Of a tarball, say: who asks is told.
        ("cgroupfs", {}, ("1.31.0", None), False),
        ("cgroupfs", {}, ("1.29.3", None), True),
        ("cgroupfs", {"containerd": {"enabled": False}}, ("1.29.3", "1.7.24"), False),
    ],
)
def test_a_cgroup_driver_that_differs_from_the_runtime_s_is_refused(
    said: str, settings: dict[str, object], versions: tuple[str, str | None], refused: bool
) -> None:
    kubelet = _read("--config=/etc/0", files=(f"cgroupDriver: {said}",), version=f"v{versions[0]}")
    packages = RuntimePackages((("containerd.io", f"{versions[1]}-1~debian.12~bookworm"),) if versions[1] else ())
    node = replace(machine(), kubelet=kubelet, runtime_packages=packages)
    found = list(kubelet_refusals(settings_from(settings), node))
    assert len(found) == refused
    for refusal in found:
        assert "/etc/0" in refusal.remedy and said in refusal.reason
    assert [item in refusals(settings_from(settings), node) for item in found] == [True] * len(found)
    assert not list(kubelet_refusals(settings_from(settings), replace(node, kubelet=Kubelet(versions[0]))))


@pytest.mark.parametrize(("policy", "passes_on", "told"), [("static", None, 1), ("static", True, 0), ("none", None, 0)])
def test_a_static_cpu_manager_without_passed_device_specs_is_a_caution(
    policy: str, passes_on: bool | None, told: int
) -> None:
    asked = settings_from({"kubernetes": {"enabled": True}, "device_plugin": {"pass_device_specs": passes_on}})
    cautions = list(kubelet_cautions(asked, _read(f"--cpu-manager-policy={policy}")))
    assert len(cautions) == told
    assert not list(kubelet_cautions(settings_from({}), _read(f"--cpu-manager-policy={policy}")))


def test_the_remedy_is_where_the_driver_is_said_and_another_runtime_s_kubelet_is_left_alone() -> None:
    def refused(*flags: str, files: tuple[str, ...] = (), settings: dict[str, Any] | None = None) -> list[str]:
        node = replace(machine(), kubelet=_read(*flags, files=files))
        return [each.remedy for each in kubelet_refusals(settings_from(settings or {}), node)]

    (remedy,) = refused("--config=/etc/0", files=("cgroupDriver: systemd", "cgroupDriver: cgroupfs"))
    assert remedy.startswith("set cgroupDriver: systemd in /etc/1 and")
    (remedy,) = refused("--config=/etc/0", "--cgroup-driver=cgroupfs", files=("cgroupDriver: systemd",))
    assert remedy.startswith("set --cgroup-driver=systemd where the kubelet starts")
    assert len(refused()) == 1 and refused("--container-runtime-endpoint=unix:///run/cri-dockerd.sock") == []
    crio = {"containerd": {"enabled": False}, "crio": {"enabled": True}}
    (remedy,) = refused("--container-runtime-endpoint=unix:///var/run/crio/crio.sock", settings=crio)
    assert "crio.systemd_cgroup = False" in remedy
