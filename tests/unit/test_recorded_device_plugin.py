"""What gpunode and the lab expect of the device plugin and of feature discovery, held against recorded answers.

tests/recorded/device_plugin.yaml says how they were recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.kubernetes.device_plugin.config_file import ends, ignored_fields
from gpunode.kubernetes.device_plugin.decide_labels import expected_labels
from gpunode.kubernetes.device_plugin.judge_mps import limits, percentage
from gpunode.kubernetes.device_plugin.mig_resources import is_display
from gpunode.kubernetes.device_plugin.own_config import chosen_entry, decide_own_config
from gpunode.kubernetes.device_plugin.promise import offered, promised
from gpunode.kubernetes.nodes.labels import configuration
from gpunode.lab.cluster import devices, feature_discovery, plugin
from gpunode.lab.cluster.node_plugin import NodePlugin
from gpunode.settings import settings_from
from gpunode.settings.sharing import SharingSettings
from tests.support.feature_labels import by_smi

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

# In C: the file takes a second otherwise.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
RECORDED = yaml.load((Path(__file__).parents[1] / "recorded" / "device_plugin.yaml").read_text(), _LOADER)
_HARDWARE = Path(__file__).parents[2] / "lab" / "hardware" / "simulated" / "gpus.json"
PRODUCTS = {**json.loads(_HARDWARE.read_text()), **RECORDED["products"]}
# The versions that a record is of, by what its key ends with.
VERSIONS = {"": ("0.20.0",), " before 0.20.0": ("0.19.3", "0.17.4"), " before 0.18.2": ("0.17.4",)}
_PART = re.compile(r"\([^)]*\)|\d+ x \S+|[^\s+()]+(?:\+[\w.]+)?")
_FIELDS = ("product", "count", "replicas", "sharing-strategy", "memory")


def _instances(text: str) -> Iterator[list[str]]:
    """Yield the MIG devices of each GPU instance: `(2 x 1c.3g.40gb) + 3g.40gb`."""
    for part in _PART.findall(text):
        count, _, profile = part.strip("()").rpartition(" x ")
        if part.startswith("("):
            yield [each for devices in _instances(part.strip("()")) for each in devices]
        else:
            yield from ([profile] for _ in range(int(count or 1)))


def _mig(gpus: list[str]) -> Mig:
    """Return the GPUs of a record: the product, then each GPU, with another product where it names one."""
    return Mig("ok", None, tuple(_gpu(index, gpus[0], text) for index, text in enumerate(gpus[1:])))


def _gpu(index: int, product: str, text: str) -> MigGpu:
    named, _, rest = text.rpartition(": ")
    data = PRODUCTS[named or product]
    enabled = rest not in ("off", "pending")
    off = "Disabled" if data["mig"] else "[N/A]"
    found = tuple(
        GpuInstance(number, 0, parts[0].rpartition("c.")[2], 0, 1, tuple(
            ComputeInstance(each, 0, profile, each, 1, f"MIG-{index}-{number}-{each}")
            for each, profile in enumerate(parts)
        ))
        for number, parts in enumerate(_instances(rest) if enabled and rest != "on" else ())
    )  # fmt: skip
    current, pending = ("Enabled", "Enabled") if enabled else (off, "Enabled" if rest == "pending" else off)
    return MigGpu(
        index, f"GPU-{index}", f"0000:0{index}:00.0", data["device_id"], data["name"], current, pending, found
    )


def _lab_gpus(mig: Mig) -> tuple[devices.Gpu, ...]:
    """Return the same GPUs as the lab's stand-in of the plugin sees them."""
    return tuple(
        devices.Gpu(gpu.uuid, gpu.enabled, tuple(
            (part.profile, str(part.uuid)) for instance in gpu.instances or () for part in instance.compute
        ))
        for gpu in mig.gpus
        # Which the lab does not have.
        if not is_display(gpu.name)
    )  # fmt: skip


def _described(gpus: list[str]) -> devices.Described:
    data = PRODUCTS[gpus[0]]
    return devices.Described(data["name"], data["memory_mib"], "580.95.05", "13.0", data["mig"] is not None)


