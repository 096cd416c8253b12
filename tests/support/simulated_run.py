"""A run of gpu_node.py on a node whose readings a test broke, SIMULATED: the real operations decide over the readings.

Each command succeeds and is kept instead of run. After the first one of a deploy, what that deploy is about is as it
was recorded, if the plan leaves none of it; the verdict then finds what no step of the plan removes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyinfra.api import Config, Inventory, State, StringCommand
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput
from pyinfra.context import ctx_config, ctx_inventory, ctx_state
from pyinfra_cli.util import load_deploy_file

from gpunode import deploys
from gpunode.base.file import File
from gpunode.base.findings import PENDING, Finding, FindingClass
from gpunode.components.mig.state import Mig, MigGpu
from gpunode.fleet import run_end
from gpunode.node.components import decisions
from gpunode.node.machine import resolved
from gpunode.node.plan import Plan
from gpunode.node.plan import plan as plan_of
from gpunode.node.verdict import judge, judged
from gpunode.operations import reboot, verify
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.settings import Settings, settings_from
from gpunode.system.boot import Kernel
from gpunode.system.running_boot import RunningBoot
from gpunode.system.service import Unit
from gpunode.system.transaction import Journal
from tests.support.docker_change import RIGHT
from tests.support.recorded_node import RecordedNode

# The deploy of a component -> the component, and the parts of a node that are as recorded after it.
_DEPLOYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Reboot": ("driver", ("driver", "gpus", "boot")),
    "Driver": ("driver", ("driver", "gpus", "boot")),
    "CUDA": ("cuda", ("cuda",)),
    "Container toolkit": ("toolkit", ("toolkit",)),
    "containerd": ("containerd", ("containerd",)),
    "docker": ("docker", ("docker",)),
    "DCGM": ("dcgm", ("dcgm",)),
    "MIG": ("mig", ("mig", "mig_boot")),
    "MPS": ("mps", ("mps",)),
    "Power": ("power", ("power",)),
}
# What nvidia-smi answers of the recorded GPU, without MIG.
_WHOLE = MigGpu(0, "GPU-1", "0000:1a:00.0", "2330", "H100", "Disabled", "Disabled", ())
_TARGET = re.compile(r"\bname=(\S+) target=([0-9a-f]{64})")
_VERSION = re.compile(r"^upstream='?([0-9.]+)'?$", re.MULTILINE)
_NONE: tuple[str, tuple[str, ...]] = ("", ())
_UNITS = {"containerd.service": "containerd", "docker.service": "docker"}


@dataclass(frozen=True)
class Broken:
    """Hold what is not as recorded: fields of a part of the node, packages by the start of their names, files."""

    part: str
    fields: dict[str, Any]
    packages: str | None = None
    files: tuple[str, ...] = ()


class BrokenNode(RecordedNode):
    """Hold a recorded node of which something is broken."""

    def __init__(self, recorded: RecordedNode, broken: Collection[Broken], failed: Collection[Journal] = ()) -> None:
        vars(self).update(vars(copy(recorded)))
        # Recordings of an earlier gpunode do not have them.
        driver = tuple(tuple(each) for each in self.packages["driver"]["packages"] if "nvidia" in each[0])
        held = tuple(name for name, _ in driver)
        of_driver = replace(recorded.node.driver, packages=driver, held=held)
        boots = Kernel(recorded.node.boot.running, headers=True, module_version=of_driver.module_version)
        boot = replace(recorded.node.boot, next_release=boots.release, decided_by="grub", kernels=(boots,))
        boot = replace(boot, blacklist_written=1.0)
        recorded_node = replace(recorded.node, driver=of_driver, boot=boot)
        if recorded_node.mig.status == "absent":
            recorded_node = replace(recorded_node, mig=Mig("ok", None, (_WHOLE,)))
        self.node, self.lost = recorded_node, list(broken)
        # A docker that a run installs is a right one, too.
        docker = RIGHT if recorded_node.docker.version is None else recorded_node.docker
        self.recorded = replace(recorded_node, docker=docker)
        for each in broken:
            self.node = replace(self.node, **{each.part: replace(getattr(self.node, each.part), **each.fields)})

        self.node = replace(self.node, interrupted=replace(self.node.interrupted, failed=tuple(failed)))
        self.failed = {each.name: each for each in failed}

    def mend(self, parts: Collection[str]) -> None:
        """Make the parts what was recorded."""
        self.node = replace(self.node, **{part: getattr(self.recorded, part) for part in parts})
        self.lost = [each for each in self.lost if each.part not in parts]

    def _unit(self, name: str) -> Unit | None:
        of_driver = self.node.driver.service(name.removesuffix(".service"))
        service = getattr(self.node, _UNITS[name]) if name in _UNITS else self.node.dcgm.units.get(name) or of_driver
        if service is None:
            return None
        if service.masked:
            return Unit("masked", "inactive", "dead", "masked")
        active, enabled = "active" if service.active else "inactive", "enabled" if service.enabled else "disabled"
        return Unit("loaded", active, "", enabled)

    def fact(self, name: str, **arguments: Any) -> Any:
        """Return the reading of a fact."""
        driver = tuple((name, version) for name, version in self.packages["driver"]["packages"])
        if name == "RunningBoot":
            return RunningBoot("b7f7", 1)
        if name in ("DriverOffers", "DnfOffers"):
            return Offers(driver)
        if name in ("DriverSimulation", "DnfSimulation"):
            return Simulation(tuple((name, None, version) for name, version in driver if "nvidia" in name), ())
        found: Any = super().fact(name, **arguments)
        starts = [each.packages for each in self.lost if each.packages is not None]
        starts += [each for each in ("containerd", "docker") if getattr(self.node, each).version is None]
        match name:
            case "File" if any(arguments["path"] in each.files for each in self.lost):
                return File(None, None, None, None)
            case "TransactionJournal" if arguments["transaction"] in self.failed:
                return self.failed[arguments["transaction"]]
            case "Unit" if (unit := self._unit(arguments["unit"])) is not None:
                return unit
            case "DebPackages" | "RpmPackages":
                left = [each for each in found.installed if not each[0].startswith(tuple(starts))]
                return replace(found, installed=tuple(left))
            case "DriverPackages" if any("nvidia-open".startswith(each) for each in starts):
                left = [each for each in found.packages if "nvidia" not in each[0]]
                return replace(found, packages=tuple(left), held=())
        return found


@dataclass(frozen=True)
class Ended:
    """Hold how a run ended: `good`, `waits`, `failed` or `refused`; why; and the deploys that ran a command.

    changes: the transactions that it ran, as records of changes that failed
    """

    how: str
    why: tuple[str, ...]
    deploys: frozenset[str]
    changes: tuple[Journal, ...] = ()


def promised(plan: Plan) -> str:
    """Return how the run of a plan is to end."""
    if plan.refusals:
        return "refused"
    if any(step.fails or (step.not_known and not step.is_unasked) for step in plan.steps):
        return "failed"
    return "waits" if plan.is_negative else "good"


def _settled(settings: Settings, node: BrokenNode, plan: Plan) -> set[tuple[str, str]]:
    """Return (component, what) of the findings that the plan's steps remove."""
    decided = decisions(resolved(settings, node.node), node.node)
    every = (*decided.values(), judged(settings, node.node, decided=decided)[1])
    steps = [step for decision in every for step in decision.steps if step.waits is None]
    pending = {(step.component, step.what) for step in plan.steps if step.pending}
    return {(item.component, item.what) for step in steps for item in step.settles} - pending


