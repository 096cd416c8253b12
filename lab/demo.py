"""The demonstration behind `make demo`: two lab nodes, the main job, and the verdict, as a person would run them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from gpunode.lab.state import CHECKOUT, lab_name

_BINARIES = Path(sys.executable).parent
_AROUND = """
Look around:
  {sudo}.venv/bin/gpunode lab ssh gpu-1                                    # a shell on a node; try nvidia-smi
  {sudo}.venv/bin/pyinfra inventories/lab.py deploys/gpu_node.py --dry     # what would change: nothing
  {sudo}.venv/bin/gpunode lab ssh gpu-1 rm /etc/profile.d/cuda.sh          # break something
  {sudo}.venv/bin/gpunode drift inventories/lab.py                         # what strayed, and what heals it
  {sudo}.venv/bin/gpunode apply inventories/lab.py                         # heal it: the plan, a question, the run
Tear down:
  make demo-down
The GPUs are SIMULATED, at the kernel's boundary; packages, services and configuration are real."""


def main() -> int:
    """Run the demonstration; return 0 if both nodes are what was asked, else the failed step's exit code."""
    steps = [
        ("Boot two nodes with two simulated H100 each", ["gpunode", "lab", "up", "--nodes", "2", "--gpus", "2"]),
        ("Turn them into GPU nodes", ["pyinfra", "-y", "inventories/lab.py", "deploys/gpu_node.py"]),
        ("Read them back", ["gpunode", "drift", "--all", "inventories/lab.py"]),
    ]
    if lab_name() != "default":
        print(f"The lab is {lab_name()} (GPUNODE_LAB).")
    begun = time.monotonic()
    for number, (title, command) in enumerate(steps, start=1):
        print(f"\n==> Step {number} of {len(steps)}: {title}\n    .venv/bin/{' '.join(command)}", flush=True)
        started = time.monotonic()
        done = subprocess.run(
            [_BINARIES / command[0], *command[1:]],
            cwd=CHECKOUT,
            env={**os.environ, "PYINFRA_PROGRESS": "off"},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            print(f"==> Step {number} failed with exit code {done.returncode}; what it says stands above.")
            return done.returncode
        print(f"    ({time.monotonic() - started:.0f} s)")
    print(f"\nBoth nodes are verified GPU nodes, after {time.monotonic() - begun:.0f} s.")
    print(_AROUND.format(sudo="sudo " if "SUDO_UID" in os.environ else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
