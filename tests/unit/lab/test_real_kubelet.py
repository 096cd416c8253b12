"""What a node with a real kubelet is given: another user of the same server, and which devices there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpunode.lab.cluster import control_plane, devices, real_kubelet
from gpunode.lab.cluster.programs import CNI, KUBELET, PLUGIN
from gpunode.lab.nodes import Node

pytestmark = pytest.mark.simulated

NODE = Node("gpu-1", "gpunode-a-gpu-1", "10.89.0.11", "h100-80gb", 2, "a")


@pytest.mark.pure
@given(st.dictionaries(st.from_regex(r"GPU-[0-9a-f]{8}", fullmatch=True), st.booleans(), max_size=16))
def test_each_device_has_a_line_by_which_the_plugin_knows_it(of: dict[str, bool]) -> None:
    lines = [line.split() for line in real_kubelet.devices_file(of).splitlines()]
    assert {uuid: health == "healthy" for uuid, health, _ in lines} == of
    assert [path for _, _, path in lines] == [f"/dev/nvidia{number}" for number in range(len(of))]


def test_the_node_gets_programs_images_and_a_kubeconfig_without_the_administrators_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, folder, made = tmp_path / "programs", tmp_path / "cluster", tmp_path / "made"
    for name in (KUBELET, PLUGIN, *(f"cni/{each}" for each in CNI)):
        (programs / name).parent.mkdir(parents=True, exist_ok=True)
        (programs / name).write_text("a program")
    folder.mkdir()
    made.mkdir()
    (folder / control_plane.CLIENT_CERTIFICATE).write_text("certificate")
    (folder / "tokens.csv").write_text('secret,admin,admin,"system:masters"\nother,kubelet,kubelet,"system:nodes"\n')
    server = {"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}
    user = {"name": "admin", "user": {"token": "secret"}}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({"clusters": [server], "users": [user], "current-context": "lab"}))
    monkeypatch.setattr(devices, "asked", lambda node: (devices.Gpu("GPU-a", False), devices.Gpu("GPU-b", False)))
    real_kubelet._fill(made, folder, NODE, programs, kubeconfig)
    text = (made / "kubelet.conf").read_text()
    assert "secret" not in text and yaml.safe_load(text)["users"][0]["user"] == {"token": "other"}
    assert yaml.safe_load(text)["clusters"] == [server]
    assert (made / "devices").read_text() == "GPU-a healthy /dev/nvidia0\nGPU-b healthy /dev/nvidia1\n"
    assert "--node-labels=gpunode-lab=a " in (made / "kubelet.service").read_text()
    there = {path.name for path in made.iterdir()}
    assert {"kubelet", "bridge", "loopback", "host-local", "pause.tar", "device-plugin.tar", "begin.sh"} <= there
