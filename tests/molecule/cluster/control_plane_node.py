"""A lab node as a control-plane host: a real kube-scheduler as a static pod, whose kubelet is SIMULATED.

The simulated kubelet reads the manifests' folder as a kubelet does (no name that begins with a dot), ends the
scheduler's process and starts the manifest's command anew where the manifest has changed, and again where it ends. No
container is made: a file that the manifest does not mount is refused in its place. The scheduler's API server does not
answer it from within the node, which it bears.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.access import ssh_command
from gpunode.lab.cluster.programs import programs
from tests.molecule.conftest import CHECKOUT, LAB

MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
TEXT = """apiVersion: v1
kind: Pod
metadata:
  name: kube-scheduler
  namespace: kube-system
spec:
  containers:
  - command:
    - /usr/local/bin/kube-scheduler
    # asked for
    - --bind-address=127.0.0.1
    - --kubeconfig=/etc/kubernetes/scheduler.conf
    - --leader-elect=false
    - --port=0
    image: registry.k8s.io/kube-scheduler:v1.20.2
    livenessProbe:
      httpGet: {host: 127.0.0.1, path: /healthz, port: 10259, scheme: HTTPS}
    name: kube-scheduler
    volumeMounts:
    - mountPath: /etc/kubernetes/scheduler.conf
      name: kubeconfig
      readOnly: true
  hostNetwork: true
  volumes:
  - hostPath: {path: /etc/kubernetes/scheduler.conf, type: FileOrCreate}
    name: kubeconfig
"""
_KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:9"}}]
contexts: [{name: lab, context: {cluster: lab, user: scheduler}}]
users: [{name: scheduler, user: {token: none}}]
current-context: lab
"""
_KUBELET = r'''#!/usr/bin/python3
"""SIMULATED kubelet: see tests/molecule/cluster/control_plane_node.py."""
import os, re, subprocess, time

FOLDER, LOGS = "/etc/kubernetes/manifests", "/var/log/pods/kube-system_kube-scheduler-simulated/kube-scheduler"
os.makedirs(LOGS, exist_ok=True)
seen = process = None
while True:
    names = sorted(name for name in os.listdir(FOLDER) if not name.startswith("."))
    texts = [open(f"{FOLDER}/{name}").read() for name in names]
    ended = process is not None and process.poll() is not None
    if texts != seen or ended:
        if process is not None and not ended:
            process.terminate()
            process.wait()
        time.sleep(1)
        process, seen = None, texts
        for text in texts:
            listed = re.search(r"^  - command:\n((?:    (?:- |#).*\n)+)", text, re.M)[1]
            words = re.findall(r"^    - (\S+)", listed, re.M)
            mounted = re.findall(r"mountPath: (\S+)", text)
            files = [word.partition("=")[2] for word in words if re.match("--(kube)?config=", word)]
            missing = [file for file in files if file not in mounted]
            with open(f"{LOGS}/0.log", "a") as log:
                if missing:
                    print("SIMULATED kubelet: not mounted:", *missing, file=log)
                    continue
                process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
    time.sleep(0.3)
'''


def begin(node: lab_nodes.Node) -> None:
    """Make a control-plane host of a node, and return once its scheduler answers that it is well."""
    put(node, "/usr/local/bin/kube-scheduler", (programs(print) / "kube-scheduler").read_bytes(), "755")
    put(node, "/usr/local/bin/simulated-kubelet", _KUBELET.encode(), "755")
    put(node, "/etc/kubernetes/scheduler.conf", _KUBECONFIG.encode(), "600")
    put(node, MANIFEST, TEXT.encode(), "600")
    start = (
        "systemctl stop simulated-kubelet 2>/dev/null; systemctl reset-failed simulated-kubelet 2>/dev/null; "
        "systemd-run --quiet --unit=simulated-kubelet /usr/local/bin/simulated-kubelet && "
        "for n in $(seq 60); do curl -ksf https://127.0.0.1:10259/healthz && exit 0; sleep 0.5; done; exit 1"
    )
    done = lab_nodes.run(node, start, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def end(node: lab_nodes.Node) -> None:
    """Take all of it away again."""
    lab_nodes.run(node, "systemctl stop simulated-kubelet; rm -rf /etc/kubernetes /usr/local/bin/kube-scheduler")


def put(node: lab_nodes.Node, path: str, content: bytes, mode: str) -> None:
    """Write a file on a node."""
    folder = Path(CHECKOUT / ".lab" / LAB)
    # In a folder of its own: a kubelet takes every file of the manifests' for a pod.
    words = f"mkdir -p $(dirname {path}) && cat > /root/.put && chmod {mode} /root/.put && mv /root/.put {path}"
    subprocess.run([*ssh_command(folder, node.address), words], input=content, check=True, timeout=300)


def mended(node: lab_nodes.Node, text: str) -> None:
    """Write the scheduler's manifest by hand, and return once the kubelet has taken it and the scheduler is well."""
    before = lab_nodes.run(node, "pgrep -x kube-scheduler").stdout
    put(node, MANIFEST, text.encode(), "600")
    well = 'now=$(pgrep -x kube-scheduler) && [ "$now" != "$before" ] && curl -ksf https://127.0.0.1:10259/healthz'
    command = f"before='{before.strip()}'; for n in $(seq 150); do {well} && exit 0; sleep 0.2; done; exit 1"
    done = lab_nodes.run(node, command, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def command_lines(node: lab_nodes.Node) -> list[str]:
    """Return the command lines of the schedulers that run on a node."""
    return lab_nodes.run(node, "pgrep -a -x kube-scheduler | cut -d' ' -f2-").stdout.splitlines()


def manifest(node: lab_nodes.Node) -> str:
    """Return the scheduler's manifest."""
    return lab_nodes.run(node, f"cat {MANIFEST}").stdout
