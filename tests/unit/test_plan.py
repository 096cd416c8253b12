"""Plans: what a run would do, in which order, what it disturbs; offline from recorded facts."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.components.driver.state import DriverState, Service
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.node import Node
from gpunode.node.plan import plan
from gpunode.node.recorded import FactsError, facts_json, read_facts, read_settings
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.boot import Kernel
from gpunode.system.health import GpuHealth
from gpunode.system.pci import PciGpu, PciGpus
from tests.reference import plan as reference
from tests.reference.schemas import facts_schema
from tests.support import warm
from tests.support.messages import unnamed
from tests.support.verify import BARE, GOOD, SETTINGS

pytestmark = pytest.mark.pure

BLACKWELL = replace(BARE, pci=PciGpus((PciGpu("0000:1a:00.0", "2901", "B200", "blackwell"),)))


def test_a_node_whose_steps_all_wait_is_not_said_to_be_done() -> None:
    sick = replace(GOOD, health=replace(GOOD.health, gpus=(GpuHealth("0000:1a:00.0", remap_failed=True),)))
    first, second = plan_text({"gpu-1": plan(SETTINGS, sick)}).splitlines()[:2]
    assert first.startswith("gpu-1: would fail") and "can be done" not in first and second.startswith("  1. ")
    # What differs, both sides, and the code of a step that waits.
    edited = replace(GOOD.containerd, runtimes=(replace(GOOD.containerd.runtimes[0], systemd_cgroup=False),), shims=1)
    shown = plan_text({"gpu-1": plan(SETTINGS, replace(GOOD, containerd=edited))}).splitlines()
    sides = ("SystemdCgroup of runc: none", "true", "restart")
    assert unnamed(shown[1], *sides, "WOULD FAIL", "containerd.systemdcgroup") == []


_WORSE = [
    ("driver", {"loaded_version": "570.172.08"}),
    ("driver", {"loaded_version": None}),
    ("driver", {"module_version": None, "loaded_version": None, "library_version": None}),
    ("driver", {"library_version": "570.172.08"}),
    ("driver", {"uvm_loaded": False}),
    ("driver", {"uvm_without_device": True}),
    ("driver", {"packages": (("nvidia-open", "580.95.05-1"),)}),
    ("driver", {"loaded_flavour": "proprietary", "module_license": "NVIDIA"}),
    ("driver", {"services": (Service("nvidia-persistenced", active=False, enabled=False),)}),
    ("gpus", {"status": "hangs", "gpus": ()}),
    ("gpus", {"status": "no driver", "gpus": ()}),
    ("health", {"gpus": (GpuHealth("0000:1a:00.0", remap_pending=True),)}),
    ("health", {"gpus": (GpuHealth("0000:1a:00.0", remap_failed=True),)}),
    ("boot", {"running": "6.1.0-40", "next_release": "6.1.0-41", "kernels": (Kernel("6.1.0-41", headers=False),)}),
    ("cuda", {"versions": ()}),
    ("cuda", {"default_path": "/usr/local/cuda-11.8"}),
    ("cuda", {"profile": False}),
    ("toolkit", {"runtime_path": None}),
    ("toolkit", {"link_rule": False}),
    ("toolkit", {"unlinked": ("/dev/nvidia0",)}),
    ("containerd", {"version": None}),
    ("containerd", {"active": False}),
    ("containerd", {"enabled": False}),
    ("containerd", {"configured_at": 99.0}),
    ("containerd", {"default_runtime": "runc"}),
    ("containerd", {"cri_plugin": "error"}),
    ("keyrings", {"keys": ()}),
]


@given(worse=st.lists(st.sampled_from(_WORSE), max_size=4))
def test_a_plan_has_steps_exactly_where_the_verdict_finds_something_wanting(worse: list[tuple[str, Any]]) -> None:
    node = GOOD
    for part, fields in worse:
        node = replace(node, **{part: replace(getattr(node, part), **fields)})
    bad = {item.component for item in judge(SETTINGS, node) if item.finding_class is not FindingClass.OK}
    found = plan(SETTINGS, node)
    assert {step.component for step in found.steps} == (set() if found.refusals else bad)


@pytest.mark.parametrize(("part", "fields"), _WORSE)
def test_each_deviation_costs_as_much_in_the_plan_as_in_the_drift_report(part: str, fields: dict[str, Any]) -> None:
    node = replace(GOOD, **{part: replace(getattr(GOOD, part), **fields)})
    bad = [item for item in judge(SETTINGS, node) if item.finding_class is not FindingClass.OK]
    found = plan(SETTINGS, node)
    assert bad
    if not found.refusals:
        graves = {item.disruption or Disruption.nothing for item in bad}
        assert max(step.disruption for step in found.steps) == max(graves)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a file of facts of two nodes and one that was not reached, and a file of settings."""
    facts, settings = tmp_path / "facts.json", tmp_path / "settings.yaml"
    facts.write_text(json.dumps(facts_json({"gpu-1": GOOD, "gpu-2": BARE, "gpu-3": "timed out"})))
    settings.write_text(yaml.safe_dump({
        "driver": {"version": "580.95.05"}, "toolkit": {"version": "1.17.8"},
        "hosts": {"gpu-2": {"cuda": {"version": "13.0"}, "driver": {"branch": "570"}}},
    }))  # fmt: skip
    return facts, settings


