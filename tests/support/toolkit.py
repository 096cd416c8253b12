"""Helpers and data for the tests of toolkit."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from gpunode.base.template import rendered
from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.components.runtimes.toolkit.cdi import CdiSpecification, read
from gpunode.components.runtimes.toolkit.configuration import Difference, desired_keys, differences, faults, render
from gpunode.components.runtimes.toolkit.specification import decide_specification
from gpunode.components.runtimes.toolkit.state import PACKAGES, parse_toolkit
from gpunode.settings import settings_from
from tests.support.readings import encoded
from tests.support.verify import GOOD

LOADED = "580.95.05"
OWN = CdiSpecification("/etc/cdi/nvidia.yaml", LOADED, True)
REFRESHED = CdiSpecification("/var/run/cdi/nvidia.yaml", LOADED)
HELD = replace(
    GOOD.toolkit, held=tuple(sorted(PACKAGES)),
    hold_text=rendered("toolkit-preferences", packages=GOOD.toolkit.to_hold),
)  # fmt: skip


def edited(text: str | None, settings: dict[str, Any]) -> str:
    """Return the text of config.toml as these settings ask for it."""
    return render(text, desired_keys(settings_from({"toolkit": settings}).toolkit))


def differing(text: str | None, settings: dict[str, Any]) -> tuple[Difference, ...]:
    """Return how config.toml differs from what these settings ask for."""
    return differences(text, desired_keys(settings_from({"toolkit": settings}).toolkit))


def faulty_keys(text: str, files: dict[str, str] | None = None, version: str = "1.20.2") -> list[str]:
    """Return the keys of config.toml by which no container starts or gets a GPU, with containerd on the node."""
    actual = replace(
        GOOD.toolkit, config_text=text, daemons=("containerd.service",), files=tuple((files or {"runc": "x"}).items())
    )
    return [each.key for each in faults(actual, {}, version)]


GPUS = ("GPU-8a4be059-c4e3-5db0-a7b9-a52d7df65c21", "GPU-2c911011-671e-5df3-aef1-74761b5a10cb")
_CDI = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
containerEdits: {env: [A=], hooks: [{hookName: prestart, path: /a}], mounts: [{hostPath: /a, containerPath: /a}]}
"""


def cdi_devices(before: str = "", after: str = "", text: str = _CDI) -> list[str] | None:
    """Return the devices of a CDI specification in which a text takes the place of another; None: it is not read."""
    assert before in text
    item = read("/etc/cdi/nvidia.yaml", text.replace(before, after) if before else text)
    return None if item is None or item.unreadable else [name for name, _ in item.devices or ()]


def _cdi_text(file: str | dict[str, Any]) -> str:
    """Return the text of a specification; of a table with `devices`, as name -> device nodes, one that has the rest."""
    if isinstance(file, str):
        return file
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": each} for each in nodes]}}
        for name, nodes in file["devices"].items()
    ]
    library = f"/usr/lib/libcuda.so.{LOADED}"
    hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}
    edits = {"mounts": [{"hostPath": library, "containerPath": library}], "hooks": [hook]}
    content = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": edits}
    return json.dumps({**content, **{key: value for key, value in file.items() if key != "devices"}})


def judged_cdi(
    files: dict[str, Any],
    lines: tuple[str, ...] = (),
    mig: dict[int, int] | None = None,
    refresh: str | None = None,
    gpus: int = 2,
    uvm_loaded: bool = True,
) -> SimpleNamespace:
    """Return what is found of a node's CDI specifications, and what is made and moved.

    lines: what else the probe prints; mig: GPU instance -> compute instance of the first GPU in MIG mode
    gpus: how many there are, of two at most; uvm_loaded: whether nvidia_uvm is loaded
    """
    texts = [f"cdi={path} {encoded(_cdi_text(file))}" for path, file in files.items()]
    minors = [f"minor={uuid} {number}" for number, uuid in enumerate(GPUS)]
    state = replace(parse_toolkit([*texts, *minors, *lines]), version="1.20.2", cdi_refresh=refresh)
    instances = [
        GpuInstance(gi, 0, "", 0, 1, (ComputeInstance(ci, 0, "", 0, 1, f"MIG-{gi}"),)) for gi, ci in (mig or {}).items()
    ]
    every = [MigGpu(index, uuid, "", "", "", "Disabled", "Disabled", ()) for index, uuid in enumerate(GPUS)]
    if mig is not None:
        every[0] = replace(every[0], current="Enabled", pending="Enabled", instances=tuple(instances))
    driver = replace(GOOD.driver, uvm_loaded=uvm_loaded)
    decision = decide_specification(True, state, driver, Mig("ok", None, tuple(every[:gpus])))
    (item,) = decision.findings
    change = next((step.change for step in decision.steps), None)
    return SimpleNamespace(
        found=item.actual,
        right=item.finding_class.value == "ok",
        by="person" if item.by_person else "run",
        makes=change and change.target,
        aside=list(change.aside) if change else [],
    )
