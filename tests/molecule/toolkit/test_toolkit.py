"""One node, from nvidia-docker2 to a held toolkit with CDI. Real: the toolkit, containerd. SIMULATED: GPUs."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.base import tables, versions
from gpunode.components.runtimes.toolkit.configuration import desired_keys
from gpunode.lab.go_programs import programs
from gpunode.lab.nodes import Node
from gpunode.settings import ToolkitSettings
from tests.molecule.conftest import Run, command, inventory_with, out, write

pytestmark = pytest.mark.life

MIRROR = "http://127.0.0.1:8900"
CONFIG = "/etc/nvidia-container-runtime/config.toml"
SPECIFICATION, REFRESHED = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
SHARED = {
    "version": "1.17.8",
    "migrate": True,
    "hold": True,
    "preset": "shared",
    "cdi": "generate",
    "debug": True,
    "mode": "cdi",
}
PACKAGES = "nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1"
RUNTIME = "/usr/bin/nvidia-container-runtime"
# A wrapper by which the runtime reads another config.toml, as GPU Operator's own has one.
OTHER_CONFIG = f"""
set -eu
mkdir -p /srv/other/nvidia-container-runtime
sed 's/^accept-nvidia-visible-devices-envvar.*//' {CONFIG} > /srv/other/nvidia-container-runtime/config.toml
mv {RUNTIME} {RUNTIME}.real
printf '#!/bin/sh\nXDG_CONFIG_HOME=/srv/other exec {RUNTIME}.real "$@"\n' > {RUNTIME}
chmod 755 {RUNTIME}
"""
# What a node of some years ago has: nvidia-docker2 with docker's file, changed by hand.
OLD = f"""
set -eu
echo 'deb [trusted=yes] {MIRROR}/nvidia-toolkit/stable/deb/amd64 /' > /etc/apt/sources.list.d/old.list
apt-get update -q
apt-get install -q -y --no-install-recommends nvidia-docker2 nvidia-container-runtime \\
  nvidia-container-toolkit=1.16.2-1 nvidia-container-toolkit-base=1.16.2-1