def test_recorded_facts_are_read_back_as_they_were(files: tuple[Path, Path]) -> None:
    one, two, three = read_facts(files[0])
    kept = replace(GOOD, containerd=replace(GOOD.containerd, config_text=None))
    assert (one.node, two.node, three.node, three.reason) == (kept, BARE, None, "timed out")


def test_a_host_s_own_settings_win_over_those_for_all(files: tuple[Path, Path]) -> None:
    settings = read_settings(files[1], ("gpu-1", "gpu-2"))
    assert settings["gpu-1"] == SETTINGS
    assert settings["gpu-2"].driver.branch == "570" and settings["gpu-2"].toolkit.version == "1.17.8"


def test_a_file_may_leave_out_what_a_bare_machine_lacks(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    system = GOOD.to_json()["operating_system"]
    pci = {"gpus": [{"address": "0000:1a:00.0", "device_id": "2901", "name": "B200", "generation": "blackwell"}]}
    path.write_text(json.dumps({"schema": 1, "hosts": {"b": {"facts": {"operating_system": system, "pci": pci}}}}))
    (host,) = read_facts(path)
    assert host.node is not None and host.node.driver == DriverState((), None, None, None, None, None)
    refused = plan(settings_from({"driver": {"flavour": "proprietary"}}), host.node)
    assert refused.refusals[0].code == "preflight.flavour-not-proprietary"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("{", "YAML"),
        ("[]", "hosts"),
        ('{"schema": 9, "hosts": {"a": {"facts": {}}}}', "schema"),
        ('{"schema": 1, "hosts": {"a": 3}}', "hosts.a"),
        ('{"schema": 1, "hosts": {"a": {"facts": {}}}}', "operating_system"),
        ('{"schema": 1, "hosts": {"a": {"facts": {"gpu": 1}}}}', "gpu"),
        ('{"schema": 1, "hosts": {"a": {"facts": {"operating_system": {}, "pci": {}}}}}', "hosts.a.facts.operating_sy"),
    ],
)
def test_a_file_that_holds_no_facts_is_refused_with_the_place(tmp_path: Path, content: str, place: str) -> None:
    path = tmp_path / "facts.json"
    path.write_text(content)
    with pytest.raises(FactsError, match=r"facts\.json") as caught:
        read_facts(path)
    assert place in str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(part=st.sampled_from(sorted(Node.__dataclass_fields__)), value=_JSON)
def test_whatever_stands_in_a_file_of_facts_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, part: str, value: Any
) -> None:
    path = tmp_path_factory.mktemp("facts") / "facts.json"
    path.write_text(json.dumps({"schema": 1, "hosts": {"a": {"facts": {**GOOD.to_json(), part: value}}}}))
    try:
        (host,) = read_facts(path)
    except FactsError as error:
        assert "hosts.a" in str(error)
    else:
        assert host.node is not None


def _command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return warm.run("gpunode", "plan", *arguments, timeout=60)