def _deploys_of(component: str) -> set[str | None]:
    """Return the deploys of a component; None among them where its findings are removed by others."""
    return {deploy for deploy, (name, _) in _DEPLOYS.items() if name == component} or {None}


def ended(node: BrokenNode, data: dict[str, Any]) -> Ended:
    """Carry out gpu_node.py on a node by these settings."""
    settings = settings_from(data)
    plan = plan_of(settings, node.node)
    settled = _settled(settings, node, plan) if not plan.refusals else set()
    left = {step.component for step in plan.steps if step.pending}
    at_work: set[str] = set()
    changes: list[Journal] = []

    def kept(connector: FakeConnector, command: StringCommand, *_: Any, **__: Any) -> tuple[bool, CommandOutput]:
        operation = run_end._operation.of(connector.state) or ""
        deploy, name = operation.partition(" | ")[::2]
        at_work.add(deploy)
        if begun := _TARGET.search(command.get_raw_value()):
            (script,) = command.connector_arguments["_stdin"]
            installed = _VERSION.search(base64.b64decode(script).decode())
            version = installed[1] if installed else None
            changes.append(Journal("failed", begun[2], "it does not work", False, None, version, begun[1]))
        component, parts = _DEPLOYS.get(deploy, _NONE)
        if name.startswith("Trust the"):
            node.mend(("keyrings",))
        elif component not in left:
            node.mend(parts)
        return True, CommandOutput([])

    def seen(*arguments: Any, **more: Any) -> tuple[Finding, ...]:
        of = {
            item: (item.component, item.what) in settled and _deploys_of(item.component) & {*at_work, None}
            for item in judge(*arguments, **more)
        }
        return tuple(replace(item, finding_class=FindingClass.OK) if done else item for item, done in of.items())

    inventory = Inventory((["@fake/gpu-1"], {}), gpu_nodes=(["@fake/gpu-1"], data))
    state = State(inventory, Config())
    with (
        patch.object(Host, "get_fact", lambda host, fact, **arguments: node.fact(fact.__name__, **arguments)),
        patch.object(FakeConnector, "run_shell_command", kept),
        patch.object(verify, "judge", seen),
        patch.object(verify, "_waited", lambda *_: False),
        patch.object(reboot, "SSHConnector", FakeConnector),
        patch.object(reboot, "_wait", lambda *_: True),
        ctx_state.use(state), ctx_inventory.use(inventory), ctx_config.use(state.config),
    ):  # fmt: skip
        run_end.watch(state)
        connect_all(state)
        state.set_stage(StateStage.Prepare)
        load_deploy_file(state, str(Path(deploys.__file__).parent / "gpu_node.py"))
        state.set_stage(StateStage.Execute)
        try:
            run_ops(state)
        except PyinfraError as error:
            assert "No hosts remaining" in str(error), error
        (host,) = state.inventory
        end = run_end._end(host)
        if end.refused:
            return Ended("refused", tuple(map(str, end.refused)), frozenset(at_work), tuple(changes))
        if host in state.failed_hosts:
            return Ended("failed", (str(end.failure),), frozenset(at_work), tuple(changes))
        waits = tuple(str(item) for item in end.findings or () if item.finding_class in PENDING)
        return Ended("waits" if waits else "good", waits, frozenset(at_work), tuple(changes))


def idle(plan: Plan, end: Ended) -> list[str]:
    """Return the components that the plan has steps of, and in whose deploys the run did nothing."""
    names = {component for component, _ in _DEPLOYS.values()}
    now = {step.component for step in plan.steps if not step.pending}
    at_work = {_DEPLOYS[deploy][0] for deploy in end.deploys & _DEPLOYS.keys()}
    return sorted(now & names - at_work)
