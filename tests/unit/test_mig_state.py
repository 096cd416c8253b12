"""MIG as it is on a node, from what NVIDIA's own nvidia-smi printed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gpunode.base.reading import ParseError
from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.smi import LISTS, parse_mig
from gpunode.components.mig.state import GpuInstance, Mig, MigGpu
from gpunode.facts.gpu import Mig as MigFact
from tests.support.messages import unnamed
from tests.support.recorded_smi import last, recorded
from tests.support.smi_rows import cells

H100 = "h100-80gb-x2.nvidia-smi-550.txt"
A100 = "a100-40gb-x2.nvidia-smi-550.txt"
UUIDS = tuple(f"GPU-01000100-0000-0000-0000-00000000000{index}" for index in range(2))


def rows(modes: tuple[str, str]) -> list[str]:
    """Return nvidia-smi's rows of two H100, the first of them with these modes."""
    return [
        cells(uuid=UUIDS[0], mig__mode__current=modes[0], mig__mode__pending=modes[1], persistence_mode="Enabled"),
        cells(index="1", uuid=UUIDS[1], pci__bus_id="00000000:40:00.0", persistence_mode="Enabled"),
    ]


def answer(modes: tuple[str, str], printed: dict[str, str], codes: dict[str, int] | None = None) -> list[str]:
    """Return the probe's answer of two H100, the first of them with these modes."""
    lines = ["gpu.rc=0", *(f"gpu={line}" for line in rows(modes))]
    for key, text in printed.items():
        lines.append(f"{key}.rc={(codes or {}).get(key, 0)}")
        lines.extend(f"{key}={line}" for line in text.split("\n"))
    return lines


def mixed() -> dict[str, str]:
    """Return what was recorded of an H100 with 3g, 2g, 1g and 1g."""
    return {
        "devices": last(H100, "-L"),
        "lgip": last(H100, "mig -i 0 -lgip"),
        "lgipp": last(H100, "mig -i 0 -lgipp"),
        "lgi": last(H100, "mig -i 0 -lgi"),
        "lci": last(H100, "mig -i 0 -lci"),
    }


def first(reading: Mig) -> tuple[MigGpu, tuple[GpuInstance, ...]]:
    gpu = reading.gpus[0]
    assert gpu.instances is not None
    return gpu, gpu.instances


ON = ("Enabled", "Enabled")


@pytest.mark.pure
def test_instances_are_read_with_their_places_and_uuids() -> None:
    gpu, instances = first(parse_mig(answer(ON, mixed())))
    assert (gpu.capable, gpu.enabled, gpu.settled, gpu.device_id, gpu.pci_address) == (
        True, True, True, "2330", "0000:1a:00.0",
    )  # fmt: skip
    found = {each: [ci.uuid for ci in each.compute] for each in instances}
    assert [
        (each.profile, each.profile_id, each.start, each.size, each.id, uuids) for each, uuids in found.items()
    ] == [
        ("2g.20gb", 14, 0, 2, 3, ["MIG-07b7926d-0afe-520f-9389-606bf06f5f3b"]),
        ("1g.10gb", 19, 2, 1, 9, ["MIG-d3cc286c-ed99-5051-8546-848ac5ea12a5"]),
        ("1g.10gb", 19, 3, 1, 10, ["MIG-c2d6b359-72cd-5f6d-9203-66823e10fff1"]),
        ("3g.40gb", 9, 4, 4, 1, ["MIG-1807e06d-13f2-5c19-9664-3d996eb26a0d"]),
    ]
    assert [(ci.id, ci.profile_id, ci.start, ci.size) for ci in instances[3].compute] == [(0, 2, 0, 3)]
    assert gpu.own_geometry == product_geometry("H100-80GB")
    one, media, *_ = gpu.profiles
    assert [(each.name, each.free, each.total) for each in (one, media)] == [("1g.10gb", 7, 7), ("1g.10gb+me", 1, 1)]