rm /etc/apt/sources.list.d/old.list
sed -i 's/^{{/{{ "log-level": "warn",/' /etc/docker/daemon.json
sed -i 's/^disable-require = false/disable-require = true  # team A/' {CONFIG}
"""


def _inventory(folder: Path, node: Node, toolkit: dict[str, object]) -> str:
    return inventory_with(folder, {node.name: {"toolkit": toolkit, "cuda": {"enabled": False}}})


def _run(folder: Path, node: Node, toolkit: dict[str, object], deploy: str = "deploys.toolkit.toolkit") -> Run:
    return command("pyinfra", "-y", "--json", _inventory(folder, node, toolkit), deploy)


def _findings(folder: Path, node: Node, toolkit: dict[str, object]) -> dict[str, dict[str, Any]]:
    run = command("gpunode", "drift", "--json", _inventory(folder, node, toolkit))
    return {item["what"]: item for item in run.findings[node.name] if item["class"] != "ok"}


def _versions(node: Node) -> set[str]:
    return set(out(node, f"dpkg-query -W -f '${{Version}}\\n' {PACKAGES}").split())


def test_a_node_with_nvidia_docker2_is_refused_and_then_migrated_in_one_transaction(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    out(node, OLD)
    before = out(node, "cat /etc/docker/daemon.json")
    refused = _run(tmp_path, node, {**SHARED, "migrate": False}, "deploys/gpu_node.py")
    assert refused.code != 0
    assert "nvidia-docker2 2.13.0-1, which the" in refused.printed and "toolkit.migrate = True" in refused.printed
    assert _versions(node) == {"1.16.2-1", "1.20.2-1"}, "a refused node was touched"
    run = _run(tmp_path, node, SHARED, "deploys/gpu_node.py")
    assert run.code == 0, run.printed
    assert _versions(node) == {"1.17.8-1"}
    assert "nvidia-docker2" not in out(node, "dpkg-query -W -f '${db:Status-Status} ${Package}\\n' | grep ^installed")
    assert out(node, "cat /etc/docker/daemon.json") == before
    # Of apt's own history: what comes and what goes are one command.
    history = out(node, "cat /var/log/apt/history.log").split("\n\n")
    assert ["nvidia-docker2" in entry for entry in history if "1.17.8-1" in entry] == [True]


def test_config_toml_is_as_desired_with_the_values_of_other_people(nodes: tuple[Node, ...]) -> None:
    found = tomllib.loads(out(nodes[0], f"cat {CONFIG}"))
    assert found["accept-nvidia-visible-devices-envvar-when-unprivileged"] is False
    assert found["accept-nvidia-visible-devices-as-volume-mounts"] is True
    assert found["nvidia-container-runtime"]["log-level"] == "debug"
    assert found["nvidia-container-runtime"]["runtimes"] == ["runc"]
    # `nvidia-ctk config --in-place` of the package's own script, which ran at the upgrade, drops comments.
    assert found["disable-require"] is True
    out(nodes[0], f"sed -i 's/^disable-require = true/disable-require = false  # team A/' {CONFIG}")


def test_a_second_run_changes_nothing_and_drift_finds_nothing(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    assert _findings(tmp_path, node, SHARED) == {}
    run = _run(tmp_path, node, SHARED)
    assert run.code == 0, run.printed
    assert run.operations("success") == {} and len(run.operations("no_change")) > 6


def test_containers_see_what_the_preset_for_shared_clusters_lets_them(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    run = _run(tmp_path, node, SHARED, "deploys/smoke.py")
    assert run.code == 0, run.printed
    assert run.operations("success") == {}
    # The hole is there again where somebody opens it by hand: the test of containers looks at what is, not at a file.
    out(node, OTHER_CONFIG)
    open_again = _run(tmp_path, node, SHARED, "deploys/smoke.py")
    out(node, f"mv -f {RUNTIME}.real {RUNTIME}")
    assert open_again.code != 0
    assert "gets /dev/nvidia0" in open_again.printed
    assert out(node, "ls /var/tmp | grep -c gpunode || true; ctr namespaces ls -q | grep -c smoke || true") == "0\n0"


def test_a_container_runs_nvidia_smi_and_has_libcuda_by_the_toolkit_and_what_it_lacks_is_told(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    """Real: the toolkit and its hooks. SIMULATED: nvidia-smi and libcuda, which it hands in."""
    (node,) = nodes
    found = _seen(tmp_path, node)
    listed, seen = found["handed"]["gpus"], found["asking"]["driver"]
    assert len(listed) == 2 and [gpu["uuid"] in "".join(seen["smi_said"]) for gpu in listed] == [True, True]
    assert seen["smi_status"] == 0 and found["handed"]["is_script"] is False
    version = out(node, "cat /sys/module/nvidia/version")
    assert seen["cuda"] == [f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version}"]
    assert seen["linked"] == [found["handed"]["cuda"]] == ["/usr/lib/x86_64-linux-gnu/libcuda.so.1"]
    # One that asks for no GPU gets nothing of it.
    assert found["silent"]["driver"] == {"cuda": [], "linked": [], "smi_status": None, "smi_said": []}
    for hooks, mounts, faults in (
        (("create-symlinks", "update-ldcache"), ("nvidia-smi",), ("has no nvidia-smi", "no libcuda.so.1 beside it")),
        ((), ("libcuda.so", "libnvidia-ml.so"), ("has no libcuda, without which", "ends with exit code 12")),
    ):
        _leave_out(node, hooks, mounts)
        broken = _run(tmp_path, node, SHARED, "deploys/smoke.py")
        out(node, f"mv /srv/nvidia.yaml {SPECIFICATION}")
        assert broken.code != 0, (hooks, mounts)
        assert all(fault in broken.printed for fault in faults), broken.printed
    # By CDI a container gets all that the driver has, whichever capabilities config.toml allows.
    out(node, f"cp -p {CONFIG} /srv/other/ && sed -i '1i supported-driver-capabilities = \"compute\"' {CONFIG}")
    few = _seen(tmp_path, node)
    out(node, f"cp -p /srv/other/config.toml {CONFIG}")
    assert few["asking"]["driver"] == seen


def _leave_out(node: Node, hooks: tuple[str, ...], mounts: tuple[str, ...]) -> None:
    """Take hooks and mounts out of the specification; what it was is /srv/nvidia.yaml."""
    whole = yaml.safe_load(out(node, f"cat {SPECIFICATION}"))
    edits = whole["containerEdits"]
    edits["hooks"] = [hook for hook in edits["hooks"] if hook["args"][1] not in hooks]
    edits["mounts"] = [mount for mount in edits["mounts"] if not any(name in mount["hostPath"] for name in mounts)]
    out(node, f"cp -p {SPECIFICATION} /srv/nvidia.yaml")
    write(node, SPECIFICATION, yaml.safe_dump(whole))


# A pod's first container has an image of its own, which a node with a kubelet has. Here it is busybox under that name.
PAUSE = """
set -e
# What a node that is itself a container cannot do: an overlay over an overlay, and a score below its own.
sed -i '/^ *\\[plugins."io.containerd.grpc.v1.cri"\\]$/a restrict_oom_score_adj = true' /etc/containerd/config.toml
systemctl stop containerd; mount -t tmpfs none /var/lib/containerd; systemctl start containerd
image=$(containerd config dump | sed -n 's/^ *sandbox_image = "\\(.*\\)"/\\1/p')
work=$(mktemp -d); tar -C /srv/gpunode-lab/rootfs -cf $work/layer.tar .
layer=$(sha256sum $work/layer.tar | cut -d ' ' -f 1)
printf '{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/bin/sleep", "900"]}, "rootfs": {
  "type": "layers", "diff_ids": ["sha256:%s"]}}' "$layer" > $work/config.json
printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]' "$image" > $work/manifest.json
tar -C $work -c manifest.json config.json layer.tar | ctr -n k8s.io images import --no-unpack - > /dev/null
rm -r $work
"""
KUBELET = """
ln -s /bin/sleep /usr/local/bin/kubelet
printf '[Service]\\nExecStart=/usr/local/bin/kubelet 900\\n' > /run/systemd/system/kubelet.service
systemctl daemon-reload; systemctl start kubelet
"""


def _seen(folder: Path, node: Node) -> dict[str, Any]:
    run = command("pyinfra", "--json", _inventory(folder, node, SHARED), "fact", "facts.toolkit.Smoke", "reload=yes")
    assert run.code == 0, run.printed
    (found,) = _readings(json.loads(run.stdout))
    return found


def _readings(payload: Any, key: str = "asking") -> list[dict[str, Any]]:
    """Return the fact's answers, which have that key, wherever pyinfra puts them."""
    if not isinstance(payload, dict):
        return []
    return [payload] if key in payload else [row for value in payload.values() for row in _readings(value, key)]


CTR = (
    "ctr -n team run --detach --runc-binary /usr/bin/nvidia-container-runtime {asks} --rootfs /srv/gpunode-lab/rootfs "
    "{name} /bin/sleep 900"
)


