"""Headers whose package has one name for all kernels: kernel-devel of RHEL and its kin, kernel-default-devel of SUSE.

SIMULATED: rpm, dnf and zypper. No such node was run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpunode.deploys import driver as driver_deploy
from gpunode.operations.kernel import BY_DNF, BY_ZYPPER
from gpunode.settings import settings_from
from gpunode.system.operating_system import OperatingSystem
from tests.support.messages import unnamed
from tests.support.operations import Recorder
from tests.support.preflight import machine
from tests.support.verify import GOOD

RELEASE = "5.14.0-503.el9.x86_64"
ROCKY = OperatingSystem("rocky", "9.5", None, (), "Rocky Linux 9.5", "x86_64", RELEASE, False)
LEAP = OperatingSystem("opensuse-leap", "15.6", None, (), "openSUSE Leap 15.6", "x86_64", RELEASE, False)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("system", "asked", "called"),
    [
        (ROCKY, "install", True),
        (ROCKY, "require", False),
        (LEAP, "install", True),
        (GOOD.operating_system, "install", False),
    ],
)
def test_the_deploy_asks_for_them_where_the_family_has_them_so(
    monkeypatch: pytest.MonkeyPatch, system: OperatingSystem, asked: str, called: bool
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(driver_deploy, "kernel", recorder)
    monkeypatch.setattr(driver_deploy, "node", lambda: machine(system))
    monkeypatch.setattr(driver_deploy, "distribution", lambda: type("Row", (), {"family": "dnf"}))
    driver_deploy._headers(settings_from({"driver": {"kernel_headers": asked}}).driver)
    assert len(recorder.calls) == int(called)


# `have`: what is to be had; what was asked for is in `asked`.
_PROGRAMS = {
    "rpm": '[ "$1 $2" = "-qf --qf" ] && [ -e "$4" ] || exit 1; [ -s "$ROOT/owner" ] && cat "$ROOT/owner" || '
    '{ echo "file $4 is not owned by any package"; exit 1; }',
    "dnf": 'case "$*" in *" install "*) ;; *) exit 0;; esac\n'
    'shift "$(($# - 1))"; echo "$1" > "$ROOT/asked"; grep -qx -- "$1" "$ROOT/have" && '
    'mkdir -p "$ROOT/lib/modules/$RELEASE/build" && touch "$ROOT/lib/modules/$RELEASE/build/Makefile"',
}
_PROGRAMS["zypper"] = _PROGRAMS["dnf"]


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("family", "owner", "asked"),
    [
        ("dnf", "kernel-core 5.14.0-503.el9", "kernel-devel-5.14.0-503.el9"),
        ("dnf", "kernel-rt-core 5.14.0-503.el9", "kernel-rt-devel-5.14.0-503.el9"),
        ("zypper", "kernel-default 6.4.0-150600.23.25.1", "kernel-default-devel=6.4.0-150600.23.25.1"),
        ("zypper", "kernel-azure-base 6.4.0-1", "kernel-azure-devel=6.4.0-1"),
    ],
)
def test_they_come_at_the_version_of_the_kernel_s_own_package(
    tmp_path: Path, family: str, owner: str, asked: str
) -> None:
    done = _run(tmp_path, family, owner, asked)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text().strip() == asked


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("owner", "have", "asks", "names"),
    [
        ("kernel-core 5.14.0-503.el9", "kernel-devel-5.14.0-570.el9", True, ["kernel-devel 5.14.0-503.el9", "dnf"]),
        # A kernel that no package brought.
        ("", "", False, ["kernel"]),
    ],
)
def test_headers_that_cannot_be_had_are_told(
    tmp_path: Path, owner: str, have: str, asks: bool, names: list[str]
) -> None:
    done = _run(tmp_path, "dnf", owner, have)
    assert done.returncode == 1 and unnamed(done.stderr, *names) == []
    assert (tmp_path / "asked").exists() is asks


def _run(root: Path, family: str, owner: str, have: str) -> subprocess.CompletedProcess[str]:
    (root / "owner").write_text(f"{owner}\n" if owner else "")
    (root / "have").write_text(f"{have}\n")
    (root / "boot").mkdir()
    (root / f"boot/vmlinuz-{RELEASE}").touch()
    programs = root / "bin"
    programs.mkdir()
    for name, text in _PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    text = BY_DNF if family == "dnf" else BY_ZYPPER
    for place in ("/lib/modules", "/boot"):
        text = text.replace(f'"{place}/', f'"{root}{place}/')
    return subprocess.run(
        ["sh", "-c", f"set -eu\nrelease={RELEASE}\n{text}"],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "ROOT": str(root), "RELEASE": RELEASE},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