def _ends(words: str) -> str:
    """Return why the plugin ends without the index of a GPU, which says nothing to a person."""
    return re.sub(r"device \d+", "a GPU in MIG mode", words)


def _answers(record: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield each version and what it answered."""
    found = {version: record[name] for versions in VERSIONS.values() for version in versions}
    for suffix, versions in VERSIONS.items():
        if f"{name}{suffix}" in record:
            found |= dict.fromkeys(versions, record[f"{name}{suffix}"])
    yield from found.items()


def _promise(sharing: SharingSettings, mig: Mig, version: str) -> dict[str, Any]:
    divided = offered(mig, sharing.mig_strategy)
    assert divided is not None
    found = promised(sharing, divided, version)
    if found.ends is not None:
        return {"ends": found.ends}
    return {name.removeprefix("nvidia.com/"): count for name, count in found.resources.items()}


def _stand_in(config: plugin.Config, mig: Mig) -> dict[str, Any]:
    try:
        found = plugin.offered(config, _lab_gpus(mig))
    except plugin.PluginError as error:
        return {"ends": str(error)}
    return {name.removeprefix("nvidia.com/"): count for name, count in found.items() if count}


def _same(found: dict[str, Any], answer: dict[str, Any]) -> bool:
    """Say whether a prediction is the answer: resources, or why the plugin ends."""
    return found == ({"ends": _ends(answer["ends"])} if "ends" in answer else answer)


@pytest.mark.parametrize("name", RECORDED["states"])
def test_resources_and_labels_of_a_state(name: str) -> None:
    record = RECORDED["states"][name]
    mig = _mig(record["gpus"])
    for strategy in ("none", "single", "mixed"):
        sharing = SharingSettings.model_validate({"mig_strategy": strategy})
        for version, answer in _answers(record, strategy):
            assert _same(_promise(sharing, mig, version), answer), (strategy, version)
            if len({gpu.name for gpu in mig.gpus}) == 1 or strategy != "single":
                assert _same(_stand_in(plugin.Config("", strategy, version=version), mig), answer), (strategy, version)
        _hold_labels(_labels(record, strategy), record["gpus"], sharing, plugin.Config("", strategy))


def _labels(record: dict[str, Any], strategy: str) -> dict[str, Any]:
    labels = record["labels"]
    if strategy == "single" and "single" not in labels and "ends" in record["single"]:
        return {"gpu": [f"{labels['none']['gpu'][0]}-MIG-INVALID", 0, 0, "", 0]}
    return {**labels["none"], **labels[strategy]} if strategy in labels else labels["none"]


def _hold_labels(recorded: Any, gpus: list[str], sharing: SharingSettings, config: plugin.Config) -> None:
    """Hold what gpunode expects and what the lab writes against recorded labels, those of no other model by chance."""
    mig = _mig(gpus)
    rows = by_smi(mig, memory_mib=PRODUCTS[gpus[0]]["memory_mib"], driver_version="580.95.05")
    expected = expected_labels(sharing, rows, mig)
    if "ends" in recorded:
        assert expected is None
        return
    written = {
        f"nvidia.com/{resource}.{field}": str(value)
        for resource, values in recorded.items()
        for field, value in zip(_FIELDS, values, strict=True)
    }
    assert expected is not None
    of_resources = {name for name in expected if re.match(r"nvidia\.com/(gpu|mig-)", name)}
    one_model = len({gpu.name for gpu in mig.gpus}) == 1
    wrong = {name: written.get(name) for name in of_resources if written.get(name) not in expected[name]}
    assert wrong == {} or (not one_model and all(name.endswith(".memory") for name in wrong))
    # Of a MIG device, nvidia-smi does not say the memory; a label longer than 63 is left out.
    assert {name for name in written if not name.endswith(".memory") and len(written[name]) <= 63} <= of_resources
    if one_model:
        of_lab = feature_discovery.labels(config, _lab_gpus(mig), _described(gpus))
        assert {name: of_lab.get(name) for name in of_resources} == {name: written[name] for name in of_resources}


@pytest.mark.parametrize("record", RECORDED["settings"], ids=lambda each: f"{each['sharing']}-{each['state']}")
def test_what_settings_come_to(record: dict[str, Any]) -> None:
    sharing, state = SharingSettings.model_validate(record["sharing"]), record["state"]
    gpus = ["h100-80gb"] if state == "no GPU" else RECORDED["states"][state]["gpus"]
    text, mig = configuration(sharing).text, _mig(gpus)
    assert ends(text) is None and ignored_fields(text) == ()
    for version, answer in _answers(record, "answer"):
        config = plugin.parsed("", text, None, version)
        assert _same(_promise(sharing, mig, version), answer)
        assert _same(_stand_in(config, mig), answer)
        _hold_labels(record["labels"], gpus, sharing, config)
    if sharing.strategy == "mps" and mig.gpus:
        replicas, mps = sharing.replicated["nvidia.com/gpu"], record["mps"]
        memory = PRODUCTS[gpus[0]]["memory_mib"]
        assert (percentage(replicas).removesuffix(".0"), memory // replicas) == (str(mps["threads"]), mps["memory_mib"])
        assert limits(memory, replicas)[0] in (f"{memory // replicas // 1024}G", f"{memory // replicas}M")


def _configuration(record: dict[str, Any]) -> str:
    if "row" not in record:
        return str(record["config"])
    above = f"    {record['above']}\n" if "above" in record else ""
    return f"version: v1\nsharing:\n  timeSlicing:\n{above}    resources:\n    - {record['row']}\n"


@pytest.mark.parametrize("record", RECORDED["configurations"], ids=lambda each: str(each["name"]))
def test_a_configuration_of_a_person_s_own(record: dict[str, Any]) -> None:
    text, mig = _configuration(record), _mig(record.get("gpus", ["h100-80gb", "off", "off"]))
    for version, answer in _answers(record, "answer"):
        refused = ends(text)
        assert (refused is not None) == ("ends" in answer), refused
        assert refused is not None or bool(ignored_fields(text)) == ("ignored" in record)
        try:
            config = plugin.parsed("", text, record.get("mig_strategy"), version)
        except plugin.PluginError:
            assert "ends" in answer
        else:
            # The stand-in of the plugin does not see the MPS daemon.
            assert "retries" in answer or _same(_stand_in(config, mig), answer)


@pytest.mark.parametrize("record", RECORDED["config-manager"], ids=str)
def test_the_entry_that_a_node_takes(record: dict[str, Any]) -> None:
    label, default, entries = record["label"], record["default"], dict.fromkeys(record["entries"], "version: v1")
    for version, answer in _answers(record, "answer"):
        try:
            found = {"takes": plugin.chosen(label, default, entries, version)}
        except plugin.PluginError:
            found = {}
        assert found == ({"takes": answer["takes"]} if "takes" in answer else {}), version
        if default:
            # No setting of gpunode's sets config.default where the ConfigMap is a person's own.
            continue
        settings = settings_from({
            "kubernetes": {"enabled": True},
            "device_plugin": {"config_name": "mine", "version": version},
            "sharing": {"config": label} if label else {},
        })  # fmt: skip
        decision = decide_own_config(settings, entries)
        assert (decision.refusal is None) == ("takes" in answer), (version, decision.refusal)
        assert "takes" not in answer or chosen_entry(settings, entries) == answer["takes"]


@pytest.mark.parametrize("record", RECORDED["starts"], ids=str)
def test_a_plugin_without_gpus_waits_or_ends(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    without, answer = record["without"], record["answer"]

    def asked(node: Any) -> tuple[devices.Gpu, ...]:
        if without == "GPUs":
            return ()
        raise devices.NoDevicesError(without, is_lost=without == "lost")

    monkeypatch.setattr(devices, "asked", asked)
    monkeypatch.setattr(devices, "health", lambda node: ("boot", frozenset()))
    monkeypatch.setattr(devices, "without_gpus", lambda *_: "")
    monkeypatch.setattr(devices, "hold", lambda *_: None)
    node: Any = None
    variable = {"name": "FAIL_ON_INIT_ERROR", "value": str(record["fail_on_init_error"]).lower()}
    pod = {"spec": {"containers": [{"name": "plugin", "env": [variable]}]}}
    outcome = NodePlugin(node, node)._start(pod, plugin.Config(""), False)
    assert outcome.ready == ("ends" not in answer)