def test_the_command_decides_offline_and_its_exit_code_says(files: tuple[Path, Path], tmp_path: Path) -> None:
    facts, settings = files
    done = _command("--facts", facts, "--settings", settings, "--json")
    assert done.returncode == 1, "gpu-3 was not reached"
    hosts = json.loads(done.stdout)["hosts"]
    assert [host["verdict"] for host in hosts.values()] == ["not known", "refused", "unreachable"]
    assert hosts["gpu-3"].pop("remedy")
    assert hosts["gpu-3"] == {"verdict": "unreachable", "reason": "timed out", "code": "node.connection"}
    two = tmp_path / "two.json"
    two.write_text(json.dumps(facts_json({"gpu-1": GOOD, "gpu-2": BARE})))
    refused = _command("--facts", two, "--settings", settings)
    assert refused.returncode == 2
    assert unnamed(refused.stdout, "containerd.configuration-files", "preflight.cuda-driver-too-old") == []
    settings.write_text("toolkit: {version: 1.17.8}\ndriver: {version: '580.95.05'}\n")
    done = _command("--facts", two, "--settings", settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert unnamed(done.stdout, "gpu-2: can be done", "580.95.05") == []


def test_recorded_facts_are_planned_by_the_inventory_s_settings(files: tuple[Path, Path], tmp_path: Path) -> None:
    inventory = tmp_path / "fleet.py"
    inventory.write_text(
        'new = [("gpu-1", {"driver": {"version": "580.95.05"}}), ("gpu-2", {"driver": {"branch": "570"}}), "gpu-9"]\n'
    )
    done = _command("--facts", files[0], inventory, "--set", "cuda.version=13.0", "--json")
    hosts = json.loads(done.stdout)["hosts"]
    assert done.returncode == 1
    # gpu-3 has facts alone, gpu-9 settings alone.
    assert {name: found.get("code", found["verdict"]) for name, found in hosts.items()} == {
        "gpu-1": "can be done", "gpu-2": "refused", "gpu-9": "node.recorded", "gpu-3": "node.recorded",
    }  # fmt: skip
    assert hosts["gpu-2"]["refusals"][0]["code"] == "preflight.cuda-driver-too-old"
    done = _command("--facts", files[0], inventory, "--limit", "gpu-1", "--limit", "gpu-2", "--json")
    document = json.loads(done.stdout)
    assert (list(document["hosts"]), document["inventory"]) == (["gpu-1", "gpu-2"], str(inventory))
    assert _command("--facts", files[0], "--settings", files[1], inventory).returncode == 64
    assert _command("--facts", files[0], inventory, "--limit", "gpu-3").returncode == 64


def test_no_cluster_is_asked_offline_and_that_is_not_known(tmp_path: Path) -> None:
    facts, settings = tmp_path / "facts.json", tmp_path / "settings.yaml"
    facts.write_text(json.dumps(facts_json({"gpu-1": BARE})))
    settings.write_text("kubernetes: {enabled: true}\nmig: {config_from_label: true}\nsharing: {mig_strategy: mixed}\n")
    done = _command("--facts", facts, "--settings", settings, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["cluster"]["verdict"]) == (2, "not known")
    assert [step["not_known"] for step in found["hosts"]["gpu-1"]["steps"] if step["component"] == "mig"] == [True]


def test_wrong_input_is_refused_with_exit_code_3_and_wrong_usage_with_64(files: tuple[Path, Path]) -> None:
    facts, settings = files
    settings.write_text("driver: {branch: 580}\n")
    wrong = _command("--facts", facts, "--settings", settings)
    assert wrong.returncode == 3 and "driver.branch" in wrong.stderr and "Traceback" not in wrong.stderr
    settings.write_text("driver: {branch: '580'}\ncuda: {enabled: true}\ndriver: {branch: '590'}\n")
    twice = _command("--facts", facts, "--settings", settings)
    assert twice.returncode == 3 and unnamed(twice.stderr, settings, "'driver'", "lines 1 and 3", "facts.refused") == []
    assert _command("--facts", facts, "--settings", "nowhere.yaml").returncode == 3
    assert _command("--facts", facts).returncode == 64
    assert _command().returncode == 64


def test_a_plan_s_json_is_as_its_schema_says() -> None:
    schema = reference.plan_schema()
    for settings, node in ((SETTINGS, BARE), (settings_from({"driver": {"flavour": "proprietary"}}), BLACKWELL)):
        jsonschema.validate(plan(settings, node).to_json(), schema)
    jsonschema.validate(GOOD.to_json(), facts_schema())
