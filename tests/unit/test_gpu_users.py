"""Who uses a node's GPUs: which container has which, by what its runtime keeps of it, and whose each process is."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.facts.gpu import GpuUsers as GpuUsersFact
from gpunode.facts.node import PARTS
from gpunode.system.gpu_users import Asked, GpuContainer, GpuProcess, asked, parse_gpu_users
from gpunode.system.smi import QUERY

pytestmark = pytest.mark.pure

A, B, MIG = "GPU-aaaa", "GPU-bbbb", "MIG-cccc"
HOOK: dict[str, Any] = {
    "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["hook", "prestart"]}]}
}
ID = "0123456789abcdef" * 4


def _spec(variable: str | None = None, mounts: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    env = ["PATH=/bin", *([f"NVIDIA_VISIBLE_DEVICES={variable}"] if variable is not None else [])]
    return {"process": {"env": env}, "mounts": [{"destination": each} for each in ("/proc", *mounts)], **more}


def _packed(content: object) -> str:
    return base64.b64encode(gzip.compress(json.dumps(content).encode())).decode()


_FLAT = st.none() | st.integers() | st.text(max_size=9)
_JSON = (
    _FLAT | st.lists(_FLAT, max_size=3) | st.lists(st.dictionaries(st.sampled_from(["path", "x"]), _FLAT), max_size=3)
)
_KEYS = st.sampled_from(["process", "env", "mounts", "linux", "devices", "hooks", "prestart", "path", "destination"])


@given(st.dictionaries(_KEYS, _JSON | st.dictionaries(_KEYS, _JSON), max_size=4))
def test_no_specification_breaks_it(specification: dict[str, Any]) -> None:
    assert asked(specification, {}, Asked({"0": A}, {"0": A})).gpus == ()


def _smi(*uuids: str) -> list[str]:
    rows = [dict.fromkeys(QUERY, "[N/A]") | {"index": str(index), "uuid": uuid} for index, uuid in enumerate(uuids)]
    rows = [row | {"pci.bus_id": f"00000000:0{row['index']}:00.0"} for row in rows]
    return ["gpu.rc=0", *(f"gpu={', '.join(row[name] for name in QUERY)}" for row in rows)]


TASK = f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json"
POD = {
    "io.kubernetes.cri.sandbox-namespace": "team", "io.kubernetes.cri.sandbox-name": "train-0",
    "io.kubernetes.cri.container-name": "main",
}  # fmt: skip


def test_two_pods_on_one_gpu_are_told_with_their_processes() -> None:
    other = ID[::-1]
    second = _packed(_spec(A, annotations=POD | {"io.kubernetes.cri.sandbox-name": "b"}, **HOOK))
    lines = [
        f"container=70\t{TASK}\t{_packed(_spec(A, annotations=POD, **HOOK))}",
        f"container=80\t{TASK.replace(ID, other)}\t{second}",
        *_smi(A, B), f"minor={A}\t0", f"minor={B}\t1", "app.rc=0",
        f"app={A}, 71, /cuda-samples/vectorAdd, 512", f"app={A}, 80, python, [N/A]", f"app={B}, 99, of, the host, 4",
        f"app={B}, 98, python3, 8",
        f"group=71\t0::/kubepods.slice/cri-containerd-{ID}.scope", "group=98\t0::/user.slice",
    ]  # fmt: skip
    found = parse_gpu_users(lines)
    assert (found.status, found.gpus) == ("ok", (A, B))
    assert found.containers[0] == GpuContainer(ID, "containerd", "main", "team/train-0", 70, (A,), (A,))
    assert [each.id for each in found.of_pod("team/b")] == [other]
    assert found.processes == (
        GpuProcess(A, 71, "/cuda-samples/vectorAdd", 512, ID),
        GpuProcess(A, 80, "python", None, other),
        GpuProcess(B, 98, "python3", 8),
    )
    assert found.to_json()["containers"][0]["pod"] == "team/train-0"


CRIO = {
    "io.kubernetes.cri-o.Name": "x", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "n",
    "io.kubernetes.container.name": "main",
}  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "annotations", "more", "runtime", "name"),
    [
        ("/run/containerd/io.containerd.runtime.v2.task/moby/{}", {}, [f"docker={ID}\t/work"], "docker", "work"),
        ("/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/{}", {}, [], "docker", None),
        ("/run/containers/storage/overlay-containers/{}/userdata", {}, [], "podman", None),
        ("/run/containers/storage/overlay-containers/{}/userdata", CRIO, [], "cri-o", "main"),
    ],
)
def test_each_runtime_s_containers_are_told_by_their_names(
    folder: str, annotations: dict[str, str], more: list[str], runtime: str, name: str | None
) -> None:
    content = _packed(_spec("all", annotations=annotations, **HOOK))
    lines = [f"container=\t{folder.format(ID)}/config.json\t{content}", *more, *_smi(A), "app.rc=0"]
    (found,) = parse_gpu_users(lines).containers
    assert (found.id, found.runtime, found.name, found.pid, found.gpus) == (ID, runtime, name, None, (A,))
    assert found.pod == ("n/p" if runtime == "cri-o" else None)


def test_a_container_that_names_no_gpu_is_none_and_half_a_file_is_told_as_unread() -> None:
    about = _packed(_spec(None, ("/usr/share/doc/nvidia.com/",)))
    bomb = base64.b64encode(gzip.compress(b" " * (5 << 20))).decode()
    lines = [f"container=1\t{TASK}\t{text}" for text in (about, "AAAA", bomb, _packed([]))]
    found = parse_gpu_users([*lines, "unloaded=yes"])
    assert [each.is_readable for each in found.containers] == [False] * 3
    assert (found.status, found.processes) == ("no driver", ())


def test_an_answer_that_is_none_is_refused() -> None:
    for wrong in (["app.rc=0", f"app={A}, x, python, 1"], ["app.rc=0", "container=1"]):
        with pytest.raises(ParseError):
            parse_gpu_users([*_smi(A), *wrong])
    # nvidia-smi says of no process in words, and of a failure with its exit code.
    for none in (["app.rc=0", "app=No running processes found"], ["app.rc=15", f"app={A}, 1, x, 1"]):
        assert parse_gpu_users([*_smi(A), *none]).processes == ()


@pytest.mark.real
def test_the_probe_reads_running_containers_alone_and_only_those_that_name_a_gpu(tmp_path: Path) -> None:
    alive = subprocess.Popen(["sleep", "60"])
    try:
        for name, variable, pid in (("with", A, alive.pid), ("without", None, alive.pid), ("ended", A, 2**22 + 1)):
            folder = tmp_path / "run/containerd/io.containerd.runtime.v2.task/k8s.io" / name
            folder.mkdir(parents=True)
            content = _spec(variable, annotations=POD, **(HOOK if variable else {}))
            (folder / "config.json").write_text(json.dumps(content))
            (folder / "init.pid").write_text(str(pid))
        command = str(GpuUsersFact().command()).replace("/run/", f"{tmp_path}/run/")
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
        )
        (found,) = GpuUsersFact().process(done.stdout.splitlines()).containers
        assert (found.id, found.pid, found.pod, found.asks) == ("with", alive.pid, "team/train-0", (A,))
    finally:
        alive.kill()
        alive.wait()
    assert GpuUsersFact not in PARTS.values(), "no reading of a node asks it"
