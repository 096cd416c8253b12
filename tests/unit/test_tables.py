"""Tables: what gpunode/data says, and that it says it in the right types."""

import json
import re
from collections.abc import Iterator
from importlib import resources
from string import Formatter
from typing import Any

import pytest
import yaml

from gpunode.base import explanations, tables, versions
from gpunode.base.tables import reading
from gpunode.base.tables.runtimes import Toolkit
from gpunode.system import pci_table

pytestmark = pytest.mark.pure

DATA = resources.files("gpunode.data")
# The only numbers that are counts or positions; all else with digits is a version or an id, and those are strings.
COUNTS = {"profiles", "profile_id", "compute", "starts", "size", "default_version", "accepts", "needs_mib"}
COUNTS |= {"instances_with", "compute_starts", "zypper_exits"}


def _scalars(node: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*keys, "key"), key
            yield from _scalars(value, (*keys, str(key)))
    elif isinstance(node, list):
        for value in node:
            yield from _scalars(value, keys)
    else:
        yield keys, node


def _yaml_names() -> list[str]:
    return sorted(entry.name for entry in DATA.iterdir() if entry.name.endswith(".yaml"))


@pytest.mark.parametrize("name", _yaml_names())
def test_every_version_in_yaml_is_a_string(name: str) -> None:
    for keys, value in _scalars(yaml.safe_load(DATA.joinpath(name).read_text(encoding="utf-8"))):
        if isinstance(value, bool) or COUNTS & set(keys):
            continue
        assert isinstance(value, str), f"{name}: {'.'.join(keys)} = {value!r} must be quoted"


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ('refresh_since: "1.18"', "refresh_since: 1.18", "refresh_since: Input should be a valid string, and not 1.18"),
        ("refresh_since:", "refreshes_since:", "refresh_since: Field required"),
        ("refresh_since:", "rest: 1\nrefresh_since:", "rest: Unexpected keyword argument, and not 1"),
    ],
)
def test_a_wrong_table_is_told_with_file_place_and_what_is_allowed(
    good: str, bad: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = reading.text("toolkit.yaml")
    assert good in whole
    monkeypatch.setattr(reading, "text", lambda _: whole.replace(good, bad))
    with pytest.raises(tables.TableError, match=rf"gpunode/data/toolkit\.yaml: .*{told}"):
        reading.table(Toolkit, "toolkit.yaml")()


@pytest.mark.parametrize(
    "rule",
    [rule for program in ("apt", "zypper", "helm") for rule in explanations.rules(program)],
    ids=lambda rule: rule.said,
)
def test_cause_and_remedy_name_only_what_the_pattern_has(rule: explanations.Rule) -> None:
    named = {name for _, name, _, _ in Formatter().parse(rule.cause + rule.remedy) if name is not None}
    groups = set(re.compile(rule.said).groupindex)
    assert named <= groups | ({"host"} if "url" in groups else set()) | {"settings"}


def test_a_table_cannot_be_changed_by_who_reads_it() -> None:
    with pytest.raises(TypeError):
        tables.drivers().branches["1"] = tables.drivers().branches["580"]  # type: ignore[index]


def test_every_driver_version_of_the_cuda_table_parses() -> None:
    table = tables.cuda()
    for text in (*table.toolkit_driver, *table.toolkit_driver.values(), *table.minor_version_compatibility.values()):
        assert versions.parsed(text)


def test_cuda_12_9_ships_with_575_57_08_and_runs_on_525_60_13() -> None:
    assert tables.cuda().full_driver("12.9") == "575.57.08"
    assert tables.cuda().minor_driver("12.9") == "525.60.13"
    assert tables.cuda().minor_driver("10.2") is None


def test_cuda_13_dropped_volta_and_12_9_did_not() -> None:
    assert "volta" in tables.cuda().dropped_generations("13.0")
    assert "volta" in tables.cuda().dropped_generations("13.1")
    assert not tables.cuda().dropped_generations("12.9")


@pytest.mark.parametrize(
    ("device_id", "generation"),
    [(device_id, example.generation) for example in tables.pci_rule().examples.values() for device_id in example.ids],
)
def test_generated_pci_table_agrees_with_the_examples(device_id: str, generation: str) -> None:
    device = tables.pci_device(device_id)
    assert device is not None
    assert device.generation == generation


@pytest.mark.parametrize(
    ("product", "device_id"), [(name, i) for name, row in tables.pci_rule().examples.items() for i in row.ids]
)
def test_the_chip_in_the_pci_table_agrees_with_the_generation(product: str, device_id: str) -> None:
    device = tables.pci_device(device_id)
    assert device is not None
    if device.chip != "unknown" and device.generation != "grace-hopper":
        assert tables.pci_rule().chip_prefix[device.chip[:2]] == device.generation, product


def test_h200_is_found_whatever_the_spelling() -> None:
    assert tables.pci_device("0x2335") == tables.pci_device("2335")
    found = tables.pci_device("2335")
    assert found is not None
    assert "H200" in found.name


def test_an_unknown_device_is_none() -> None:
    assert tables.pci_device("ffff") is None


def test_the_pci_table_records_its_origin_and_licence() -> None:
    head = json.loads(DATA.joinpath("pci_ids.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"20\d\d\.\d\d\.\d\d", head["version"])
    assert "BSD-3-Clause" in head["licence"]
    assert head["date"].startswith(head["version"].replace(".", "-"))


PCI_IDS = """#
#\tVersion: 2025.01.02
#\tDate:    2025-01-02 03:15:02
#
1002  Advanced Micro Devices, Inc.
\t2330  GH100 [not NVIDIA's]
10de  NVIDIA Corporation
\t0008  NV1 [STG2000X-B Series]
\t10f7  TU102 High Definition Audio Controller
\t22a3  GH100 [H100 NVSwitch]
\t2236  GA102GL [A10]
\t\t10de 1482  A10
\t2342  GH100 [GH200 120GB / 480GB]
10df  Emulex Corporation
\t2237  GA102GL [not NVIDIA's]
"""


def test_pci_table_takes_gpus_of_nvidia_only_and_examples_win() -> None:
    table = json.loads(pci_table.table(PCI_IDS))
    assert table["version"] == "2025.01.02"
    found = table["devices"]
    assert found["2236"] == {"name": "A10", "chip": "GA102GL", "generation": "ampere"}
    assert found["2342"]["generation"] == "grace-hopper"
    assert found["2330"] == {"name": "H100", "chip": "unknown", "generation": "hopper"}
    assert not {"0008", "10F7", "22A3", "2237"} & set(found)


def test_pci_table_refuses_what_is_no_pci_ids(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_text("hello\n")
    assert pci_table.main([str(tmp_path / "other")]) == 1
    assert "no pci.ids file" in capsys.readouterr().err
    assert pci_table.main([str(tmp_path / "missing")]) == 1
    assert pci_table.main([]) == 64


def test_every_public_repository_has_a_full_fingerprint() -> None:
    assert set(tables.repositories()) == {"cuda", "toolkit", "docker"}
    for repository in tables.repositories().values():
        assert re.fullmatch(r"[0-9A-F]{40}", repository.key_fingerprint)


def test_debian_12_has_no_sbsa_repository_and_ubuntu_has() -> None:
    debian, ubuntu = tables.distribution("debian", "12"), tables.distribution("ubuntu", "24.04")
    assert debian is not None and ubuntu is not None
    assert (debian.repository, dict(debian.architectures)) == ("debian12", {"x86_64": "x86_64"})
    assert (ubuntu.repository, ubuntu.architectures["aarch64"]) == ("ubuntu2404", "sbsa")
    newer = tables.distribution("debian", "13")
    assert newer is not None and (newer.repository, newer.architectures["aarch64"]) == ("debian13", "sbsa")
    assert tables.distribution("debian", "14") is None


def test_containerd_schemas_name_the_cri_plugin() -> None:
    oldest, middle, newest = tables.containerd().schemas
    assert oldest.cri_plugin == "io.containerd.grpc.v1.cri"
    assert middle.cri_plugin == newest.cri_plugin == "io.containerd.cri.v1.runtime"
    assert (middle.verified, newest.verified) == (True, False)
