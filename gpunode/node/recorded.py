"""Nodes' facts as a file: written by `gpunode facts`, read by `gpunode plan --facts`, so that no machine is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gpunode.base.document import UPDATE, head, newer
from gpunode.base.errors import CodedError
from gpunode.base.findings import ExitCode
from gpunode.base.folding import in_one_line
from gpunode.base.messages import command_error
from gpunode.base.structured_text import FLEET, KeyTwiceError, TextLimitError, load_json, load_yaml
from gpunode.components.cuda.state import CudaToolkits
from gpunode.components.driver.state import DriverState
from gpunode.components.runtimes.containerd.state import Containerd
from gpunode.components.runtimes.docker.state import Docker
from gpunode.components.runtimes.toolkit.state import ContainerToolkit
from gpunode.node import Node
from gpunode.packages.deb import AptSources
from gpunode.packages.trust import Keyrings
from gpunode.settings import Settings, check_hosts
from gpunode.settings.hosts import overridden
from gpunode.system.boot import Boot
from gpunode.system.disk import Disk
from gpunode.system.gpu import Gpus
from gpunode.system.health import Health
from gpunode.system.kubelet import Kubelet

SCHEMA = 1
_NODE = TypeAdapter(Node)
# A bare machine: what a file may leave out. Never the operating system and the GPUs, on which everything turns.
_BARE: dict[str, Any] = {
    "driver": DriverState((), None, None, None, None, None),
    "gpus": Gpus("absent", None, "nvidia-smi is not installed", ()),
    "health": Health(),
    "cuda": CudaToolkits((), None, None, False),
    "toolkit": ContainerToolkit((), None, None),
    "containerd": Containerd(
        None, None, "/etc/containerd/config.toml", None, None, None, None, (), None, 0, active=False, enabled=False
    ),
    "docker": Docker(None),
    "kubelet": Kubelet(None),
    "keyrings": Keyrings(()),
    "disk": Disk(()),
    "apt_sources": AptSources(),
}


class FactsError(CodedError):
    """Say what in a file of facts or of settings cannot be used: which file, where, why, and what to do."""

    code = command_error(
        "facts.refused", "A file of recorded facts or of settings cannot be used.",
        "It cannot be read, is neither JSON nor YAML, or lacks what a decision needs. Nothing was decided.",
        remedy="correct the place that the message names, or record the facts again with `gpunode facts INVENTORY`; "
        "docs/plan.md describes both files", exit="3",
    )  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """Hold one host of a file: its node, or why there is none."""

    name: str
    node: Node | None
    reason: str | None


# What a document is of where nobody says (gpunode.fleet.call.Call.to_json).
_OF_NOTHING: dict[str, Any] = {"inventory": None, "limit": [], "set": []}


def facts_json(nodes: Mapping[str, Node | str], of: Mapping[str, Any] = _OF_NOTHING) -> dict[str, Any]:
    """Return the file's content; a host that did not answer has its reason instead of its facts.

    of: the inventory, and which of its hosts. A file of an older gpunode says neither that nor when, and is read, too.
    """
    hosts = {
        name: {"facts": found.to_json()} if isinstance(found, Node) else {"unreachable": found}
        for name, found in nodes.items()
    }
    silent = sum(isinstance(found, str) for found in nodes.values())
    counts = {"hosts": {"read": len(nodes) - silent, "unreachable": silent}}
    code = ExitCode.ERROR if silent else ExitCode.GOOD
    return {**head(SCHEMA, counts, code, of), "hosts": hosts}


def read_facts(path: Path) -> tuple[Recorded, ...]:
    """Return the hosts of a file of facts; raise FactsError."""
    content = _loaded(path)
    if not isinstance(content, dict) or not isinstance(content.get("hosts"), dict) or not content["hosts"]:
        raise FactsError(f"{path}: there is no mapping `hosts` with a host in it; `gpunode facts INVENTORY` writes one")
    if reason := newer(content, SCHEMA):
        raise FactsError(f"{path}: {reason}; {UPDATE}, or record the facts again")
    return tuple(_recorded(path, str(name), host) for name, host in content["hosts"].items())


def _recorded(path: Path, name: str, host: Any) -> Recorded:
    if isinstance(host, dict) and isinstance(host.get("unreachable"), str):
        return Recorded(name, None, host["unreachable"])
    facts = host.get("facts") if isinstance(host, dict) else None
    if not isinstance(facts, dict):
        raise FactsError(f"{path}: hosts.{name} has neither `facts` (a mapping) nor `unreachable` (a text)")
    unknown = sorted(set(facts) - set(Node.__dataclass_fields__))
    if unknown:
        raise FactsError(
            f"{path}: hosts.{name}.facts has unknown parts {', '.join(unknown)}; "
            f"allowed are {', '.join(Node.__dataclass_fields__)}"
        )
    for part in ("operating_system", "pci"):
        if part not in facts:
            raise FactsError(f"{path}: hosts.{name}.facts lacks {part}, without which nothing can be decided")
    if isinstance(facts.get("containerd"), dict):
        # A configuration may hold registry credentials: it is never recorded.
        facts = {**facts, "containerd": {"config_text": None, **facts["containerd"]}}
    system = facts["operating_system"]
    running = system.get("kernel", "") if isinstance(system, dict) else ""
    try:
        return Recorded(name, _NODE.validate_python({**_BARE, "boot": Boot(str(running)), **facts}), None)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise FactsError(f"{path}: hosts.{name}.facts.{where}: {first['msg']}{more}; see docs/plan.md") from error


def read_settings(path: Path, hosts: tuple[str, ...]) -> dict[str, Settings]:
    """Return host -> settings of a YAML file: settings for all, below `hosts` what differs for one, --set above both.

    Raises FactsError where the file cannot be read, SettingsError with every mistake in the settings.
    """
    content = _loaded(path)
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise FactsError(f"{path}: must be a mapping of settings, such as `driver: {{branch: '580'}}`")
    own = content.pop("hosts", {}) or {}
    if not isinstance(own, dict) or not all(isinstance(value, dict) for value in own.values()):
        raise FactsError(f"{path}: hosts must be a mapping of host name to settings")
    strangers = sorted(str(name) for name in own if name not in hosts)
    if strangers:
        raise FactsError(f"{path}: hosts.{strangers[0]} has no facts; there are facts of {', '.join(hosts)}")
    return check_hosts({name: overridden({**content, **own.get(name, {})}) for name in hosts}, frozenset())


def _loaded(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return load_json(text, FLEET, unique=True) if path.suffix == ".json" else load_yaml(text, unique=True)
    except OSError as error:
        raise FactsError(f"{path}: {error.strerror}") from error
    except (KeyTwiceError, TextLimitError) as error:
        raise FactsError(f"{path}: {error}") from None
    except ValueError as error:
        raise FactsError(f"{path}: is neither JSON nor YAML that can be read: {in_one_line(error)}") from error