@pytest.mark.pure
def test_two_compute_instances_of_one_gpu_instance_are_told_apart() -> None:
    calls = recorded(A100)
    at = max(number for number, (line, _, _) in enumerate(calls) if line == "mig -i 0 -gi 1 -lci")
    lgi = [line for line in last(A100, "mig -i 0 -lgi").splitlines() if not line.startswith("|   0  MIG ")]
    one = "|   0  MIG 3g.20gb          9        1          4:4     |"
    printed = mixed() | {
        "lgi": "\n".join([*lgi[:6], one, lgi[-1]]),
        "lci": calls[at][1],
        "devices": "\n".join(last(A100, "-L").splitlines()[:3]),
    }
    _, (instance,) = first(parse_mig(answer(ON, printed)))
    assert [(ci.id, ci.profile, ci.start, ci.uuid) for ci in instance.compute] == [
        (0, "1c.3g.20gb", 0, "MIG-98b92576-068e-5ab5-adc4-3ba11ff45cd9"),
        (1, "1c.3g.20gb", 1, "MIG-98b92476-068e-5902-8b04-506dd463852a"),
    ]


@pytest.mark.pure
@pytest.mark.parametrize("lines", [(0, 1, 2), (0, 2, 1, 3, 4, 5)], ids=["one is missing", "in another order"])
def test_no_uuid_is_given_where_devices_and_instances_disagree(lines: tuple[int, ...]) -> None:
    listed = last(H100, "-L").splitlines()
    devices = "\n".join(listed[line] for line in lines)
    _, instances = first(parse_mig(answer(ON, mixed() | {"devices": devices})))
    assert {ci.uuid for each in instances for ci in each.compute} == {None}


@pytest.mark.pure
def test_a_gpu_in_mig_mode_without_instances_has_none_and_a_pending_mode_lists_nothing() -> None:
    nothing = "No GPU instances found: Not Found\n"
    printed = mixed() | {"lgi": nothing, "lci": nothing, "devices": "\n".join(last(A100, "-L").splitlines()[:1])}
    reading = parse_mig(answer(ON, printed, {"lgi": 6, "lci": 6}))
    assert (reading.status, reading.gpus[0].instances) == ("ok", ()) and reading.gpus[0].own_geometry is not None
    reading = parse_mig(answer(("Disabled", "Enabled"), {}))
    gpu = reading.gpus[0]
    assert (gpu.capable, gpu.enabled, gpu.settled, gpu.instances, gpu.own_geometry) == (True, False, False, (), None)
    assert reading.gpu(gpu.uuid) is gpu
    assert not parse_mig(answer(("[N/A]", "[N/A]"), {})).gpus[0].capable


@pytest.mark.pure
@pytest.mark.parametrize("key", LISTS)
def test_a_list_that_fails_leaves_the_instances_unknown(key: str) -> None:
    reading = parse_mig(answer(ON, mixed() | {key: "GPU is lost"}, {key: 15}))
    assert (reading.status, reading.gpus[0].instances, reading.gpus[1].instances) == ("unreadable", None, ())
    assert unnamed(reading.message, f"nvidia-smi {LISTS[key]}", 15, "GPU is lost") == []


@pytest.mark.pure
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("lgi", "|   0  MIG 1g.10gb         19        9          2-1     |"),
        ("lci", "|   0      9       1g.10gb               0         0          0:1     |"),
        ("devices", "  MIG 1g.10gb     Device  3: (UUID: ?)"),
        ("lgip", "what"),
        ("lgipp", "GPU  0 Profile ID 19 Placements: many"),
    ],
)
def test_a_line_of_another_form_is_no_reading_nor_an_instance_that_went_between_two_questions(
    key: str, text: str
) -> None:
    lgi = "\n".join(line for line in mixed()["lgi"].splitlines() if "3g.40gb" not in line)
    for changed in ({key: mixed()[key] + text + "\n"}, {"lgi": lgi}):
        with pytest.raises(ParseError):
            parse_mig(answer(ON, mixed() | changed))


