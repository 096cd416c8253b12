"""The kubelet on a node, and what of its configuration GPUs depend on.

source: KubeletConfiguration (v1beta1), and the reference of kubelet's flags, which count before any file
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpunode.base.probe_output import decoded, repeated, timestamp, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.structured_text import TextError, load_yaml
from gpunode.base.tables.reading import Row, Table, table
from gpunode.base.versions import at_least, program_version
from gpunode.system.service import Confidential, seconds

# Where a transaction notes by which files it started the kubelet: `PID START`, then `SHA-256 PATH` of each.
NOTED = "/run/gpunode/kubelet.loaded"
_SIGN = re.compile("[=<]")


@dataclass(frozen=True)
class KeyAndFlag(Row):
    """Hold a key of the kubelet's file, and the flag that says the same."""

    key: str
    flag: str


@dataclass(frozen=True)
class Known(Row):
    """Hold the kubelet's own defaults, and which flag says the same as a key of its file."""

    defaults: Table[str, str]
    eviction_hard: Table[str, str]
    eviction_hard_since: Table[str, Table[str, str]]
    flags: Table[str, str]
    reserved_cpus: KeyAndFlag


known = table(Known, "kubelet.yaml")


@dataclass(frozen=True)
class KubeletConfiguration(Reading):
    """Hold what a running kubelet's flags, file and drop-ins come to, as it would read them now.

    The amounts are name -> quantity as somebody wrote it (`memory`, `1Gi`), sorted. `file` is that of --config,
    `cgroup_driver_file` the one to change for another cgroup driver, None where a flag says it; `runtime_endpoint` is
    the socket of the runtime, None where nobody says which; `settings` are what gpunode may set, defaults included, as
    (`systemReserved/memory`, `1Gi`).
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
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Kubelet(Confidential):
    """Hold the kubelet's version, None where there is none.

    `running` is whether one runs. `configuration` is None where none does, or one of its files is missing or cannot be
    parsed. What follows is of one that runs: `flags` (flag, value) of those that count before a file, as far as what
    gpunode sets depends on them; `config_dir`, its folder of drop-ins, None where it reads none; `root_dir`, the folder
    of its state; `pods` that it has; `stale`: a file was changed after it started; `health`, the address that answers
    whether it is well, None where none does. `files` are (path, text) in the order in which they count, None where
    nobody noted them; no output has them.
    """

    version: str | None
    configuration: KubeletConfiguration | None = None
    flags: tuple[tuple[str, str], ...] = ()
    config_dir: str | None = None
    root_dir: str = "/var/lib/kubelet"
    pods: int = 0
    stale: bool = False
    running: bool = False
    health: str | None = None
    files: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)


def parse_kubelet(lines: list[str]) -> Kubelet:
    """Parse the kubelet probe's lines (gpunode/system/kubelet.sh); raise ParseError."""
    arguments, found = repeated(lines, "argument"), values(lines)
    version = program_version(found.get("kubelet"))
    if not arguments:
        return Kubelet(version)
    rows = [each.partition(" ") for each in repeated(lines, "file")]
    files = tuple((path, decoded({path: text}, path) or "") for path, _, text in rows)
    flags = dict(_flags(arguments))
    documents: list[tuple[str, Mapping[str, Any]]] | None
    try:
        documents = [(path, _document(text)) for path, text in files]
    except TextError:
        documents = None
    said = None if documents is None else _merged(each for _, each in documents)
    counting, pods = (*known().flags.values(), known().reserved_cpus.flag), found.get("pods", "0")
    started = found.get("started", "")
    if not pods.isdecimal():
        raise ParseError(f"pods is no number: {pods[:40]!r}")
    return Kubelet(
        version,
        None if said is None or documents is None else _configuration(flags, said, documents, version),
        tuple(sorted((name, flags[name]) for name in counting if name in flags)),
        flags.get("config-dir"),
        flags.get("root-dir", "/var/lib/kubelet"),
        int(pods),
        bool(started)
        and any(timestamp(each) > seconds(started) for each in repeated(lines, "written") if each)
        # The time of a file tells of a touch, too; what gpunode started the kubelet by does not.
        and repeated(lines, "noted") != [found.get("process"), *(_noted(path, said) for path, _, said in rows)],
        True,
        None if said is None else _health(flags, said),
        files,
    )


