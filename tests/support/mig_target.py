"""Helpers and data for the tests of mig target."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyinfra.context import ctx_host

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.reading import Unknown
from gpunode.components.mig.boot import MigBoot, desired_files, lines_of
from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.state import DISABLED, ENABLED, ComputeInstance, GpuInstance, Mig, MigGpu, OwnProfile
from gpunode.components.mig.target import Target, targets
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.facts.runtimes import Crio as CrioFact
from gpunode.facts.runtimes import Docker as DockerFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.fleet.rollout.choice import left_out
from gpunode.kubernetes.device_plugin.decide_labels import LABEL, decide_labels, desired_labels
from gpunode.kubernetes.device_plugin.promise import mig_state
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import MIG_STATE, note
from gpunode.kubernetes.nodes.labels import owned as marked_ours
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.node.plan import PlannedStep, plan
from gpunode.node.verdict import judge
from gpunode.operations import mig as operation
from gpunode.settings import Settings, settings_from
from gpunode.system.pci import PciGpu, PciGpus
from gpunode.system.transaction import Journal
from tests.support.simulated_host import Host, State, commands
from tests.support.verify import DATA, GOOD

DECLARATION = """
version: v1
mig-configs:
  mixed:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}}
    - {devices: [1], mig-enabled: false}
  wider:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 2}}
  pair:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 1}}
  both:
    - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 1}}
  unverified:
    - {devices: all, mig-enabled: true, mig-devices: {2g.48gb: 1, 1g.24gb: 2}}
  board:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 1, 2g.20gb: 1}}
    - {devices: [1], device-filter: ["0x233010DE:0x16C010DE"], mig-enabled: true, mig-devices: {2g.20gb: 1}}
"""


H100 = PciGpu("0000:1a:00.0", "2330", "GH100 [H100 SXM5 80GB]", "hopper")


SECOND = replace(H100, address="0000:40:00.0")


OWN = tuple(
    OwnProfile(spot.profile_id, spot.name, spot.maximum, spot.maximum, spot.starts, spot.size)
    for spot in getattr(product_geometry("H100-80GB"), "spots", ())
)


def judged(settings: Settings, node: Node) -> tuple[Finding, ...]:
    return decisions(settings, node)["mig"].findings


def instances(*places: str) -> tuple[GpuInstance, ...]:
    """Return GPU instances from words such as `3g.40gb:4`, each with one compute instance."""
    found = []
    for number, place in enumerate(places):
        profile, start = place.split(":")
        size = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 4}[profile]
        compute = ComputeInstance(0, 0, profile, 0, int(profile[0]), f"MIG-{number}")
        found.append(GpuInstance(number + 1, 0, profile, int(start), size, (compute,)))
    return tuple(found)


def gpu(index: int = 0, mode: str = ENABLED, *places: str, **more: Any) -> MigGpu:
    reading = MigGpu(
        index, f"GPU-{index}", ("0000:1a:00.0", "0000:40:00.0")[index], "2330", "NVIDIA H100 80GB HBM3", mode, mode,
        instances(*places), OWN if mode == ENABLED else (),
    )  # fmt: skip
    return replace(reading, **more)


ON, OFF = gpu(), gpu(0, DISABLED)


MIXED = ("3g.40gb:4", "2g.20gb:2", "1g.10gb:0", "1g.10gb:1")


def node_with(*gpus: MigGpu, boot: MigBoot, shims: int = 0, status: str = "ok") -> Node:
    return replace(
        GOOD, pci=PciGpus((H100, SECOND)[: len(gpus)]), mig=Mig(status, None, gpus), mig_boot=boot,
        containerd=replace(GOOD.containerd, shims=shims),
    )  # fmt: skip


FILES = tuple((path, hashlib.sha256(text.encode()).hexdigest()) for path, text in desired_files().items())


def boot_of(*record: str, **more: Any) -> MigBoot:
    return replace(MigBoot(FILES, record, enabled=True), **more)


RECORD = "GPU-0 on 3g.40gb:4=3 2g.20gb:2=2 1g.10gb:0=1 1g.10gb:1=1"


def gpus_of(texts: list[str], changes: dict[str, Any]) -> tuple[MigGpu, ...]:
    """Return GPUs by texts such as `on 3g.40gb:4`, each with the same changes."""
    every = (text.split() for text in texts)
    return tuple(
        gpu(index, ENABLED if mode == "on" else DISABLED, *places, **changes)
        for index, (mode, *places) in enumerate(every)
    )


def targeted(
    config: str, gpus: list[str], device: str = "2330", board: str | None = None, changes: dict[str, Any] | None = None
) -> tuple[Target, ...]:
    """Return what a configuration of DECLARATION makes of GPUs."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "mig.yaml").write_text(DECLARATION)
        settings = settings_from({"mig": {"config": config, "file": f"{folder}/mig.yaml"}}).mig
        found = gpus_of(gpus, {"device_id": device, **(changes or {})})
        here = (replace(each, device_id=device, subsystem_id=board) for each in (H100, SECOND)[: len(found)])
        return targets(settings, tuple(here), Mig("ok", None, found))


@dataclass(frozen=True)
class StateLabel:
    """Hold the state of a MIG configuration, what drift reports of its label, and what a run makes of that label."""

    state: str | Unknown | None
    found: tuple[Finding, ...]
    label: str | None
    owned: bool


