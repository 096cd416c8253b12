"""A real kubelet on a lab's node, registered in the lab's own cluster: containers, cgroups and pods' network are real.

What it registers is a real Node object, which becomes Ready by itself. The node's GPUs are SIMULATED: the lab's own
device plugin offers them (device_plugin/), by a file on the node that says which there are and which are healthy.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpunode.lab import access, nodes, processes
from gpunode.lab.cluster import devices, pause_image
from gpunode.lab.cluster.control_plane import CLIENT_CERTIFICATE, kubelet_token
from gpunode.lab.cluster.kubectl import asked
from gpunode.lab.cluster.programs import CNI, KUBELET, PLUGIN
from gpunode.lab.cluster.registration import LABEL
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Node
from gpunode.lab.podman import podman
from gpunode.lab.state import lab_folder

Report = Callable[[str], None]

# The plugin's image, which gpunode's own manifest takes with `device_plugin.image` and `image_tag`.
IMAGE, TAG = "gpunode-lab.invalid/device-plugin", "simulated"
DEVICES = "/var/lib/kubelet/device-plugins/gpunode-lab/devices"
_FOLDER = "/usr/lib/gpunode-lab-kubelet"
_FILES = Path(__file__).parent / "node_files"
_TUNNEL = "tunnel-"
_READY_SECONDS = 90.0
_BEGIN_SECONDS = 120


def begin(folder: Path, node: Node, programs: Path, kubeconfig: Path, report: Report) -> None:
    """Start a kubelet on a node that has containerd, and return once its Node object is Ready; raise LabError.

    + folder: the cluster's
    + programs: folder of `programs.node_programs`
    + kubeconfig: the administrator's

    One that is there and ready is kept.
    """
    _tunnel(folder, node, kubeconfig)
    if not is_ready(kubeconfig, node):
        _check(node)
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as made:
            _fill(Path(made), folder, node, programs, kubeconfig)
            nodes.run(node, f"rm -rf {_FOLDER}")
            podman("cp", made, f"{node.container}:{_FOLDER}", timeout=_BEGIN_SECONDS)
        done = nodes.run(node, f"sh {_FOLDER}/begin.sh", timeout=_BEGIN_SECONDS)
        if done.returncode:
            raise LabError(f"{node.name}: its kubelet does not start: {(done.stdout + done.stderr)[-600:]}")
        _wait(kubeconfig, node)
        report(
            f"cluster: {node.name} has a real kubelet, which is Ready, {time.monotonic() - started:.0f} s; its GPUs, "
            f"and who offers them, are SIMULATED"
        )


def end_tunnels(folder: Path) -> None:
    """End what leads the nodes to the API server; the kubelets end with their nodes."""
    for path in folder.glob(f"{_TUNNEL}*.json"):
        processes.stop(folder, path.stem)


def is_ready(kubeconfig: Path, node: Node) -> bool:
    """Say whether the node's kubelet says that it is ready, and the cluster has heard that."""
    for item in asked(kubeconfig, "get", "nodes")["items"]:
        if item["metadata"]["name"] == node.name:
            conditions = {each["type"]: each["status"] for each in item["status"].get("conditions") or ()}
            return conditions.get("Ready") == "True"
    return False


def devices_file(of: Mapping[str, bool]) -> str:
    """Return the text of the file that the lab's device plugin goes by: UUID -> whether that GPU is healthy."""
    lines = (
        f"{uuid} {'healthy' if healthy else 'unhealthy'} /dev/nvidia{number}\n"
        for number, (uuid, healthy) in enumerate(of.items())
    )
    return "".join(lines)


def _check(node: Node) -> None:
    if nodes.run(node, "[ -e /etc/containerd/config.toml ] && systemctl -q is-active containerd").returncode:
        raise LabError(
            f"{node.name}: a real kubelet needs containerd, which does not run there: make the lab's nodes with "
            "--converged, or run deploys/gpu_node.py on them, and ask again"
        )


def _fill(made: Path, folder: Path, node: Node, programs: Path, kubeconfig: Path) -> None:
    """Put everything into a folder that the node takes."""
    for path in _FILES.iterdir():
        shutil.copy(path, made)
    # podman takes the folder's own mode along.
    for path in (made, made / "in-own-cgroups.sh", made / "containerd.sh"):
        path.chmod(0o755)
    for name in (KUBELET, *(f"cni/{name}" for name in CNI)):
        shutil.copy2(programs / name, made)
    (made / "pause.tar").write_bytes(pause_image.archive())
    plugin = pause_image.archive_of(f"{IMAGE}:{TAG}", PLUGIN, (programs / PLUGIN).read_bytes())
    (made / "device-plugin.tar").write_bytes(plugin)
    unit = made / "kubelet.service"
    unit.write_text(unit.read_text(encoding="utf-8").replace("@LABELS@", f"{LABEL}={node.lab}"), encoding="utf-8")
    shutil.copy(folder / CLIENT_CERTIFICATE, made / "api-server.crt")
    (made / "kubelet.conf").write_text(_kubeconfig(kubeconfig, kubelet_token(folder)), encoding="utf-8")
    (made / "devices").write_text(devices_file(dict.fromkeys(_uuids(node), True)), encoding="utf-8")


def _uuids(node: Node) -> tuple[str, ...]:
    try:
        return tuple(gpu.uuid for gpu in devices.asked(node))
    except devices.NoDevicesError:
        return ()


def _kubeconfig(administrator: Path, token: str) -> str:
    """Return the kubelet's own: the same server, another user."""
    content: dict[str, Any] = yaml.safe_load(administrator.read_text(encoding="utf-8"))
    content["users"] = [{"name": "kubelet", "user": {"token": token}}]
    content["contexts"] = [{"name": "lab", "context": {"cluster": "lab", "user": "kubelet"}}]
    return yaml.safe_dump(content, sort_keys=False)


def _tunnel(folder: Path, node: Node, kubeconfig: Path) -> None:
    """Lead the node's loopback to the API server's port, which listens on this machine's loopback alone."""
    server = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]["server"]
    listening = server.rpartition(":")[2]
    *words, target = access.ssh_command(lab_folder(node.lab), node.address, port=node.port)
    leads = ("-N", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
    processes.start(
        folder, f"{_TUNNEL}{node.name}", [*words, *leads, "-R", f"127.0.0.1:{listening}:127.0.0.1:{listening}", target]
    )


def _wait(kubeconfig: Path, node: Node) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if is_ready(kubeconfig, node):
            return
        time.sleep(0.5)
    try:
        said = nodes.run(node, "journalctl -u kubelet -n 5 --no-pager -o cat", timeout=20).stdout
    except (LabError, subprocess.SubprocessError) as error:
        said = str(error)
    raise LabError(f"{node.name}: its kubelet was not Ready within {_READY_SECONDS:.0f} seconds. It said:\n{said}")
