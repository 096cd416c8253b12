"""The kubelet on a node, and what of its configuration GPUs depend on.

source: KubeletConfiguration (v1beta1), and the reference of kubelet's flags, which count before any file
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import Reading
from gpunode.base.versions import program_version

_SIGN = re.compile("[=<]")


@dataclass(frozen=True)
class KubeletConfiguration(Reading):
    """Hold what a running kubelet's flags, file and drop-ins come to, as it would read them now.

    The amounts are name -> quantity as somebody wrote it (`memory`, `1Gi`), sorted. `file` is that of --config,
    `cgroup_driver_file` the one to change for another cgroup driver, None where a flag says it; `runtime_endpoint` is
    the socket of the runtime, None where nobody says which.
    """

    cgroup_driver: str
    cpu_manager_policy: str
    topology_manager_policy: str
    system_reserved: tuple[tuple[str, str], ...]
    kube_reserved: tuple[tuple[str, str], ...]
    eviction_hard: tuple[tuple[str, str], ...]
    file: str | None
    cgroup_driver_file: str | None
    runtime_endpoint: str | None


@dataclass(frozen=True)
class Kubelet(Reading):
    """Hold the kubelet's version, None where there is none.

    `configuration` is None where no kubelet runs, or its files are none that it could read.
    """

    version: str | None
    configuration: KubeletConfiguration | None = None


def parse_kubelet(lines: list[str]) -> Kubelet:
    """Parse `kubelet=Kubernetes v1.29.3`, `argument=--config=/x` and `file=/x BASE64`; raise ParseError."""
    arguments = repeated(lines, "argument")
    files = (each.partition(" ") for each in repeated(lines, "file"))
    texts = [(path, decoded({path: text}, path) or "") for path, _, text in files]
    return Kubelet(program_version(values(lines).get("kubelet")), _merged(arguments, texts) if arguments else None)


def _merged(arguments: list[str], texts: list[tuple[str, str]]) -> KubeletConfiguration | None:
    flags = dict(_flags(arguments))
    said: dict[str, Any] = {}
    saying = flags.get("config")
    for path, text in texts:
        if (document := _document(text)) is None:
            return None
        saying = path if "cgroupDriver" in document else saying
        for name, value in document.items():
            below = said.get(name)
            said[name] = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value

    def word(name: str, flag: str, otherwise: str) -> str:
        return str(flags.get(flag) or said.get(name) or otherwise)

    def amounts(name: str, flag: str) -> tuple[tuple[str, str], ...]:
        return _amounts(flags[flag] if flag in flags else said.get(name))

    return KubeletConfiguration(
        cgroup_driver=word("cgroupDriver", "cgroup-driver", "cgroupfs"),
        cpu_manager_policy=word("cpuManagerPolicy", "cpu-manager-policy", "none"),
        topology_manager_policy=word("topologyManagerPolicy", "topology-manager-policy", "none"),
        system_reserved=amounts("systemReserved", "system-reserved"),
        kube_reserved=amounts("kubeReserved", "kube-reserved"),
        eviction_hard=amounts("evictionHard", "eviction-hard"),
        file=flags.get("config"),
        cgroup_driver_file=None if "cgroup-driver" in flags else saying,
        runtime_endpoint=flags.get("container-runtime-endpoint") or said.get("containerRuntimeEndpoint"),
    )


def _flags(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (flag, value); the last of one flag counts. Of a flag without a value the next word is none of ours."""
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        if word.startswith("--"):
            name, is_with, value = word.removeprefix("--").partition("=")
            yield name, value if is_with else after


def _document(text: str) -> Mapping[str, Any] | None:
    # Late: most nodes have no kubelet that runs.
    import yaml

    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _amounts(said: object) -> tuple[tuple[str, str], ...]:
    """Return (name, quantity) of what a flag (`memory=1Gi,cpu=1`, `memory.available<1Gi`) or a file's mapping says."""
    if isinstance(said, str):
        said = dict(_SIGN.split(pair, maxsplit=1) for pair in said.split(",") if _SIGN.search(pair))
    return tuple(sorted((str(name), str(value)) for name, value in said.items())) if isinstance(said, dict) else ()
