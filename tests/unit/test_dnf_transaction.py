"""The driver's transaction with dnf, as sh runs it: what becomes of the module stream where nothing came of the driver.

SIMULATED: dnf and rpm, with a driver's packages in no database; tests/molecule/dnf has the real ones.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from gpunode.operations.driver_transaction import driver_transaction
from gpunode.operations.families import DNF
from gpunode.operations.families.dnf import REFRESH
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from gpunode.packages.driver_packages import FOREIGN, OWN

pytestmark = pytest.mark.simulated

# SIMULATED: dnf cannot read the repositories in `gone`, and says so as it does.
_REPOSITORIES = r"""
case "$*" in
  *--enablerepo=gpunode-cuda*) ! grep -qx cuda "$ROOT/gone";;
  *skip_if_unavailable=1*)
    case " $* " in *" -q "*) exit 0;; esac
    sed 's/^/Error: Failed to download metadata for repo /' "$ROOT/gone"
    sed 's/^/Ignoring repositories: /' "$ROOT/gone";;
  *) [ ! -s "$ROOT/gone" ];;
esac
"""


def _refreshed(root: Path, *gone: str) -> subprocess.CompletedProcess[str]:
    (root / "gone").write_text("".join(f"{name}\n" for name in gone))
    (root / "etc").mkdir()
    (root / "etc/gpunode-cuda.repo").touch()
    (root / "dnf").write_text(f"#!/bin/sh\n{_REPOSITORIES}")
    (root / "dnf").chmod(0o755)
    text = REFRESH.replace("/etc/yum.repos.d", f"{root}/etc")
    return subprocess.run(
        ["sh", "-c", f"set -eu\n{text}\nrefresh cuda"],
        env={"PATH": f"{root}:{os.environ['PATH']}", "ROOT": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_foreign_repository_that_cannot_be_read_is_named_and_hinders_nothing(tmp_path: Path) -> None:
    done = _refreshed(tmp_path, "epel", "internal")
    assert done.returncode == 0, done.stderr
    assert "dnf passes over what it cannot read: epel internal" in done.stderr
    assert "--set-disabled epel internal" in done.stderr


def test_where_all_can_be_read_nothing_is_said(tmp_path: Path) -> None:
    done = _refreshed(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_repository_that_the_packages_come_from_must_answer(tmp_path: Path) -> None:
    done = _refreshed(tmp_path, "cuda")
    assert done.returncode == 1
    assert "the repository cuda could not be read; nothing was installed" in done.stderr


# What is enabled is a file, and nothing can be installed.
_PROGRAMS = {
    "dnf": r"""
echo "$*" >> "$ROOT/asked"
case "$*" in
  *"module enable "*) echo "stream=${*##*:}" > "$ROOT/etc/dnf/modules.d/nvidia-driver.module";;
  *"module reset "*) rm -f "$ROOT/etc/dnf/modules.d/nvidia-driver.module";;
  *" install "*) echo "Error: no room" >&2; exit 1;;
esac
""",
    "rpm": '[ "$1" = -qa ]',
    "modinfo": "exit 1",
    "systemctl": "exit 1",
}
_PLACES = ("/etc/dnf", "/usr/lib", "/usr/bin/nvidia-", "/var/lib/dkms", "/var/cache/dnf", "/sys/module")
_STREAM = "etc/dnf/modules.d/nvidia-driver.module"


def _changed(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the transaction for a first driver, of the stream 580-open."""
    programs = root / "bin"
    programs.mkdir()
    for name, text in _PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    variables = {
        "arguments": "nvidia-open=3:580.95.05-1.el9", "expected": "nvidia-open=3:580.95.05-1.el9",
        "names": "nvidia-open", "upstream": "580.95.05", "kernel": "", "own": OWN, "foreign": FOREIGN,
        "rollback": "required", "holding": "", "runfiles": f"{root}/runfiles", "before_version": "",
        "before_install": "", "before_uninstall": "", "uninstall": "", "installer_log": "/x", "saved": "rpms",
        "stream": "nvidia-driver:580-open", "streamed": "nvidia-driver",
    }  # fmt: skip
    text = transaction_text(driver_transaction(DNF), "target-1", variables)
    text = text.replace("folder=/var/lib/gpunode/transactions", f"folder={root / 'state'}", 1)
    for place in _PLACES:
        text = re.sub(rf"(?<![\w./]){re.escape(place)}", f"{root}{place}", text)
    (root / "state").mkdir()
    (root / "driver.sh").write_text(script(text))
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "ROOT": str(root)}
    return subprocess.run(
        ["sh", root / "driver.sh", "change"],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("before", [None, "stream=570-open\n"])
def test_a_first_driver_that_cannot_be_installed_leaves_the_stream_as_it_was(
    tmp_path: Path, before: str | None
) -> None:
    stream = tmp_path / _STREAM
    stream.parent.mkdir(parents=True)
    if before is not None:
        stream.write_text(before)
    done = _changed(tmp_path)
    assert done.returncode == 1
    assert "the driver's packages could not be installed" in done.stderr
    # It was enabled for the try.
    assert "module enable nvidia-driver:580-open" in (tmp_path / "asked").read_text()
    assert (stream.read_text() if stream.exists() else None) == before
    assert json.loads((tmp_path / "state/driver.json").read_text())["state"] == "restored"
