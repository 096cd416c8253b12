"""The profile script that puts CUDA and Nsight on the PATH, as shells read it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpunode.base.template import rendered

pytestmark = pytest.mark.real
BEFORE = "/usr/bin:/bin"


def path_after(cuda: Path, shell: str) -> list[str]:
    """Return the folders of PATH when a shell has read the script twice, `cuda` in the place of /usr/local/cuda."""
    text = rendered("cuda.sh").replace("/usr/local/cuda", str(cuda))
    done = subprocess.run(
        [*shell.split(), "-c", f'set -eu\n{text}\n{text}\necho "$CUDA_PATH $PATH"'],
        env={"PATH": BEFORE},
        capture_output=True,
        text=True,
        check=True,
    )
    said, path = done.stdout.split()
    assert (said, done.stderr) == (str(cuda), "")
    assert path.startswith(f"{cuda}/bin:{BEFORE}")
    return path.removeprefix(f"{cuda}/bin:{BEFORE}").lstrip(":").split(":")


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
@pytest.mark.parametrize(
    ("folders", "on_path"),
    [
        # Arch's package.
        (["nsight_compute", "nsight_systems/bin"], ["nsight_compute", "nsight_systems/bin"]),
        # NVIDIA's .run file.
        (
            ["nsight-compute-2025.2.1", "nsight-systems-2025.1.3/bin"],
            ["nsight-compute-2025.2.1", "nsight-systems-2025.1.3/bin"],
        ),
        ([], []),
    ],
)
def test_cuda_comes_first_and_nsight_s_folders_last_each_once_and_where_they_are_alone(
    shell: str, folders: list[str], on_path: list[str], tmp_path: Path
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    assert path_after(tmp_path, shell) == ([str(tmp_path / folder) for folder in on_path] or [""])
