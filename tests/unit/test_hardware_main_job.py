"""The main job on a machine with a GPU: its page, what is carried, and the comparison of NVML libraries."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.errors import LabError
from tests.hardware import carry, unpack
from tests.hardware.nvml_compared import differences
from tests.hardware.page import main, main_job, page

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
RESULT: dict[str, Any] = {
    "about": {"python": HERE, "containerd": "2.4.2", "runc": "1.5.3", "toolkit": "1.20.2"},
    "simulated": False,
    "gpus": ["NVIDIA H200"],
    "state": {"driver_version": "580.159.04"},
    "kernel": "6.18.44-fc-v236-gpu",
    "system": "Ubuntu 24.04.3 LTS, carried systemd",
    "seconds": 123,
    "steps": [
        {"step": "drift", "seen": "exit status 0", "seconds": 3.2, "ok": True},
        {"step": "heal", "seen": "failed: a | b\nc", "seconds": 9.0, "ok": False},
    ],
    "nvml": [{"function": "nvmlDeviceGetBrand", "lab": "status 3", "driver": "status 0: 5"}],
}


@pytest.mark.pure
def test_a_section_takes_the_place_of_not_yet_and_of_its_former_self(tmp_path: Path) -> None:
    text = main_job(RESULT, datetime(2026, 11, 29, tzinfo=UTC))
    assert text.startswith("## 1 × NVIDIA H200, driver 580.159.04: the main job\n")
    assert "| heal | failed: a \\| b c | 9.0 |" in text and "| nvmlDeviceGetBrand | status 3 | status 0: 5 |" in text
    before = "# Hardware\n\n## 1 × NVIDIA H200, driver 580.159.04\n\nfacts\n\n## The main job\n\nNot yet.\n"
    once = page(before, [text])
    assert "Not yet" not in once and "\nfacts\n" in once and page(once, [text]) == once


@pytest.mark.pure
@pytest.mark.parametrize("change", [{"simulated": True}, {"gpus": []}], ids=["SIMULATED", "no GPU"])
def test_without_a_real_gpu_no_page_is_written(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "result.json").write_text(json.dumps({**RESULT, **change}))
    assert main([str(tmp_path / "result.json"), str(tmp_path / "hardware.md")]) == 0
    assert not (tmp_path / "hardware.md").exists()


@pytest.mark.pure
def test_only_functions_that_differ_are_named() -> None:
    lab = {"nvmlA": "there", "nvmlB": [0, 1], "nvmlC": [3, None]}
    driver = {"nvmlA": "missing", "nvmlB": [0, 1], "nvmlC": [0, "x"], "nvmlD": [0, None]}
    found = {each["function"]: (each["lab"], each["driver"]) for each in differences(lab, driver)}
    assert found == {
        "nvmlA": ("there", "missing"), "nvmlC": ("status 3", "status 0: x"), "nvmlD": ("missing", "status 0"),
    }  # fmt: skip


@pytest.mark.pure
@pytest.mark.parametrize(("python", "status"), [(HERE, 0), ("2.7", 3)])
def test_a_carried_file_is_unpacked_for_its_own_python_alone(tmp_path: Path, python: str, status: int) -> None:
    (tmp_path / "about.json").write_text(json.dumps({"python": python}))
    with tarfile.open(tmp_path / "carried.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "about.json", "./about.json")
    assert unpack.main(tmp_path / "carried.tar.xz", tmp_path / "unpacked") == status
    assert (tmp_path / "unpacked/about.json").exists()


@pytest.mark.pure
def test_a_carried_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/about.json").write_text("{}")
    assert carry.packed(tmp_path / "folder", tmp_path / "carried") < 1
    monkeypatch.setattr(carry, "_MOST_MIB", 0)
    with pytest.raises(LabError):
        carry.packed(tmp_path / "folder", tmp_path / "carried")


# libcuda as the CUDA program calls it: memory is the process's own, and the kernel is run here.
CUDA = """
#include <stdlib.h>
#include <string.h>
typedef unsigned long long P;
int cuInit(unsigned f) { return f; }
int cuDeviceGet(int *d, int n) { *d = n; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = &cuInit; return d; }
int cuCtxSetCurrent(void *c) { return c == NULL; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(P *p, size_t n) { *p = (P)malloc(n); return getenv("NO_MEMORY") ? 2 : 0; }
int cuMemcpyHtoD_v2(P to, const void *from, size_t n) { memcpy((void *)to, from, n); return 0; }
int cuMemcpyDtoH_v2(void *to, P from, size_t n) { memcpy(to, (void *)from, n); return 0; }
int cuModuleLoadData(void **m, const void *text) { *m = (void *)text; return strstr(text, ".entry add(") == NULL; }
int cuModuleGetFunction(void **f, void *m, const char *name) { *f = m; return strcmp(name, "add"); }
int cuGetErrorName(int n, const char **to) { *to = n == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "?"; return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **a, void **extra) {
  float *one = *(float **)a[0], *other = *(float **)a[1], *sum = *(float **)a[2];
  unsigned count = *(unsigned *)a[3];
  for (unsigned at = 0; at < gx * bx && at < count; at++) sum[at] = one[at] + other[at];
  return gx * bx < count || gy * gz * by * bz != 1 || shared || stream || extra;
}
"""


@pytest.mark.simulated
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_the_cuda_program_adds_and_names_what_fails(tmp_path: Path) -> None:
    carry.client(tmp_path / "client")
    line = ["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), "-x", "c", "-"]
    subprocess.run(line, input=CUDA, text=True, check=True)

    def run(**environment: str) -> tuple[int, str]:
        known = {"LD_LIBRARY_PATH": str(tmp_path), **environment}
        done = subprocess.run([tmp_path / "client"], env=known, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert run() == (0, "PASSED\n")
    assert run(NO_MEMORY="1") == (1, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)\n")
