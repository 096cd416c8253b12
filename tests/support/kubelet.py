"""A kubelet as its probe tells of it: with kubeadm's file, or with a folder of drop-ins too."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from gpunode.components.runtimes.packages import RuntimePackages
from gpunode.settings import settings_from
from gpunode.settings.kubernetes import KubeletSettings
from gpunode.system.kubelet import Kubelet, parse_kubelet
from tests.support import outcomes
from tests.support.verify import GOOD

FILE, FOLDER = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet.conf.d"
KUBEADM = """# of kubeadm
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd  # as containerd's
clusterDNS: [10.96.0.10]
systemReserved:
  # for sshd
  memory: 1Gi
maxPods: 110
"""


def running(
    *arguments: str,
    file: str = KUBEADM,
    drop_ins: dict[str, str] | None = None,
    pods: int = 0,
    written: str = "",
    version: str = "1.29.15",
) -> Kubelet:
    files = {FILE: file, **(drop_ins or {})}
    lines = [f"kubelet=Kubernetes v{version}", "argument=/usr/bin/kubelet", f"argument=--config={FILE}"]
    lines += [f"argument={each}" for each in arguments]
    lines += [f"file={path} {base64.b64encode(text.encode()).decode()}" for path, text in files.items()]
    lines += [f"pods={pods}", "started=Tue 2026-11-24 10:00:00.000000 UTC", f"written={written}"]
    return parse_kubelet(lines)


def with_folder(**files: str) -> Kubelet:
    found = {f"{FOLDER}/{name}.conf": text for name, text in files.items()}
    return running(f"--config-dir={FOLDER}", drop_ins=found)


def asked(**values: Any) -> KubeletSettings:
    return settings_from({"kubernetes": {"enabled": True, "kubelet": values}}).kubernetes.kubelet


RUNNING = running()


def decided(
    values: dict[str, Any],
    arguments: tuple[str, ...] = (),
    file: str = KUBEADM,
    drop_ins: dict[str, str] | None = None,
    allow: str = "restart",
    names: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return what is decided of a kubelet that runs by these flags and files."""
    data = {"kubernetes": {"enabled": True, "kubelet": values}, "disruption": {"allow": allow}}
    node = replace(GOOD, kubelet=running(*arguments, file=file, drop_ins=drop_ins))
    return outcomes.decided("kubelet", data, node, names)


def preflight(
    data: dict[str, Any],
    arguments: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    version: str = "1.29.3",
    containerd: str | None = "1.7.24",
    names: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return what preflight says of a kubelet that runs by these flags and files, beside this containerd."""
    lines = [f"kubelet=Kubernetes v{version}", "argument=/usr/bin/kubelet", *(f"argument={each}" for each in arguments)]
    if files:
        lines.append("argument=--config=/etc/0")
    lines += [f"file=/etc/{number} {base64.b64encode(text.encode()).decode()}" for number, text in enumerate(files)]
    packages = (("containerd.io", f"{containerd}-1~debian.12~bookworm"),) if containerd else ()
    node = replace(GOOD, kubelet=parse_kubelet(lines), runtime_packages=RuntimePackages(packages))
    return outcomes.preflight("kubelet", data, node, names)
