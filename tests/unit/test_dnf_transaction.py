"""The driver's transaction with dnf, as sh runs it: what becomes of the module stream where nothing came of the driver.

SIMULATED: dnf and rpm, with a driver's packages in no database; tests/molecule/dnf has the real ones.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from gpunode.operations.driver_transaction import driver_transaction
from gpunode.operations.families import DNF
from gpunode.operations.families.dnf import REFRESH
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from gpunode.packages.driver_packages.names import FOREIGN, OWN
from tests.support.messages import unnamed
from tests.support.programs import programs, sh

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


@pytest.mark.parametrize(
    ("gone", "code", "named"),
    [((), 0, []), (("epel", "internal"), 0, ["--set-disabled epel internal"]), (("cuda",), 1, ["repository cuda"])],
)
def test_a_foreign_repository_that_cannot_be_read_is_named_and_ours_must_answer(
    tmp_path: Path, gone: tuple[str, ...], code: int, named: list[str]
) -> None:
    (tmp_path / "gone").write_text("".join(f"{name}\n" for name in gone))
    (tmp_path / "gpunode-cuda.repo").touch()
    programs(tmp_path, {"dnf": _REPOSITORIES})
    text = f"set -eu\n{REFRESH.replace('/etc/yum.repos.d', str(tmp_path))}\nrefresh cuda"
    done = sh(tmp_path, text, ROOT=str(tmp_path))
    assert done.returncode == code, done.stderr
    assert bool(done.stderr) == bool(named) and unnamed(done.stderr, *named) == []


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
    programs(root / "bin", _PROGRAMS)
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
    return sh(root / "bin", script(text), "change", ROOT=str(root))


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
    assert "Error: no room" in done.stderr
    # It was enabled for the try.
    assert "module enable nvidia-driver:580-open" in (tmp_path / "asked").read_text()
    assert (stream.read_text() if stream.exists() else None) == before
    assert json.loads((tmp_path / "state/driver.json").read_text())["state"] == "restored"