@pytest.mark.pure
@given(st.lists(st.text(max_size=40), max_size=8), st.sampled_from([*LISTS, "gpu", "rc"]))
def test_no_answer_raises_anything(garbage: list[str], key: str) -> None:
    lines = [*answer(ON, mixed()), *(f"{key}={line}" for line in garbage), "", "gpunode:end"]
    MigFact().process(lines)


@pytest.mark.pure
def test_wider_tables_are_the_same_reading_and_a_recorded_one_is_read_back() -> None:
    def wider(key: str, text: str) -> str:
        wide = "\n".join(line.replace("gb ", "gb    ", 1) for line in text.splitlines())
        return wide if key in ("lgip", "lgi", "lci") else text

    reading = parse_mig(answer(ON, mixed()))
    assert wider("lgi", mixed()["lgi"]) != mixed()["lgi"]
    assert parse_mig(answer(ON, {key: wider(key, text) for key, text in mixed().items()})) == reading
    assert TypeAdapter(Mig).validate_python(json.loads(json.dumps(reading.to_json()))) == reading


@pytest.mark.pure
def test_a_lost_gpu_is_named() -> None:
    reading = parse_mig(["gpu.rc=15", "gpu=Unable to determine the device handle for GPU(?", "lost=0000:40:00.0"])
    assert reading.status == "lost" and unnamed(reading.message, "0000:40:00.0") == []


_PROGRAM = """#!/bin/sh
echo "$*" >> {folder}/asked
[ ! -e "{folder}/hangs $*" ] || exit 124
case "$1" in --query-gpu=*) cat {folder}/rows;; *) cat "{folder}/$*";; esac
"""


class Smi:
    """A program in nvidia-smi's place that plays what was recorded."""

    def __init__(self, folder: Path, modes: tuple[str, str]) -> None:
        self.folder = folder
        program = folder / "nvidia-smi"
        program.write_text(_PROGRAM.format(folder=folder))
        program.chmod(0o755)
        (folder / "rows").write_text("".join(f"{line}\n" for line in rows(modes)))
        for key, text in mixed().items():
            (folder / LISTS[key]).write_text(text)

    def read(self) -> Mig:
        environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        command = MigFact().command().replace("/sys/module/nvidia", str(self.folder))
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)
        assert done.returncode == 0
        reading: Mig = MigFact().process(done.stdout.splitlines())
        return reading

    def asked(self) -> list[str]:
        return [line.split()[-1] for line in (self.folder / "asked").read_text().splitlines()[1:]]


@pytest.mark.simulated
def test_the_probe_reads_modes_lists_and_instances_in_one_round_trip(tmp_path: Path) -> None:
    smi = Smi(tmp_path, ON)
    assert smi.read() == parse_mig(answer(ON, mixed()))
    assert smi.asked() == ["-L", "-lgip", "-lgipp", "-lgi", "-lci"]


@pytest.mark.simulated
@pytest.mark.parametrize("modes", [("Disabled", "Enabled"), ("[N/A]", "[N/A]")])
def test_the_lists_are_not_asked_for_where_mig_mode_is_off(tmp_path: Path, modes: tuple[str, str]) -> None:
    smi = Smi(tmp_path, modes)
    assert smi.read().gpus[0].current == modes[0]
    assert smi.asked() == []


@pytest.mark.simulated
def test_after_a_call_that_hung_no_other_is_made(tmp_path: Path) -> None:
    smi = Smi(tmp_path, ON)
    (tmp_path / "hangs mig -lgip").touch()
    reading = smi.read()
    assert (reading.status, reading.gpus[0].instances) == ("unreadable", None)
    assert unnamed(reading.message, "mig -lgip", 124) == [] and smi.asked() == ["-L", "-lgip"]
