"""gpunode's reading and plan of MIG declarations against what nvidia-mig-parted did with the same ones, as recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gpunode.components.mig.change import Instance
from gpunode.components.mig.geometry import Geometry, product_geometry
from gpunode.components.mig.goal import Verdict, judge
from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu, OwnProfile
from gpunode.components.mig.target import Target, TargetError, targets
from gpunode.lab.hardware.simulated.smi.mig.instances import Instances
from gpunode.lab.hardware.simulated.smi.session import Session
from gpunode.settings.mig import MigSettings
from gpunode.settings.mig_parted.declaration import published
from gpunode.settings.mig_parted.document import parse_profile
from gpunode.system.pci import PciGpu
from tests.support.nvidia_smi import VERSION, machine_with, smi

pytestmark = pytest.mark.pure

DATA = Path(__file__).parents[1] / "recorded" / "mig-parted"
LAB = Path(__file__).parents[2] / "lab" / "hardware" / "simulated"
GPUS: dict[str, Any] = json.loads((LAB / "gpus.json").read_text())
ONE = ["h100-80gb"]
_WORDS = {"on": "Enabled", "off": "Disabled", "none": "[N/A]"}
_PLACED = re.compile(r"(?P<profile>\d[^:]*):(?P<start>\d+)(?:/(?P<sizes>[\d,]*))?")


def recorded(name: str) -> Any:
    """Return what a file of recorded answers holds."""
    return yaml.load((DATA / f"{name}.yaml").read_text(), yaml.CSafeLoader)


def without_places(layout: str) -> str:
    """Return a GPU's layout, `on PROFILE:START/SIZES`, without starts and in the order of names."""
    mode, *words = layout.split()
    return " ".join([mode, *sorted(re.sub(r":\d+", "", word) for word in words if _PLACED.match(word))])


def _instances(words: list[str], geometry: Geometry) -> Iterator[GpuInstance]:
    spots = {spot.name: spot for spot in geometry.spots}
    for number, found in enumerate(filter(None, map(_PLACED.fullmatch, words))):
        spot, sizes = spots[found["profile"]], found["sizes"]
        whole = [spot.profile.slices] if sizes is None else [int(size) for size in sizes.split(",") if size]
        compute = tuple(ComputeInstance(index, 0, spot.name, 0, size) for index, size in enumerate(whole))
        yield GpuInstance(number, spot.profile_id, spot.name, int(found["start"]), spot.size, compute)


def _gpu(index: int, model: dict[str, Any], layout: str) -> MigGpu:
    mode, *words = layout.split()
    current, _, pending = (mode if model["mig"] else "none").partition(">")
    geometry = product_geometry(model["mig"]) if model["mig"] else None
    own = (
        tuple(OwnProfile(s.profile_id, s.name, s.maximum, s.maximum, s.starts, s.size) for s in geometry.spots)
        if geometry
        else ()
    )
    return MigGpu(
        index, f"GPU-{index}", f"0000:{index:02x}:00.0", model["device_id"].upper(), model["name"],
        _WORDS[current], _WORDS[pending or current],
        tuple(_instances(words, geometry)) if geometry else (), own if current == "on" else (),
    )  # fmt: skip


def _layout(instances: Iterable[Instance]) -> str:
    words = []
    for instance in instances:
        profile, sizes = parse_profile(instance.placement.profile), sorted(instance.compute, reverse=True)
        words.append(str(profile) if sizes == [profile.slices] else f"{profile}/{','.join(map(str, sizes))}")
    return " ".join(sorted(words))


def _after(found: Target) -> str:
    return " ".join(filter(None, ["on" if found.enabled else "off", _layout(found.instances)]))


def _file(case: dict[str, Any]) -> str:
    if "entry" in case:
        return f"version: v1\nmig-configs:\n  c:\n  - {case['entry']}\n"
    if "file" in case:
        return str(case["file"])
    return json.dumps({"version": "v1", "mig-configs": {"c": case["entries"]}})


def planned(path: Path, case: dict[str, Any]) -> list[str] | str:
    """Return the layouts that gpunode plans for the GPUs of a case, or `refused`."""
    path.write_text(_file(case))
    models = [GPUS[name] for name in case.get("gpus", ONE)]
    before = case.get("before") or ["off" if model["mig"] else "none" for model in models]
    state = tuple(_gpu(index, *each) for index, each in enumerate(zip(models, before, strict=True)))
    bus = [
        PciGpu(gpu.pci_address, gpu.device_id, None, None, subsystem_id=f"{model['subsystem_id']}10de".upper())
        for gpu, model in zip(state, models, strict=True)
    ]
    try:
        settings = MigSettings(config=case.get("config", "c"), file=str(path), stop_units=())
        if any(settings.contradictions()):
            return "refused"
        found = {each.gpu.index: each for each in targets(settings, bus, Mig("ok", None, state))}
    except (ValidationError, TargetError):
        return "refused"
    return [_after(found[index]) if index in found else without_places(layout) for index, layout in enumerate(before)]


@pytest.mark.parametrize("name", ["states", "documents"])
def test_what_a_declaration_makes_of_a_node_is_what_the_program_made_of_it(tmp_path: Path, name: str) -> None:
    wrong = {}
    for number, case in enumerate(recorded(name)):
        done = "refused" if "code" in case else [without_places(layout) for layout in case["after"]]
        desired = case["gpunode"] if "differs" in case else done
        assert "differs" not in case or desired != done, case["name"]
        actual = planned(tmp_path / f"{number}.yaml", case)
        if actual != desired:
            wrong[case["name"]] = (actual, desired)
        # What the program exports of such a node means the node as it is.
        if "export" in case:
            exported = {"entries": case["export"], "gpus": case.get("gpus", ONE), "before": case["after"]}
            assert planned(tmp_path / f"{number}-export.yaml", exported) == list(map(without_places, case["after"]))
    assert not wrong


def test_every_layout_is_placed_or_refused_as_by_the_program() -> None:
    wrong = {}
    for gpu, layouts in recorded("layouts").items():
        for desired, after in layouts.items():
            devices = {name: int(count) for name, count in (each.split("=") for each in desired.split())}
            judged = judge(GPUS[gpu]["mig"], devices)
            if after in (None, "silent", "only_gpunode"):
                right = (judged.verdict is Verdict.PLACED) == (after == "only_gpunode")
            else:
                right = _layout(judged.instances or ()) == without_places(f"on {after}")[3:]
            if not right:
                wrong[gpu, desired] = (judged, after)
    assert not wrong


@pytest.mark.parametrize("gpu", ["h100-80gb", "a30"])
def test_the_simulated_driver_chooses_the_recorded_places(tmp_path: Path, gpu: str) -> None:
    machine = machine_with(tmp_path, {"gpu": gpu, "count": 1})
    smi(machine, "-mig 1")
    (only,) = machine.gpus()
    session = Session(machine, VERSION, (only,))
    for desired, after in recorded("layouts")[gpu].items():
        words = [] if after in (None, "silent", "only_gpunode") else after.split()[:3]
        every = Instances(session, only)
        for instance in tuple(every):
            every.destroy(instance)
        created = [every.create(every.profile(word.split(":")[0]), None) for word in words]
        places = [f"{each.profile.name}:{each.start}" for each in created]
        assert places == [word.split("/")[0] for word in words], desired


def test_published_names_mean_what_the_program_generates() -> None:
    for product, configs in recorded("published").items():
        entries = {name: entry for name, (entry,) in published(product).configs.items()}
        actual = {name: dict(each.mig_devices or {}) if each.mig_enabled else None for name, each in entries.items()}
        assert actual == configs, product
