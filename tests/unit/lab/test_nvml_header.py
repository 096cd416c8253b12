"""The lab's libnvidia-ml against NVML's own header, which the Go module proxy serves as a part of NVIDIA's go-nvml."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpunode.lab.hardware.nvml import build

pytestmark = [pytest.mark.real, pytest.mark.tier2]
MODULE = "github.com/NVIDIA/go-nvml@v0.13.4-1"
OURS = Path(build.__file__).with_name("nvml.h")
_TYPES = re.compile(r"^} (nvml\w+(?:, nvml\w+)*);", re.M)


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return NVIDIA's nvml.h."""
    if shutil.which("go") is None:
        pytest.skip("needs Go, to fetch NVML's header by the module proxy")
    done = subprocess.run(
        ["go", "mod", "download", "-json", MODULE],
        cwd=tmp_path_factory.mktemp("go"), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"the Go module proxy does not serve {MODULE}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return Path(json.loads(done.stdout)["Dir"]) / "pkg/nvml/nvml.h"


def test_every_function_that_nvml_declares_is_in_the_list(header: Path) -> None:
    declared = set(re.findall(r"DECLDIR\b[^(;]*?\b(nvml[A-Z]\w*)\s*\(", header.read_text()))
    assert len(declared) > 400
    # Old names, which the library still exports and the header only defines as macros.
    assert set(build.functions()) - declared == {"nvmlGetBlacklistDeviceCount", "nvmlGetBlacklistDeviceInfoByIndex"}
    assert declared <= set(build.functions())


def test_structures_have_the_sizes_of_nvml_s(header: Path, tmp_path: Path) -> None:
    names = [name for found in _TYPES.findall(OURS.read_text()) for name in found.split(", ")]
    assert len(names) > 15
    assert sizes(OURS, names, tmp_path) == sizes(header, names, tmp_path)


def sizes(header: Path, names: list[str], folder: Path) -> dict[str, int]:
    """Return the size of each type of a header."""
    lines = [f'    printf("{name} %zu\\n", sizeof({name}));' for name in names]
    source = (
        f'#include <stdio.h>\n#include "{header}"\nint main(void)\n{{\n' + "\n".join(lines) + "\n    return 0;\n}\n"
    )
    program = folder / "sizes"
    subprocess.run(["gcc", "-x", "c", "-", "-o", program], input=source, text=True, check=True, timeout=60)
    printed = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60).stdout
    return {name: int(size) for name, size in (line.split() for line in printed.splitlines())}
