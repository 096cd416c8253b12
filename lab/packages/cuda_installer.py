#!/usr/bin/python3
"""SIMULATED cuda-installer of gpunode's lab: options, log, link and uninstaller as CUDA's .run file has them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

_FLAGS = ("--silent", "--toolkit", "--override", "--no-man-page", "--no-drm", "--no-opengl-libs", "--driver")
_VALUES = ("--toolkitpath", "--installpath", "--defaultroot", "--tmpdir")
_LOG = "/var/log/cuda-installer.log"
_UNINSTALLER = """#!/bin/sh
# SIMULATED cuda-uninstaller of gpunode's lab.
set -e
toolkit={toolkit}
if [ "$(readlink /usr/local/cuda || :)" = "$toolkit" ]; then rm -f /usr/local/cuda; fi
rm -f /etc/ld.so.conf.d/cuda-{dashed}.conf
rm -rf "$toolkit"
"""


def main(arguments: list[str], source: Path, root: Path = Path("/")) -> int:
    """Install the toolkit that lies in `source`; return 0, or 1 with the reason in the log."""
    package = json.loads((source / "package.json").read_text())
    lines = [f"[INFO]: SIMULATED cuda-installer {package['release']}: {' '.join(arguments)}"]
    try:
        _install(arguments, source, root, package["version"], lines)
        status = 0
    except (OSError, ValueError) as error:
        lines.append(f"[ERROR]: {error}")
        print(f"Installation failed. See log at {_LOG} for details.", file=sys.stderr)
        status = 1
    log = root / _LOG.lstrip("/")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{line}\n" for line in lines))
    return status


def _install(arguments: list[str], source: Path, root: Path, version: str, lines: list[str]) -> None:
    values: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in _VALUES and equals:
            values[name] = value
        elif argument in _FLAGS:
            values[name] = "yes"
        else:
            raise ValueError(f"unknown option: {argument}")
    if "--silent" not in values:
        raise ValueError("a question would be asked here, and nobody is there to answer (--silent)")
    if "--driver" in values:
        raise ValueError("the lab's CUDA file holds no driver")
    if "--toolkit" not in values:
        raise ValueError("nothing was chosen for installation")
    if "--override" not in values and shutil.which("gcc") is None:
        raise ValueError("no supported version of gcc was found; --override skips this check")
    toolkit = values.get("--toolkitpath", f"/usr/local/cuda-{version}")
    folder = root / toolkit.lstrip("/")
    faults = root / "etc/gpunode-lab/faults.json"
    fault = json.loads(faults.read_text() or "{}").get("cuda_installer") if faults.exists() else None
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "version.json", folder / "version.json")
    if fault:
        raise OSError("SIMULATED fault: No space left on device")
    shutil.copyfile(source / "nvcc", folder / "bin/nvcc")
    (folder / "bin/nvcc").chmod(0o755)
    dashed = version.replace(".", "-")
    linker = root / f"etc/ld.so.conf.d/cuda-{dashed}.conf"
    linker.parent.mkdir(parents=True, exist_ok=True)
    linker.write_text(f"{toolkit}/targets/x86_64-linux/lib\n")
    link = root / "usr/local/cuda"
    link.unlink(missing_ok=True)
    link.symlink_to(toolkit)
    # Last, so that what was broken off has none.
    (folder / "bin/cuda-uninstaller").write_text(_UNINSTALLER.format(toolkit=toolkit, dashed=dashed))
    (folder / "bin/cuda-uninstaller").chmod(0o755)
    lines.append(f"[INFO]: Toolkit installed in {toolkit}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent))
