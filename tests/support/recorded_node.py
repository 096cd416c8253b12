"""A node as an earlier gpunode left it, from a recording, and a run of pyinfra on it that is SIMULATED: facts come from
the recording, and commands are kept instead of run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from pyinfra.api import Config, Inventory, State, StringCommand
from pyinfra.api.connect import connect_all
from pyinfra.api.host import Host
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput
from pyinfra.context import ctx_config, ctx_inventory, ctx_state
from pyinfra_cli.util import load_deploy_file

from gpunode import deploys
from gpunode.base.file import File
from gpunode.facts.node import PARTS
from gpunode.node import Node
from gpunode.node.machine import Machine
from gpunode.node.recorded import read_facts
from gpunode.packages.deb import AptRepository
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.families.dnf import LockedPackages
from gpunode.packages.installed_packages import InstalledPackages, OutdatedServices
from gpunode.packages.trust import PERMISSIONS
from gpunode.system.applied import PATH, parse_applied
from gpunode.system.kernel import KernelFeatures
from gpunode.system.service import Unit
from gpunode.system.transaction import Journal


class RecordedNode:
    """Hold a recorded node: the host's data, path -> text of its files, and its state."""

    def __init__(self, folder: Path) -> None:
        def read(name: str) -> Any:
            return json.loads((folder / f"{name}.json").read_text())

        self.data: dict[str, Any] = read("settings")
        self.packages: dict[str, Any] = read("packages")
        self.files: dict[str, str] = read("files")
        if (record := folder / "applied.json").exists():
            self.files[PATH] = record.read_text()
        (recorded,) = read_facts(folder / "facts.json")
        assert recorded.node is not None
        node = recorded.node
        # Recorded facts hold no texts of configurations: these may hold credentials.
        texts = {
            name: replace(getattr(node, name), config_text=self.files.get(getattr(node, name).config_path, ""))
            for name in ("containerd", "docker")
        }
        file = node.kubelet.configuration and node.kubelet.configuration.file
        kubelet = replace(node.kubelet, files=((file, self.files[file]),)) if file else node.kubelet
        self.node: Node = replace(node, applied=parse_applied(self._lines()), kubelet=kubelet, **texts)

    def _digest(self, path: str) -> str:
        return hashlib.sha256(self.files[path].encode()).hexdigest()

    def _lines(self) -> list[str]:
        lines = [f"file=644 root:root {path}" for path in self.files]
        lines += [f"sha256={self._digest(path)} {path}" for path in self.files]
        record = base64.b64encode(self.files.get(PATH, "").encode()).decode()
        return [*lines, f"record={record}"] if record else lines

    def fact(self, name: str, **arguments: Any) -> Any:
        """Return the reading of a fact; raise KeyError for one that was not recorded."""
        match name:
            case "Node":
                return self.node
            case "Machine":
                return Machine(**{each.name: getattr(self.node, each.name) for each in fields(Machine)})
            case "File" if arguments["path"] in self.files:
                return File(self._digest(arguments["path"]), "644", "root", "root")
            case "File":
                return File(None, None, None, None)
            case "TransactionJournal":
                return Journal(None, None, None, False)
            case "Unit":
                return Unit("loaded", "active", "running", "enabled")
            case "KernelFeatures":
                return KernelFeatures(("overlay", "br_netfilter"))
            case "DebPackages" | "RpmPackages":
                installed = self.packages["installed"]
                return InstalledPackages(
                    tuple((each, installed[each]) for each in arguments["names"] if each in installed)
                )
            case "OutdatedServices":
                return OutdatedServices()
            case "DriverPackages":
                kind = LockedPackages if "locklist" in self.packages["driver"] else DriverPackages
                return TypeAdapter(kind).validate_python(self.packages["driver"])
            case "AptRepository" | "DnfRepository":
                label = arguments["source"].rpartition("gpunode-")[2].partition(".")[0]
                key, text = dict(self.node.keyrings.keys).get(label), self.files.get(arguments["source"])
                return AptRepository((key,) if key else (), text, "same", "same", "amd64", permissions=PERMISSIONS)
        return getattr(self.node, {fact.__name__: part for part, fact in PARTS.items()}[name])

    def run(self, patched: pytest.MonkeyPatch, deploy: str = "gpu_node") -> tuple[list[str], list[str]]:
        """Run a deploy to its end; return the names of its operations, and its commands."""
        commands: list[str] = []

        def kept(connector: FakeConnector, command: StringCommand, *_: Any, **__: Any) -> tuple[bool, CommandOutput]:
            commands.append(command.get_raw_value())
            return True, CommandOutput([])

        patched.setattr(Host, "get_fact", lambda host, fact, **arguments: self.fact(fact.__name__, **arguments))
        patched.setattr(FakeConnector, "run_shell_command", kept)
        data = self.data
        if "kubernetes" in data:
            # The host's name here is none that a node of a cluster can have.
            data = {**data, "kubernetes": {**data["kubernetes"], "node_name": "gpu-1"}}
        inventory = Inventory((["@fake/gpu-1"], {}), gpu_nodes=(["@fake/gpu-1"], data))
        state = State(inventory, Config())
        with ctx_state.use(state), ctx_inventory.use(inventory), ctx_config.use(state.config):
            connect_all(state)
            state.set_stage(StateStage.Prepare)
            load_deploy_file(state, str(Path(deploys.__file__).parent / f"{deploy}.py"))
            state.set_stage(StateStage.Execute)
            run_ops(state)
            assert not state.failed_hosts
            return [name for each in state.get_op_order() for name in state.get_op_meta(each).names], commands