def state_label(
    config: str | None,
    gpus: list[str],
    status: str = "ok",
    changes: dict[str, Any] | None = None,
    label: str | None = "success",
    owned: bool = True,
    method: str = "helm",
) -> StateLabel:
    """Return what becomes of the label of a node's MIG state; owned: whether gpunode set it."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "mig.yaml").write_text(DECLARATION)
        mig = {} if config is None else {"config": config, "file": f"{folder}/mig.yaml"}
        cluster = {"kubernetes": {"enabled": True}, "device_plugin": {"method": method}}
        settings = settings_from({**cluster, "mig": mig, "sharing": {"mig_strategy": "mixed"}})
        found = gpus_of(gpus, changes or {})
        state = mig_state(settings.mig, (H100, SECOND)[: len(gpus) or 1], Mig(status, None, found))
    labels = {} if label is None else {MIG_STATE: label}
    node = ClusterNode("gpu-1", labels, note([MIG_STATE] if owned else []), {}, False, True)
    decision = decide_labels(desired_labels("gpu-1", settings, state), node)
    step = next((step.change for step in decision.steps if step.change is not None), None)
    after, ours = (labels, node.ours) if step is None else (step.applied_to(labels), step.ours)
    return StateLabel(
        state,
        tuple(item for item in decision.findings if LABEL.named(item) == MIG_STATE),
        after.get(MIG_STATE),
        MIG_STATE in marked_ours(ours),
    )


@dataclass(frozen=True)
class Outcome:
    """Hold what drift, plan, rollout and a run say of MIG on a node.

    told: variable -> value of what the transaction is given; ran: how many commands there are
    """

    bad: tuple[Finding, ...]
    steps: tuple[PlannedStep, ...]
    leaves_out: FindingClass | None
    ran: int
    told: dict[str, str] | None
    noop: str | None
    refusal: str | None


def outcome(
    config: str | None,
    gpus: list[str],
    changes: dict[str, Any] | None = None,
    status: str = "ok",
    boot: dict[str, Any] | None = None,
    shims: int = 0,
    allow: str = "restart",
    by_label: bool = False,
    loaded: str = "580.95.05",
    journal: str | None = None,
    executing: bool = True,
) -> Outcome:
    """Return what is said of a node with such GPUs, whose layout for the next boot is RECORD but for what `boot` says.

    boot: `none` is true where nothing brings a layout back, `script` its digest, or null where it is gone
    loaded: the driver that is loaded, of 580.95.05 on disk
    """
    there, nothing = dict(boot or {}), (boot or {}).get("none")
    if "record" in there and there["record"] is not None:
        there["record"] = lines_of(there["record"])
    if "script" in there:
        script = there.pop("script")
        there["files"] = FILES[:1] if script is None else (FILES[0], (FILES[1][0], script))
    known = MigBoot() if nothing else boot_of(RECORD, **there)
    with TemporaryDirectory() as folder:
        (Path(folder) / "mig.yaml").write_text(DECLARATION)
        mig = {"config_from_label": by_label} if config is None else {"config": config, "file": f"{folder}/mig.yaml"}
        cluster = {"kubernetes": {"enabled": True}, "sharing": {"mig_strategy": "mixed"}} if by_label else {}
        settings = settings_from({**DATA, **cluster, "mig": mig, "disruption": {"allow": allow}})
        node = node_with(*gpus_of(gpus, changes or {}), boot=known, shims=shims)
        node = replace(
            node, pci=PciGpus((H100, SECOND)[: len(gpus) or 1]), mig=replace(node.mig, status=status),
            driver=replace(node.driver, loaded_version=loaded),
        )  # fmt: skip
        state = State()
        state.is_executing = executing
        host = Host({
            MigFact: node.mig, MigBootFact: known, ContainerdFact: node.containerd, DockerFact: node.docker,
            CrioFact: node.crio, DriverFact: node.driver, TransactionJournal: Journal(journal, "x", None, False),
        }, state=state)  # fmt: skip
        with ctx_host.use(host):
            made = commands(operation.layout, host, settings=settings.mig, gpus=node.pci.gpus, allowed=allow)
        left = left_out(NodeReport("gpu-1", judge(settings, node)), everyone=False, allowed=Disruption[allow])
        return Outcome(
            tuple(item for item in judged(settings, node) if item.finding_class is not FindingClass.OK),
            tuple(step for step in plan(settings, node).steps if step.component == "mig"),
            None if left is None else left.finding_class, len(made), _told(made, known),
            "".join(host.noops) or None, "".join(host.refusals) or None,
        )  # fmt: skip


def _told(made: list[str], boot: MigBoot) -> dict[str, str] | None:
    if not made or "name=mig" not in made[-1]:
        return None
    script = base64.b64decode(made[-1].rpartition("<<< ")[2]).decode()
    names = ("goal", "rest", "layout", "reset", "boot", "unit_read", "script_read", "record_read")
    found = {name: re.search(rf"^{name}=('[^']*'|\S*)$", script, re.M) for name in names}
    told = {name: match[1].strip("'") for name, match in found.items() if match}
    known = {digest: "as-it-is" for path, digest in boot.files if digest == dict(FILES).get(path)}
    return {name: known.get(value, value) for name, value in told.items()}
