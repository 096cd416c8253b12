"""What breaks people's GPU nodes at the driver, each decided offline: facts and settings in, reason and source out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpunode.base import tables
from gpunode.cli.plan import plan
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

DEBIAN = {
    "id": "debian", "version_id": "12", "codename": "bookworm", "id_like": [], "name": "Debian 12",
    "architecture": "x86_64", "kernel": "6.1.0-40-amd64", "tegra": False,
}  # fmt: skip


def bus(*device_ids: str) -> dict[str, Any]:
    gpus = []
    for number, device_id in enumerate(device_ids):
        known = tables.pci_device(device_id)
        assert known is not None
        address = f"0000:{number + 0x1A:02x}:00.0"
        gpus.append({"address": address, "device_id": device_id, "name": known.name, "generation": known.generation})
    return {"gpus": gpus}


def there(version: str, **more: Any) -> dict[str, Any]:
    driver = {
        "packages": [], "module_version": version, "module_license": "NVIDIA", "loaded_version": version,
        "loaded_flavour": "proprietary", "library_version": version,
    }  # fmt: skip
    return {"driver": {**driver, **more}}


def boots(**kernel: Any) -> dict[str, Any]:
    release = "6.1.0-41-amd64"
    more = {key: kernel.pop(key) for key in ("secure_boot",) if key in kernel}
    kernels = [{"release": release, "headers": True, **kernel}]
    return {
        "boot": {"running": "6.1.0-40-amd64", "next_release": release, "decided_by": "grub", "kernels": kernels, **more}
    }


B200, H100 = "2901", "2330"
NO_CUDA = {"enabled": False}
# What the rest is decided by are cases of gpunode.node.preflight.refusals.
DECIDED: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "packages over a runfile": (
        there("580.65.06", runfile=True), {"driver": {"branch": "580"}}, "preflight.runfile-under-packages",
    ),
    "a transitional 570 whose candidate is 580": (
        {"candidates": [["nvidia-open-570", "580.95.05-1"]]}, {"driver": {"branch": "570"}},
        "preflight.driver-transitional-package",
    ),
    "secure boot with a module that nobody signed": (boots(secure_boot=True), {}, "preflight.boot-key-not-enrolled"),
    "a branch past its end of life": ({}, {"driver": {"branch": "550"}}, None),
}  # fmt: skip


def decided(folder: Path, gpus: tuple[str, ...], facts: dict[str, Any], settings: dict[str, Any]) -> tuple[int, Any]:
    """Return exit code and plan of `gpunode plan --facts --settings --json` for one node."""
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    host = {"facts": {"operating_system": DEBIAN, "pci": bus(*gpus), **facts}}
    (folder / "facts.json").write_text(json.dumps({"schema": 1, "hosts": {"gpu-1": host}}))
    files = ["--facts", str(folder / "facts.json"), "--settings", str(folder / "settings.yaml")]
    done = CliRunner().invoke(plan, [*files, "--json"])
    return done.exit_code, json.loads(done.output)["hosts"]["gpu-1"]


@pytest.mark.parametrize("case", DECIDED)
def test_facts_and_settings_of_files_are_decided_by_reason_source_and_remedy(case: str, tmp_path: Path) -> None:
    facts, settings, refused = DECIDED[case]
    code, found = decided(tmp_path, (H100,), facts, settings)
    if refused is None:
        assert (code, found["verdict"], found["refusals"]) == (0, "can be done", [])
        return
    assert (code, found["verdict"], found["steps"]) == (2, "refused", [])
    (refusal,) = found["refusals"]
    assert refusal["code"] == refused and refusal["reason"] and refusal["source"] and refusal["remedy"]


@pytest.mark.parametrize(
    ("branch", "packages"),
    [
        ("575", ["nvidia-fabricmanager-575 575", "nvidia-open 575"]),
        ("580", ["nvidia-fabricmanager 580", "nvidia-open 580"]),
    ],
)
def test_fabric_manager_comes_with_the_driver_under_its_branch_s_name_where_there_are_nvswitches(
    branch: str, packages: list[str], tmp_path: Path
) -> None:
    facts = {"pci": {**bus(H100), "nvswitches": 4}}
    code, found = decided(tmp_path, (H100,), facts, {"driver": {"branch": branch}, "cuda": NO_CUDA})
    assert code == 0
    step = next(step for step in found["steps"] if step["packages"])
    assert step["packages"] == packages and step["action"].startswith(f"install driver {branch}")
    assert unnamed(" ".join(step["action"] for step in found["steps"]), "nvidia-fabricmanager") == []


def test_the_switches_of_nvlink_5_take_the_subnet_manager_too(tmp_path: Path) -> None:
    facts = {"pci": {**bus(B200), "switch_managers": 2}}
    _, found = decided(tmp_path, (B200,), facts, {"driver": {"branch": "580"}, "cuda": NO_CUDA})
    assert {"nvlsm", "nvidia-fabricmanager 580"} <= {name for step in found["steps"] for name in step["packages"]}
    code, refused = decided(tmp_path, (H100,), facts, {"driver": {"source": "distribution"}, "cuda": NO_CUDA})
    assert code == 2 and refused["refusals"][0]["code"] == "preflight.archive-without-fabric"
