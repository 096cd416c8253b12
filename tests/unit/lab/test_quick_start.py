"""What the lab's programs do not do when they start, which they do hundreds of times in each test run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

from gpunode.lab.hardware import install_hardware
from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.plain import name_uuid, parse_json
from gpunode.lab.packages.smi_archive import smi_archive
from tests.support.nvidia_smi import machine_with

pytestmark = pytest.mark.simulated

VERSION = "580.95.05"
# Each takes as long to import as a whole call takes, or brings another one that does.
DEAR = {
    "argparse", "dataclasses", "enum", "hashlib", "importlib.resources", "inspect", "json", "logging", "pathlib",
    "pkgutil", "platform", "random", "re", "shutil", "signal", "site", "subprocess", "tempfile", "typing", "uuid",
}  # fmt: skip
OF_MIG = {"simulated.smi.mig"}
OF_OTHERS = OF_MIG | {"simulated.smi.modify"}
QUERY = "--query-gpu=index,name,uuid,mig.mode.current,ecc.errors.uncorrected.volatile.total --format=csv"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    Machine(tmp_path / "machine").write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    return machine_with(tmp_path / "machine", {"gpu": "h100-80gb", "count": 2}, VERSION)


def imported(library: Path, code: str) -> set[str]:
    """Return the modules that are imported once the code, which knows `library`, has run as the lab's programs do."""
    code = f"import sys; sys.path.insert(0, {str(library)!r}); {code}; print(*sys.modules, sep=chr(10))"
    result = subprocess.run([sys.executable, "-ISB", "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return set(result.stdout.splitlines())


@pytest.mark.parametrize(
    ("line", "needless"),
    [(QUERY, OF_OTHERS | {"simulated.smi.table"}), ("-L", OF_OTHERS), ("", OF_OTHERS), ("mig -lgip", set())],
)
def test_a_call_of_nvidia_smi_imports_nothing_dear(
    machine: Machine, tmp_path: Path, line: str, needless: set[str]
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(smi_archive(VERSION))
    code = (
        "from simulated.machine import Machine; from simulated.smi.main import call; "
        f"said, status = call({line.split()!r}, {VERSION!r}, Machine({machine.at('/')!r})); assert not status, said"
    )
    found = imported(program, code)
    assert "simulated.smi.session" in found
    assert not found & (DEAR | needless)


@pytest.mark.parametrize("line", ["modinfo -F version nvidia", "modprobe nvidia", "modprobe -n nvidia_uvm"])
def test_modprobe_and_modinfo_import_nothing_dear(machine: Machine, line: str) -> None:
    library = Path(module.__file__).parents[1]
    code = (
        "from simulated.machine import Machine; from simulated.kmod import main; "
        f"assert main({line.split()!r}, Machine({machine.at('/')!r})) == 0"
    )
    found = imported(library, code)
    assert "simulated.kmod" in found
    assert not found & (DEAR | {"contextlib", "functools"})


def test_the_programs_start_without_the_environment_and_compiled(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(smi_archive(VERSION))
    assert program.read_bytes().startswith(b"\x7fELF") and b"-ISB\0" in program.read_bytes()
    with zipfile.ZipFile(program) as archive:
        names = set(archive.namelist())
    assert {f"{name}c" for name in names if name.endswith(".py")} < names


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return an unpacked image with the lab's programs in it."""
    if shutil.which("dpkg-divert") is None:
        pytest.skip("needs dpkg-divert")
    folder = tmp_path / "image"
    for name in ("usr/bin", "usr/sbin", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (folder / name).mkdir(parents=True)
    for name in ("var/lib/dpkg/status", "usr/bin/kmod", "usr/bin/python3"):
        (folder / name).touch()
    install_hardware(folder)
    return folder


def test_in_an_image_python_finds_every_module_compiled(image: Path) -> None:
    library = image / "usr/lib/gpunode-lab"
    # Were the source looked at, it would be refused: the compiled form is taken as it is.
    for source in library.rglob("*.py"):
        source.write_text("this is no Python")
    assert "simulated.kmod" in imported(library, "import simulated.kmod, simulated.boundary, simulated.fault")


def test_a_module_that_is_not_nvidias_goes_to_kmod_without_python(image: Path) -> None:
    library = image / "usr/lib/gpunode-lab"
    for name in ("modprobe", "rmmod", "modinfo"):
        assert (library / "real" / name).readlink() == Path("/usr/bin/kmod")
        (library / "real" / name).unlink()
        (library / "real" / name).write_text('#!/bin/sh\necho "kmod ${0##*/}:" "$@"\n')
        (library / "real" / name).chmod(0o755)
    python = image / "usr/bin/python3"
    python.write_text('#!/bin/sh\necho python "$@"\n')
    python.chmod(0o755)

    def said(line: str) -> str:
        program, *arguments = line.split()
        text = (image / "usr/sbin" / program).read_text()
        here = text.replace("/usr/lib/gpunode-lab", str(library)).replace("/usr/bin/python3", str(python))
        script = image / program
        script.write_text(here)
        script.chmod(0o755)
        return subprocess.run([script, *arguments], capture_output=True, text=True, check=True).stdout.strip()

    assert said("modprobe -q overlay") == "kmod modprobe: -q overlay"
    assert said("modinfo") == "kmod modinfo:"
    assert said("rmmod nvidia_uvm nvidia") == f"python -ISB {library}/kmod rmmod nvidia_uvm nvidia"
    # Which of several names are NVIDIA's, kmod.py finds out.
    assert said("modprobe -a overlay nvidia") == f"python -ISB {library}/kmod modprobe -a overlay nvidia"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2.5e3, true, false, null, "\\u00e9\\ud83d\\ude00\\/"], "b": {}}', " \n[]\t\r ", "1", '"x"',
        "-Infinity", "", "{", '{"a": tru}', "{} x", "[1,]", "{'a': 1}", '{"a" 1}', '["a\tb"]', "\ufeff{}",
    ],
)  # fmt: skip
def test_json_reads_as_by_the_module_json(text: str) -> None:
    try:
        expected: object = json.loads(text)
    except ValueError as error:
        with pytest.raises(ValueError) as raised:
            parse_json(text)
        assert str(raised.value) == str(error)
    else:
        assert parse_json(text) == expected


def test_names_become_the_uuids_that_the_module_uuid_makes_of_them() -> None:
    space = uuid.UUID("8c5d9a52-7a4f-4f0b-9f43-2d1b6f2f5a11")
    for name in ("", "h100-80gb/0", "0123456789abcdef/t4/7", "ä"):
        assert name_uuid(space.bytes, name) == str(uuid.uuid5(space, name))
