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


B200, V100, H100, A100, P100 = "2901", "1DB1", "2330", "20B0", "15F8"
NO_CUDA = {"enabled": False}
REFUSED: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any], str, str]] = {
    "Blackwell with the proprietary module": (
        (B200,), {}, {"driver": {"flavour": "proprietary"}},
        "the proprietary kernel module does not drive B200 at", "drivers.yaml, flavours",
    ),
    "V100 with branch 590": (
        (V100,), {}, {"driver": {"branch": "590"}},
        "no longer drives Tesla V100 SXM2 16GB", "drivers.yaml, last_branch",
    ),
    "V100 and B200 in one node": (
        (V100, B200), {}, {}, "one node cannot drive both", "drivers.yaml, flavours",
    ),
    "H100 with CUDA 13.0 on 570": (
        (H100,), {}, {"driver": {"branch": "570"}, "cuda": {"version": "13.0"}},
        "CUDA 13.0 needs driver 580 or newer", "cuda.yaml, minor_version_compatibility",
    ),
    "H100 with all of CUDA 12.9 on 535": (
        (H100,), {}, {"driver": {"branch": "535"}, "cuda": {"version": "12.9", "compatibility": "full"}},
        "CUDA 12.9 needs driver 575.57.08 or newer", "cuda.yaml, toolkit_driver",
    ),
    "A100 MIG on 440": (
        (A100,), {}, {"driver": {"version": "440.33.01"}, "mig": {"config": "all-1g.5gb"}, "cuda": NO_CUDA},
        "needs driver 450.80.02 or newer", "minimums.yaml, mig_minimum_driver",
    ),
    "384.66 against `~= 384.81`": (
        (P100,), there("384.66"), {"driver": {"source": "present"}, "cuda": NO_CUDA},
        "driver 384.66 is older than 384.81", "minimums.yaml",
    ),
    "a transitional 570 whose candidate is 580": (
        (H100,), {"candidates": [["nvidia-open-570", "580.95.05-1"]]}, {"driver": {"branch": "570"}},
        "nvidia-open-570 comes at 580.95.05-1, which is not of branch 570", "apt-cache policy nvidia-open-570",
    ),
    "packages over a runfile": (
        (H100,), there("580.65.06", runfile=True), {"driver": {"branch": "580"}},
        "a driver of NVIDIA's .run installer is on the node", "do not mix installation methods",
    ),
    "the next boot's kernel without headers": (
        (H100,), boots(headers=False), {}, "kernel 6.1.0-41-amd64 boots next", "/lib/modules/6.1.0-41-amd64/build",
    ),
    "secure boot with a module that nobody signed": (
        (H100,), boots(secure_boot=True), {}, "the kernel will reject it", "efivars/SecureBoot",
    ),
    "another branch without leave": (
        (P100,), there("570.172.08"), {"driver": {"branch": "580"}, "cuda": NO_CUDA},
        "the node has driver 570.172.08, and branch 580 is another one", "/sys/module/nvidia",
    ),
}  # fmt: skip
ACCEPTED: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "H100 with CUDA 12.9 on 535, by minor compatibility": (
        (H100,), {}, {"driver": {"branch": "535"}, "cuda": {"version": "12.9"}},
    ),
    "384.81 against `~= 384.81`": (
        (P100,), there("384.81"), {"driver": {"source": "present"}, "cuda": NO_CUDA},
    ),
    "470 against `~= 384.81`": (
        (P100,), there("470.256.02"), {"driver": {"source": "present"}, "cuda": NO_CUDA},
    ),
    "a branch past its end of life": ((H100,), {}, {"driver": {"branch": "550"}}),
}  # fmt: skip


def decided(folder: Path, gpus: tuple[str, ...], facts: dict[str, Any], settings: dict[str, Any]) -> tuple[int, Any]:
    """Return exit code and plan of `gpunode plan --facts --settings --json` for one node."""
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    host = {"facts": {"operating_system": DEBIAN, "pci": bus(*gpus), **facts}}
    (folder / "facts.json").write_text(json.dumps({"schema": 1, "hosts": {"gpu-1": host}}))
    files = ["--facts", str(folder / "facts.json"), "--settings", str(folder / "settings.yaml")]
    done = CliRunner().invoke(plan, [*files, "--json"])
    return done.exit_code, json.loads(done.output)["hosts"]["gpu-1"]


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_with_reason_source_and_remedy(case: str, tmp_path: Path) -> None:
    gpus, facts, settings, reason, source = REFUSED[case]
    code, found = decided(tmp_path, gpus, facts, settings)
    assert (code, found["verdict"], found["steps"]) == (2, "refused", [])
    (refusal,) = found["refusals"]
    assert reason in refusal["reason"] and source in refusal["source"] and refusal["remedy"]


@pytest.mark.parametrize("case", ACCEPTED)
def test_it_can_be_done(case: str, tmp_path: Path) -> None:
    gpus, facts, settings = ACCEPTED[case]
    code, found = decided(tmp_path, gpus, facts, settings)
    assert (code, found["verdict"]) == (0, "can be done"), found["refusals"]


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


def test_a_branch_past_its_end_of_life_is_a_warning_with_the_date_and_its_source(tmp_path: Path) -> None:
    _, found = decided(tmp_path, (H100,), {}, {"driver": {"branch": "570"}})
    (caution,) = found["cautions"]
    assert (
        caution["code"] == "preflight.driver-end-of-life"
        and unnamed(caution["reason"], "driver branch 570", "(2026-02)") == []
    )
    assert "drivers.yaml, branches" in caution["source"]
