"""Sessions at a SIMULATED machine, call by call: sessions/*.txt hold what each call printed, and how it ended.

The first line of a session is `# GPU COUNT DRIVER [FLAVOUR]`; without a driver none is installed. What is no program of
the lab's is done by sh in the machine's root. `GPUNODE_TEST_SNAPSHOTS=write` rewrites the files for a review.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from gpunode.lab.hardware.simulated import fault, hold, kmod, module
from gpunode.lab.hardware.simulated.boundary import publish_pci
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi.main import call
from tests.support.installed_driver import install

pytestmark = pytest.mark.simulated
FOLDER = Path(__file__).parent / "sessions"
_DATE = re.compile(r"^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} {7}$", re.M)


class Session:
    """Hold a machine, and the driver of which its nvidia-smi is."""

    def __init__(self, root: Path, gpu: str, count: str, driver: str = "", flavour: str = "open") -> None:
        self.machine, self.driver, self.user = Machine(root), driver, 0
        self._hardware(gpu, count)
        if driver:
            install(self.machine, driver, flavour)
            module.load(self.machine, "nvidia")

    def _hardware(self, gpu: str, count: str) -> None:
        uuids = [f"GPU-12345678-1234-1234-1234-12345678000{index}" for index in range(8)]
        hardware = {"gpu": gpu, "count": int(count), "uuids": uuids[: int(count)]}
        self.machine.write_json("/etc/gpunode-lab/hardware.json", hardware)

    def call(self, line: str) -> tuple[str, int]:
        """Return what a command line prints, and its exit code."""
        machine, (program, *words) = self.machine, line.split()
        output, code = io.StringIO(), 0
        with redirect_stdout(output), redirect_stderr(output):
            match program:
                case "nvidia-smi":
                    printed, code = call(words, self.driver, machine)
                    output.write(printed.decode(errors="replace"))
                case "fault":
                    code = fault.main(words, machine)
                    output = io.StringIO(output.getvalue().partition("usage:")[0])
                case "hold":
                    code = hold.main(words, machine)
                case "modprobe" | "rmmod" | "modinfo":
                    code = kmod.main([program, *words], machine)
                case "insert":
                    kmod.insert(machine, *words)
                case "unload":
                    module.unload(machine, "nvidia")
                case "reload":
                    module.unload(machine, "nvidia")
                    module.load(machine, "nvidia")
                case "user":
                    self.user = int(*words)
                case "driver":
                    install(machine, *words)
                case "hardware":
                    self._hardware(*words)
                case "pci":
                    publish_pci(machine, machine.gpus())
                case _:
                    done = subprocess.run(
                        ["sh", "-c", line], cwd=machine.path("/"), env={**os.environ, "LC_ALL": "C"},
                        capture_output=True, text=True,
                    )  # fmt: skip
                    output.write(done.stdout + done.stderr)
                    code = done.returncode
        text = output.getvalue().replace(str(machine.path("/")).rstrip("/"), "").replace(machine.kernel, "KERNEL")
        return _DATE.sub("DATE", text), code


@pytest.fixture(autouse=True)
def as_in_a_transaction() -> Iterator[None]:
    """Let no other user read what is made, unless the program itself says so."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: str(path.stem))
def test_each_call_of_a_session_prints_and_ends_as_ever(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = path.read_text()
    first, *_ = text.splitlines()
    session = Session(tmp_path, *first.removeprefix("# ").split())
    monkeypatch.setattr(os, "geteuid", lambda: session.user)
    made = [f"{first}\n"]
    for line in re.findall(r"^\$ (.*)", text, re.M):
        printed, code = session.call(line)
        made.append(f"$ {line}\n{printed}[rc={code}]\n")
    if os.environ.get("GPUNODE_TEST_SNAPSHOTS") == "write":
        path.write_text("".join(made))
    assert "".join(made) == path.read_text()