def test_a_fact_tells_which_running_container_has_which_gpu_and_whose_a_process_is(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    """Real: containerd, and what it keeps of its containers, and the runtime. SIMULATED: the GPUs."""
    (node,) = nodes
    one = "--mount type=bind,src=/dev/null,dst=/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/1,options=rbind:ro"
    out(node, CTR.format(asks=one, name="one"))
    # The preset takes no variable of an unprivileged container.
    out(node, CTR.format(asks="--env NVIDIA_VISIBLE_DEVICES=all", name="refused"))
    out(node, CTR.format(asks="", name="none"))
    out(node, "systemd-run --quiet --collect --unit=trainer gpunode-lab-hold 1 --name trainer; sleep 1")
    run = command("pyinfra", "--json", _inventory(tmp_path, node, SHARED), "fact", "facts.gpu.GpuUsers")
    out(node, "systemctl stop trainer; for name in one refused none; do ctr -n team task kill --signal KILL $name; "
              "sleep 0.5; ctr -n team container rm $name; done; ctr namespaces rm team")  # fmt: skip
    assert run.code == 0, run.printed
    (found,) = _readings(json.loads(run.stdout), "containers")
    containers = {each["id"]: each for each in found["containers"]}
    assert set(containers) == {"one", "refused"}
    assert (containers["one"]["runtime"], containers["one"]["gpus"]) == ("containerd", [found["gpus"][1]])
    assert (containers["refused"]["asks"], containers["refused"]["gpus"]) == (["all"], [])
    (process,) = (each for each in found["processes"] if each["name"] == "trainer")
    assert (process["gpu"], process["container"]) == (found["gpus"][1], None)


def test_a_pod_by_crictl_sees_its_gpus_by_the_default_runtime_and_beside_a_kubelet_none_is_started(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    """Debian has no crictl: it is built from its Go module."""
    (node,) = nodes
    out(node, PAUSE)
    crictl = programs("crictl-1.37.0", print) / "crictl"
    subprocess.run(["podman", "cp", crictl, f"{node.container}:/usr/local/bin/crictl"], check=True, capture_output=True)
    # The test's image is in no registry.
    out(node, "echo 'pull-image-on-create: true' > /etc/crictl.yaml")
    found = _seen(tmp_path, node)
    assert (found["by"], found["runtime"]) == ("crictl", "default")
    assert "level=" not in found["silent"]["said"]
    # The preset asks by mounts: an unprivileged pod that sets the variable gets nothing.
    assert found["asking"]["devices"] == found["reloaded"]["devices"] == found["devices"] != []
    assert [found[name]["devices"] + found[name]["denied"] for name in ("silent", "envvar")] == [[], []]
    assert found["silent"]["ran"] and found["envvar"]["ran"]
    assert out(node, "ctr -n k8s.io containers ls -q; ctr -n k8s.io images ls -q | grep smoke || true") == ""
    assert out(node, "ls /var/tmp | grep -c gpunode || true") == "0"
    # A kubelet ends pods that it does not know.
    out(node, KUBELET)
    assert _seen(tmp_path, node)["by"] == "ctr"
    out(node, "systemctl stop kubelet; rm /run/systemd/system/kubelet.service /usr/local/bin/kubelet "
              "/usr/local/bin/crictl /etc/crictl.yaml; systemctl daemon-reload")  # fmt: skip


def test_a_missing_link_costs_a_container_its_gpu_and_is_found_and_healed(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    out(node, "rm /dev/char/195:1")
    assert _findings(tmp_path, node, SHARED)["device links"]["actual"] == "none for /dev/nvidia1"
    lost = _run(tmp_path, node, SHARED, "deploys/smoke.py")
    assert lost.code != 0
    assert "lost /dev/nvidia1" in lost.printed
    run = _run(tmp_path, node, SHARED)
    assert list(run.operations("success")) == ["Link NVIDIA's devices in /dev/char"], run.printed
    assert _run(tmp_path, node, SHARED, "deploys/smoke.py").code == 0
    # udev's part, which in a container the lab plays: the driver is loaded anew, and the rule makes the links.
    out(node, "systemctl stop nvidia-persistenced; rm -rf /dev/char; rmmod nvidia_uvm nvidia; modprobe nvidia; "
              "systemctl start nvidia-persistenced")  # fmt: skip
    assert out(node, "readlink -f /dev/char/195:1") == "/dev/nvidia1"
    assert _findings(tmp_path, node, SHARED) == {}


def test_a_specification_of_another_driver_is_found_and_renewed(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    out(node, f"sed -i 's/libcuda.so.[0-9.]*/libcuda.so.570.172.08/' {SPECIFICATION}")
    found = _findings(tmp_path, node, SHARED)
    assert list(found) == ["CDI specification"]
    assert found["CDI specification"]["actual"] == f"{SPECIFICATION} of driver 570.172.08"
    run = _run(tmp_path, node, SHARED)
    assert list(run.operations("success")) == ["Keep a CDI specification of the loaded driver"], run.printed
    assert "libcuda.so.580" in out(node, f"cat {SPECIFICATION}")
    # Where nvidia-ctk does not find the driver's libraries, what exists stays as it is.
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    out(node, f"sed -i 's/libcuda.so.[0-9.]*/libcuda.so.570.172.08/' {SPECIFICATION}; mv {library} /srv/")
    wrong = _run(tmp_path, node, SHARED)
    out(node, f"mv /srv/libcuda.so.580.95.05 {library}")
    assert wrong.code != 0 and "libcuda.so.580.95.05" in wrong.printed
    assert "libcuda.so.570.172.08" in out(node, f"cat {SPECIFICATION}; ls /etc/cdi")
    assert out(node, "ls /etc/cdi") == "nvidia.yaml"


ROOT = "/run/nvidia/driver"
# SIMULATED: as a driver container shows its files on the node, while the node itself has none of them.
ELSEWHERE = f"""
set -eu
mkdir -p {ROOT}/usr/bin {ROOT}/usr/lib/x86_64-linux-gnu {ROOT}/dev
mv /usr/bin/nvidia-smi {ROOT}/usr/bin/
mv /usr/lib/x86_64-linux-gnu/libnvidia-ml.so* /usr/lib/x86_64-linux-gnu/libcuda.so* {ROOT}/usr/lib/x86_64-linux-gnu/
"""
BACK = f"""
set -eu
mv {ROOT}/usr/bin/nvidia-smi /usr/bin/
mv {ROOT}/usr/lib/x86_64-linux-gnu/lib*.so* /usr/lib/x86_64-linux-gnu/
rm -r {ROOT}
"""


def _elsewhere(folder: Path, node: Node, root: str = ROOT) -> str:
    driver = {"source": "present", "root": root}
    return inventory_with(folder, {node.name: {"driver": driver, "toolkit": SHARED, "cuda": {"enabled": False}}})


def test_a_driver_below_a_root_of_its_own_is_verified_there_and_all_that_use_it_are_told(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes

    def drift(inventory: str) -> dict[str, dict[str, Any]]:
        found = command("gpunode", "drift", "--json", inventory).findings[node.name]
        return {item["what"]: item for item in found if item["class"] != "ok"}

    def brought(inventory: str) -> list[str]:
        run = command("pyinfra", "-y", "--json", inventory, "deploys.toolkit.toolkit")
        assert run.code == 0, run.printed
        return list(run.operations("success"))

    before = out(node, f"cat {CONFIG}")
    there = _elsewhere(tmp_path, node)
    refused = command("pyinfra", "-y", "--json", there, "deploys.toolkit.toolkit")
    assert refused.code != 0 and f"driver.root is '{ROOT}'" in refused.printed
    assert out(node, f"cat {CONFIG}") == before, "a refused node was touched"
    out(node, ELSEWHERE)
    told = ["Configure the container toolkit", "Keep a CDI specification of the loaded driver"]
    assert brought(there) == told
    assert tomllib.loads(out(node, f"cat {CONFIG}"))["nvidia-container-cli"]["root"] == ROOT
    text = out(node, f"cat {SPECIFICATION}")
    # That root has no devices in a dev of its own.
    assert f"hostPath: {ROOT}/usr/lib" in text and f"{ROOT}/dev" not in text
    assert brought(there) == []
    assert {what for what, item in drift(there).items() if item["component"] in ("driver", "toolkit")} == set()
    # Two deviations, each told with what it is and should be, and healed by the run.
    out(node, f"sed -i 's#^root = .*#root = \"/opt/other\"#' {CONFIG}; sed -i 's#{ROOT}/#/opt/other/#' {SPECIFICATION}")
    found = drift(there)
    assert "/opt/other" in found["config.toml"]["actual"] and ROOT in found["config.toml"]["desired"]
    assert "/opt/other" in found["CDI specification"]["actual"]
    assert brought(there) == told and brought(there) == []
    # Whose files go is told by name, and nvidia-smi of the node itself does not stand in for it.
    out(node, f"cp {ROOT}/usr/bin/nvidia-smi /usr/bin/nvidia-smi; mv {ROOT}/usr/bin/nvidia-smi /srv/")
    assert drift(there)["preflight"]["code"] == "preflight.driver-root-without-smi"
    out(node, f"mv /srv/nvidia-smi {ROOT}/usr/bin/; rm /usr/bin/nvidia-smi")
    out(node, BACK)
    back = _inventory(tmp_path, node, SHARED)
    assert "config.toml" in drift(back)
    assert brought(back) == told and brought(back) == []
    assert out(node, f"cat {CONFIG}") == before and ROOT not in out(node, f"cat {SPECIFICATION}")
    assert drift(back) == {}


def test_a_held_toolkit_moves_to_the_version_that_is_asked_for_and_is_held_there(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    assert set(PACKAGES.split()) <= set(out(node, "apt-mark showhold").split())
    newest = {**SHARED, "version": "1.20.2"}
    upgrade = out(node, "apt-get -s -q dist-upgrade")
    assert "Inst nvidia-container" not in upgrade and "Inst libnvidia-container" not in upgrade
    run = _run(tmp_path, node, newest)
    assert run.code == 0, run.printed
    assert _versions(node) == {"1.20.2-1"}
    assert set(PACKAGES.split()) <= set(out(node, "apt-mark showhold").split())
    # From 1.18 the toolkit's own unit makes the specification: one of gpunode's would only grow old beside it.
    assert "libcuda.so.580" in out(node, f"cat {REFRESHED}")
    assert out(node, "ls /etc/cdi") == ""
    assert out(node, "systemctl is-enabled nvidia-cdi-refresh.path") == "enabled"
    again = _run(tmp_path, node, newest)
    assert (again.code, again.operations("success")) == (0, {}), again.printed
    smoke = _run(tmp_path, node, newest, "deploys/smoke.py")
    assert smoke.code == 0, smoke.printed
    out(node, f"sed -i 's/libcuda.so.[0-9.]*/libcuda.so.570.172.08/' {REFRESHED}")
    assert _run(tmp_path, node, newest).code == 0
    assert "libcuda.so.580" in out(node, f"cat {REFRESHED}")
    assert _findings(tmp_path, node, newest) == {}


ASKS = (
    f"ctr run --rm --runc-binary {RUNTIME} --mount type=bind,src=/dev/null,options=rbind:ro,"
    "dst=/var/run/nvidia-container-devices/{gpu} --rootfs /srv/gpunode-lab/rootfs seen /bin/sh -c "
    "'ls /dev/nvidia*[0-9] /dev/nvidia-caps/* 2>/dev/null; nvidia-smi -L'"
)
MIG = """
systemctl stop nvidia-persistenced; nvidia-smi -i 0 -mig 1; nvidia-smi mig -i 0 -cgi 9,14 -C
systemctl start nvidia-persistenced; systemctl restart nvidia-cdi-refresh
"""
WHOLE = """
systemctl stop nvidia-persistenced; nvidia-smi mig -i 0 -dci; nvidia-smi mig -i 0 -dgi; nvidia-smi -i 0 -mig 0
systemctl start nvidia-persistenced; systemctl restart nvidia-cdi-refresh
"""


def test_a_container_sees_the_devices_of_its_gpu_or_mig_device_and_no_others_in_each_mode(
    nodes: tuple[Node, ...],
) -> None:
    """The second MIG device of the first GPU has other capabilities than the first."""
    (node,) = nodes
    out(node, MIG)
    for mode in ("auto", "cdi"):
        out(node, f"sed -i 's/^mode = .*/mode = \"{mode}\"/' {CONFIG}")
        seen = {gpu: out(node, ASKS.format(gpu=gpu)) for gpu in ("1", "0:0", "0:1")}
        found = {gpu: set(re.findall(r"/dev/nvidia(?:-caps/nvidia-cap)?(\d+)", text)) for gpu, text in seen.items()}
        assert found == {"1": {"1"}, "0:0": {"0", "12", "13"}, "0:1": {"0", "30", "31"}}, (mode, seen)
        assert [text.count("MIG 3g.40gb") for text in seen.values()] == [0, 1, 0]
        assert [text.count("MIG 2g.20gb") for text in seen.values()] == [0, 0, 1]
    out(node, WHOLE)


def test_the_table_knows_each_hook_by_the_version_that_brought_it_and_the_toolkit_each_key_that_gpunode_writes(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    """A specification is of a newer toolkit where it names a hook of the table; an unknown hook goes unseen."""
    (node,) = nodes
    hooks: dict[str, set[str]] = {}
    known = {"update-ldcache": "0", "create-symlinks": "0", **tables.toolkit().hooks}
    # The program prints the file as it understands it.
    desired = {
        key: value for key, value in desired_keys(ToolkitSettings.model_validate(SHARED)).items() if key[-1] != "debug"
    }
    read = tomllib.loads(out(node, f"nvidia-ctk --quiet config --config-file={CONFIG}"))
    actual: dict[tuple[str, ...], Any] = {key: functools.reduce(dict.__getitem__, key, read) for key in desired}
    assert actual == desired
    for version in ("1.20.2", "1.19.1", "1.17.8"):
        run = _run(tmp_path, node, {**SHARED, "version": version})
        assert run.code == 0, run.printed
        assert _run(tmp_path, node, {**SHARED, "version": version}).operations("success") == {}
        text = out(node, "nvidia-ctk --quiet cdi generate 2>/dev/null")
        hooks[version] = set(re.findall(r"- nvidia-cdi-hook\n\s+- (\S+)", text))
        assert len(hooks[version]) > 2 and hooks[version] <= set(known)
        assert all(versions.at_least(version, known[hook]) for hook in hooks[version])
    for older, newer in (("1.17.8", "1.19.1"), ("1.19.1", "1.20.2")):
        assert not [hook for hook in hooks[newer] - hooks[older] if versions.at_least(older, known[hook])]


def test_what_gpunode_brought_is_taken_away_again_and_other_people_s_hold_stays(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    plain = {"version": "1.17.8", "device_links": False}
    out(node, "apt-mark hold containerd")
    run = _run(tmp_path, node, plain)
    assert run.code == 0, run.printed
    held = out(node, "apt-mark showhold").split()
    assert "containerd" in held and not set(PACKAGES.split()) & set(held)
    assert (
        out(node, "ls /etc/apt/preferences.d /etc/udev/rules.d | grep -E 'gpunode-(toolkit|nvidia-dev)' || true") == ""
    )
    assert _run(tmp_path, node, plain).operations("success") == {}
