"""RDMA devices of a node: read by the shell alone, and judged by the selectors of the RDMA shared device plugin."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.base.probe import shell_text
from gpunode.base.reading import ParseError
from gpunode.components.rdma.decide import Port, Rdma, RdmaDevice, decide, parse_rdma
from gpunode.kubernetes.nodes.labels import wanted_labels
from gpunode.kubernetes.other_plugins.desired import CONFIGURATION, configuration, rdma_objects
from gpunode.settings import settings_from
from gpunode.settings.cluster import expected_resources
from tests.support.rdma import HCA, IMAGE

pytestmark = pytest.mark.pure


def asked(resources: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return host data of a node that is to have the plugin."""
    plugin = {"enabled": True, "image": IMAGE, "resources": resources or {"rdma/hca_a": {"vendors": ["15b3"]}}}
    return {"kubernetes": {"enabled": True}, "rdma_shared_device_plugin": {**plugin, **more}}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _device(sys: Path, name: str, index: int, interfaces: dict[str, str], vendor: str = "0x15b3") -> None:
    of = sys / "class" / "infiniband" / name
    uevent = f"DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_ID=15B3:1017\nPCI_SLOT_NAME=0000:3b:00.{index}\n"
    _write(of / "device" / "uevent", uevent)
    for file, text in {"vendor": vendor, "device": "0x1017", "class": "0x020700"}.items():
        _write(of / "device" / file, f"{text}\n")
    _write(of / "ports" / "1" / "state", "4: ACTIVE\n")
    _write(of / "ports" / "1" / "link_layer", "InfiniBand\n")
    for interface, kind in interfaces.items():
        _write(of / "device" / "net" / interface / "type", f"{kind}\n")
    _write(sys / "class" / "infiniband_mad" / f"umad{index}" / "ibdev", f"{name}\n")
    _write(sys / "class" / "infiniband_verbs" / f"uverbs{index}" / "ibdev", f"{name}\n")


def _read(tmp_path: Path, shell: str) -> Rdma:
    """Return what the probe prints of a made /sys where no program can be found: a shell's own words are all it has."""
    text = shell_text("components/rdma/state", SYS=str(tmp_path / "sys"), DEV=str(tmp_path / "dev"))
    words = [*shell.split(), "-c", text]
    done = subprocess.run(words, env={"PATH": "/nonexistent"}, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return parse_rdma(done.stdout.splitlines())


@pytest.mark.real
@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/bash"])
def test_the_probe_reads_devices_ports_and_interfaces_without_a_program(tmp_path: Path, shell: str) -> None:
    _device(tmp_path / "sys", "mlx5_0", 0, {"ib0": "32", "a0": "1"})
    # A software device has neither a PCI function nor interfaces of its own.
    (tmp_path / "sys" / "class" / "infiniband" / "rxe0" / "ports" / "1").mkdir(parents=True)
    _write(tmp_path / "dev" / "infiniband" / "rdma_cm", "")
    _write(tmp_path / "sys" / "module" / "ib_core" / "parameters" / "netns_mode", "N\n")
    found = _read(tmp_path, shell)
    assert found == Rdma(
        (replace(HCA, netdevs=(("a0", "ether"), ("ib0", "infiniband"))), RdmaDevice("rxe0", ports=(Port(1, "", ""),))),
        connection_manager=True,
        exclusive=True,
    )
    assert found.devices[0].interface == "a0"


@pytest.mark.real
def test_a_node_without_rdma_prints_nothing(tmp_path: Path) -> None:
    text = shell_text("components/rdma/state", SYS=str(tmp_path), DEV=str(tmp_path))
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, timeout=20, check=True)
    assert (done.stdout, done.stderr) == ("", "") and parse_rdma([]) == Rdma()


_TEXT = st.text(st.characters(min_codepoint=9, max_codepoint=126, exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e"))


@given(st.lists(st.tuples(st.sampled_from(["device", "port", "netdev", "shared", ""]), _TEXT).map("=".join)))
def test_any_answer_is_read_or_refused(lines: list[str]) -> None:
    try:
        found = parse_rdma(lines)
    except ParseError:
        return
    assert [each.name for each in found.devices] == sorted({each.name for each in found.devices})


@given(
    devices=st.lists(
        st.builds(
            RdmaDevice,
            name=st.sampled_from("abc"),
            address=st.sampled_from(["", "0000:3b:00.0"]),
            vendor=st.sampled_from(["15b3", "8086"]),
            pci_class=st.sampled_from(["020700", "0c0600"]),
            umad=st.booleans(),
            uverbs=st.booleans(),
        ),
        unique_by=lambda each: each.name,
    ),
    connection_manager=st.booleans(),
    exclusive=st.booleans(),
    vendors=st.lists(st.sampled_from(["15b3", "8086", "1002"]), min_size=1, max_size=2, unique=True),
)
def test_a_resource_is_good_where_the_plugin_would_offer_it_and_else_a_person_s(
    devices: list[RdmaDevice], connection_manager: bool, exclusive: bool, vendors: list[str]
) -> None:
    node = Rdma(tuple(devices), connection_manager, exclusive)
    decision = decide(settings_from(asked({"rdma/a": {"vendors": vendors}})).rdma_shared_device_plugin, node)
    offered = connection_manager and any(
        each.address and each.pci_class.startswith("02") and each.vendor in vendors and each.umad and each.uverbs
        for each in devices
    )
    assert [not bad(item) for item in decision.findings] == [not exclusive, offered]
    assert not decision.steps and all(item.by_person for item in bad(*decision.findings))
    assert (decision.refusal is None) == (offered and not exclusive)


def test_the_plugin_s_configuration_is_what_its_own_program_reads() -> None:
    resources = {"rdma/hca_a": {"vendors": ["15b3"], "if_names": ["ib0"], "count": 64}, "x.org/b": {"drivers": ["m"]}}
    desired = settings_from(asked(resources, update_seconds=0)).rdma_shared_device_plugin
    assert json.loads(configuration(desired)) == {
        "periodicUpdateInterval": 0,
        "configList": [
            {"resourcePrefix": "rdma", "resourceName": "hca_a", "rdmaHcaMax": 64,
             "selectors": {"vendors": ["15b3"], "ifNames": ["ib0"]}},
            {"resourcePrefix": "x.org", "resourceName": "b", "rdmaHcaMax": 1000, "selectors": {"drivers": ["m"]}},
        ],
    }  # fmt: skip
    config, plugin = rdma_objects(desired)
    pod = plugin["spec"]["template"]
    assert config["data"]["config.json"] == configuration(desired)
    assert pod["spec"]["nodeSelector"] == {"gpunode/device-plugin.rdma-shared": "true"}
    assert pod["spec"]["containers"][0]["image"] == IMAGE
    other = rdma_objects(settings_from(asked(update_seconds=1)).rdma_shared_device_plugin)[1]
    # It reads its file once: a pod of another text is another pod.
    before, after = (each["spec"]["template"]["metadata"]["annotations"][CONFIGURATION] for each in (plugin, other))
    assert before != after


def test_the_node_is_labelled_and_its_resources_are_waited_for() -> None:
    settings = settings_from(
        {**asked({"rdma/a": {"vendors": ["15b3"], "count": 7}}), "device_plugin": {"method": "none"}}
    )
    assert wanted_labels(settings) == {"gpunode/device-plugin.rdma-shared": "true"}
    assert expected_resources(settings) == {"rdma/a": 7}
