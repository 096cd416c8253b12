"""Programs of a root filesystem, run in a throwaway container: this machine need not have them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpunode.lab.podman import attempt


def run_in(
    root: Path,
    work: Path,
    script: str,
    timeout: float = 600,
    network: bool = False,
    mounts: bool = False,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a shell script in `root`, which stays as it is, with the folder `work` as /work.

    + network: whether it reaches this machine's; without it, none
    + mounts: whether it may bind files over others, within the container
    + variables: of the script

    Return the finished process, whatever its exit code.
    """
    return attempt(
        *("run", "--rm", "--network", "host" if network else "none"),
        *(("--cap-add", "sys_admin", "--security-opt", "seccomp=unconfined") if mounts else ()),
        *("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=6000:6000"),
        *("--volume", f"{work}:/work"),
        *(part for name, value in variables.items() for part in ("--env", f"{name}={value}")),
        *("--env", "LC_ALL=C", "--rootfs", f"{root}:O", "sh", "-eu", "-c", script),
        timeout=timeout,
    )
