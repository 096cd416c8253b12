#!/usr/bin/python3
"""SIMULATED crictl: its commands and options that gpunode uses; what it asks of containerd is the real CRI, by gRPC.

Debian has no cri-tools. It runs in a node with python3-grpcio. The messages are described here as far as they are
needed, with the field numbers of Kubernetes' runtime.v1.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped,unused-ignore]
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory  # type: ignore

_STRING, _UINT, _BYTES, _BOOL, _INT64, _INT32 = 9, 13, 12, 8, 3, 5
# Message -> field -> (number, type or message's name, whether repeated).
MESSAGES: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    "PodSandboxMetadata": {
        "name": (1, _STRING, False), "uid": (2, _STRING, False), "namespace": (3, _STRING, False),
        "attempt": (4, _UINT, False),
    },
    # An enumeration on the wire is a number: 2 is the node's own.
    "NamespaceOption": {"network": (1, _INT32, False)},
    "LinuxSandboxSecurityContext": {"namespace_options": (1, "NamespaceOption", False)},
    "LinuxPodSandboxConfig": {
        "cgroup_parent": (1, _STRING, False), "security_context": (2, "LinuxSandboxSecurityContext", False),
    },
    "PodSandboxConfig": {
        "metadata": (1, "PodSandboxMetadata", False), "log_directory": (3, _STRING, False),
        "linux": (8, "LinuxPodSandboxConfig", False),
    },
    "ContainerMetadata": {"name": (1, _STRING, False)},
    "ImageSpec": {"image": (1, _STRING, False)},
    "KeyValue": {"key": (1, _STRING, False), "value": (2, _STRING, False)},
    "Mount": {"container_path": (1, _STRING, False), "host_path": (2, _STRING, False), "readonly": (3, _BOOL, False)},
    "LinuxContainerConfig": {},
    "ContainerConfig": {
        "metadata": (1, "ContainerMetadata", False), "image": (2, "ImageSpec", False), "command": (3, _STRING, True),
        "envs": (6, "KeyValue", True), "mounts": (7, "Mount", True), "log_path": (11, _STRING, False),
        "linux": (15, "LinuxContainerConfig", False),
    },
    "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig", False), "runtime_handler": (2, _STRING, False)},
    "RunPodSandboxResponse": {"pod_sandbox_id": (1, _STRING, False)},
    "CreateContainerRequest": {
        "pod_sandbox_id": (1, _STRING, False), "config": (2, "ContainerConfig", False),
        "sandbox_config": (3, "PodSandboxConfig", False),
    },
    "CreateContainerResponse": {"container_id": (1, _STRING, False)},
    "StartContainerRequest": {"container_id": (1, _STRING, False)},
    "ExecSyncRequest": {"container_id": (1, _STRING, False), "cmd": (2, _STRING, True), "timeout": (3, _INT64, False)},
    "ExecSyncResponse": {
        "stdout": (1, _BYTES, False), "stderr": (2, _BYTES, False), "exit_code": (3, _INT32, False),
    },
    "PodSandbox": {"id": (1, _STRING, False), "metadata": (2, "PodSandboxMetadata", False)},
    "ListPodSandboxRequest": {},
    "ListPodSandboxResponse": {"items": (1, "PodSandbox", True)},
    "StopPodSandboxRequest": {"pod_sandbox_id": (1, _STRING, False)},
    "RemovePodSandboxRequest": {"pod_sandbox_id": (1, _STRING, False)},
    "Image": {"id": (1, _STRING, False)},
    "ImageStatusRequest": {"image": (1, "ImageSpec", False)},
    "ImageStatusResponse": {"image": (1, "Image", False)},
    "RemoveImageRequest": {"image": (1, "ImageSpec", False)},
    "Empty": {},
}  # fmt: skip


def classes() -> dict[str, Any]:
    """Return a class of each message."""
    file = descriptor_pb2.FileDescriptorProto(name="cri.proto", package="runtime.v1", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            made = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                made.type, made.type_name = 11, f".runtime.v1.{kind}"
            else:
                made.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(pool.FindMessageTypeByName(f"runtime.v1.{name}")) for name in MESSAGES}


def main() -> int:
    """Carry out one command; return the exit status."""
    parser = argparse.ArgumentParser(prog="crictl")
    parser.add_argument("--runtime-endpoint", required=True)
    parser.add_argument("--image-endpoint", required=True)
    parser.add_argument("--timeout", required=True)
    parser.add_argument("command", choices=sorted(COMMANDS))
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    found = classes()
    channel = grpc.insecure_channel(asked.runtime_endpoint)

    def call(service: str, method: str, answer: str, **fields: Any) -> Any:
        ask = channel.unary_unary(
            f"/runtime.v1.{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=found[answer].FromString,
        )
        request = json_format.ParseDict(fields, found[f"{method}Request"]())
        return ask(request, timeout=float(asked.timeout.removesuffix("s")))

    try:
        return int(COMMANDS[asked.command](call, asked.rest) or 0)
    except grpc.RpcError as error:
        print(f"crictl (SIMULATED): {error.code()}: {error.details()}", file=sys.stderr)
        return 1


def _file(path: str) -> Any:
    import json

    return json.loads(Path(path).read_text())


def _runp(call: Any, rest: list[str]) -> None:
    handler = rest[1] if rest[0] == "--runtime" else ""
    config = _file(rest[-1])
    answer = call("RuntimeService", "RunPodSandbox", "RunPodSandboxResponse", config=config, runtime_handler=handler)
    print(answer.pod_sandbox_id)


def _create(call: Any, rest: list[str]) -> None:
    pod, config, sandbox = rest
    answer = call(
        "RuntimeService", "CreateContainer", "CreateContainerResponse",
        pod_sandbox_id=pod, config=_file(config), sandbox_config=_file(sandbox),
    )  # fmt: skip
    print(answer.container_id)


def _start(call: Any, rest: list[str]) -> None:
    call("RuntimeService", "StartContainer", "Empty", container_id=rest[0])
    print(rest[0])


def _exec(call: Any, rest: list[str]) -> int:
    if rest[0] != "--sync":
        sys.exit("crictl (SIMULATED): knows exec --sync alone")
    answer = call("RuntimeService", "ExecSync", "ExecSyncResponse", container_id=rest[1], cmd=rest[2:], timeout=30)
    sys.stdout.buffer.write(answer.stdout)
    sys.stderr.buffer.write(answer.stderr)
    return int(answer.exit_code)


def _pods(call: Any, rest: list[str]) -> None:
    if rest[:2] != ["--quiet", "--name"]:
        sys.exit("crictl (SIMULATED): knows pods --quiet --name alone")
    for pod in call("RuntimeService", "ListPodSandbox", "ListPodSandboxResponse").items:
        if re.search(rest[2], pod.metadata.name):
            print(pod.id)


def _stopp(call: Any, rest: list[str]) -> None:
    call("RuntimeService", "StopPodSandbox", "Empty", pod_sandbox_id=rest[0])


def _rmp(call: Any, rest: list[str]) -> None:
    call("RuntimeService", "RemovePodSandbox", "Empty", pod_sandbox_id=rest[-1])


def _inspecti(call: Any, rest: list[str]) -> int:
    answer = call("ImageService", "ImageStatus", "ImageStatusResponse", image={"image": rest[0]})
    print(answer.image.id)
    return 0 if answer.image.id else 1


def _rmi(call: Any, rest: list[str]) -> None:
    call("ImageService", "RemoveImage", "Empty", image={"image": rest[0]})


COMMANDS = {
    "runp": _runp, "create": _create, "start": _start, "exec": _exec, "pods": _pods, "stopp": _stopp, "rmp": _rmp,
    "inspecti": _inspecti, "rmi": _rmi,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