def merged(texts: Iterable[str]) -> dict[str, Any] | None:
    """Return what the file and its drop-ins come to, the last word counting; None where one cannot be read."""
    try:
        return _merged(map(_document, texts))
    except TextError:
        return None


def _merged(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for each in documents:
        for name, value in each.items():
            below = said.get(name)
            said[name] = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
    return said


def default_evictions(version: str | None) -> dict[str, str]:
    """Return the thresholds of a kubelet to which nobody says any; None: of an unknown version, the fewest."""
    found = dict(known().eviction_hard)
    for since, more in known().eviction_hard_since.items():
        if version is not None and at_least(version, since):
            found.update(more)
    return found


def settings_of(said: Mapping[str, Any], flags: Mapping[str, str], version: str | None) -> dict[str, str]:
    """Return what a kubelet goes by of what gpunode sets: `maxPods` or `systemReserved/memory` -> value.

    said: what its files come to; flags: those that count before them
    """
    found = {}
    for name, flag in known().flags.items():
        value = flags.get(flag, said.get(name))
        if name in known().defaults:
            found[name] = str(known().defaults[name] if value in (None, "") else value)
        else:
            default = name == "evictionHard" and not value
            amounts = default_evictions(version).items() if default else amounts_of(value)
            found.update({f"{name}/{key}": amount for key, amount in amounts})
    return found


def _noted(path: str, said: str) -> str:
    """Return a file as gpunode notes it; said: its text in base64."""
    content = base64.b64decode(said)
    return f"{hashlib.sha256(content).hexdigest() if content else 'none'} {path}"


def _health(flags: Mapping[str, str], said: Mapping[str, Any]) -> str | None:
    port = str(flags.get("healthz-port", said.get("healthzPort", 10248)))
    address = str(flags.get("healthz-bind-address") or said.get("healthzBindAddress") or "127.0.0.1")
    if address in ("0.0.0.0", "::"):
        address = "127.0.0.1"
    if ":" in address:
        address = f"[{address}]"
    return f"http://{address}:{port}/healthz" if port.isdecimal() and port != "0" else None


def _configuration(
    flags: Mapping[str, str],
    said: Mapping[str, Any],
    documents: Iterable[tuple[str, Mapping[str, Any]]],
    version: str | None,
) -> KubeletConfiguration:
    saying = flags.get("config")
    for path, each in documents:
        saying = path if "cgroupDriver" in each else saying

    def word(name: str, flag: str, otherwise: str) -> str:
        return str(flags.get(flag) or said.get(name) or otherwise)

    def amounts(name: str, flag: str) -> tuple[tuple[str, str], ...]:
        return amounts_of(flags[flag] if flag in flags else said.get(name))

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
        settings=tuple(sorted(settings_of(said, flags, version).items())),
    )


def _flags(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (flag, value); the last of one flag counts. Of a flag without a value the next word is none of ours."""
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        if word.startswith("--"):
            name, is_with, value = word.removeprefix("--").partition("=")
            yield name, value if is_with else after


def unread(text: str) -> str | None:
    """Return the end of a message that says why a file cannot be read; None where it can."""
    try:
        _document(text)
    except TextError as error:
        return error.unquoted
    return None


def _document(text: str) -> Mapping[str, Any]:
    found = load_yaml(text)
    if not isinstance(found, dict):
        raise TextError("it is no mapping")
    return found


def amounts_of(said: object) -> tuple[tuple[str, str], ...]:
    """Return (name, quantity) of what a flag (`memory=1Gi,cpu=1`, `memory.available<1Gi`) or a file's mapping says."""
    if isinstance(said, str):
        said = dict(_SIGN.split(pair, maxsplit=1) for pair in said.split(",") if _SIGN.search(pair))
    return tuple(sorted((str(name), str(value)) for name, value in said.items())) if isinstance(said, dict) else ()
