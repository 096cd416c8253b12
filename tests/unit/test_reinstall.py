"""Packages that lost files are installed again, SIMULATED: each package manager's programs; sh is real."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyinfra.context import ctx_host

from gpunode.base.shell_file import script_file
from gpunode.components.cuda.decide import Desired, lost
from gpunode.components.dcgm.decide import Desired as DcgmDesired
from gpunode.components.dcgm.decide import decide as decide_dcgm
from gpunode.components.dcgm.state import parse_dcgm
from gpunode.components.runtimes.toolkit.packages import lost as lost_programs
from gpunode.facts.packages import DebPackages
from gpunode.operations import packages
from gpunode.packages.installed_packages import InstalledPackages
from gpunode.settings.dcgm import DcgmSettings
from tests.support.programs import programs, sh
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.simulated

NVCC, HOME = "/usr/local/cuda-12.9/bin/nvcc", "/usr/local/cuda-12.9/*"


@pytest.mark.parametrize(
    ("changes", "source", "paths"),
    [
        ({}, "cuda-repository", ()),
        ({"versions": (), "default_path": None, "nvcc_version": None}, "cuda-repository", (NVCC, HOME)),
        ({"nvcc_version": None}, "cuda-repository", (NVCC, HOME)),
        ({"nvcc_version": "12.8.93"}, "cuda-repository", (NVCC, HOME)),
        # A link to another toolkit, or a script that is missing, is no lost file of a package.
        ({"default_path": "/usr/local/cuda-12.8", "nvcc_version": "12.8.93"}, "cuda-repository", ()),
        ({"profile": False}, "cuda-repository", ()),
    ],
)
def test_which_files_of_cuda_are_lost(changes: dict[str, Any], source: str, paths: tuple[str, ...]) -> None:
    there = replace(GOOD.cuda, **changes)
    assert lost(Desired("12.9", source), there) == paths


def test_which_programs_of_the_toolkit_are_lost() -> None:
    there = replace(GOOD.toolkit, runtime_path=None)
    assert (lost_programs(GOOD.toolkit), lost_programs(there)) == ((), ("/usr/bin/nvidia-container-runtime",))


def test_a_program_of_dcgm_that_is_lost_is_part_of_the_plan() -> None:
    found = parse_dcgm(["package=datacenter-gpu-manager-4-core 1:4.5.3-1", "lost=/usr/bin/nv-hostengine"])
    asked = DcgmDesired(DcgmSettings(enabled=True, diagnostics=False, profiling=False))
    step = next(step for step in decide_dcgm(asked, found).steps if step.packages)
    assert found.lost == ("/usr/bin/nv-hostengine",) and "/usr/bin/nv-hostengine" in str(step.settles[0].actual)
    whole = decide_dcgm(asked, replace(found, lost=()))
    assert not any(step.packages for step in whole.steps)


@pytest.mark.parametrize(("installed", "word"), [((("containerd", "1.6.20"),), "--reinstall"), ((), "madison")])
def test_installed_packages_are_reinstalled_and_others_installed(
    installed: tuple[tuple[str, str], ...], word: str
) -> None:
    host = Host({DebPackages: InstalledPackages(installed)})
    with ctx_host.use(host):
        (command,) = commands(
            packages.installed,
            host,
            family="apt",
            desired={"containerd": None},
            lost=("/usr/bin/containerd",),
        )
    assert word in command and command.endswith("gpunode /usr/bin/containerd" if installed else "gpunode containerd")


# The package a owns bin and lib, b owns other, c owns x.so.1; `again` brings back what the file `offered` names.
FUNCTIONS = """
owned() { printf '%s\\n' "a $PWD/bin" "a $PWD/lib" "b $PWD/other" "c $PWD/x.so.1" | while read -r package path; do
  case "$path" in $1) echo "$package $path";; esac; done; }
again() { echo "$*" > asked; for file in $(cat offered); do echo x > "$file"; done; }
"""


@pytest.mark.parametrize(
    ("there", "offered", "patterns", "asked", "code"),
    [
        (["other"], "bin lib", "[blo]*", "a", 0),
        (["bin", "other"], "lib", "[blo]*", "a", 0),
        ([], "bin lib other", "[blo]*", "a b", 0),
        # A program that is there and does not work.
        (["bin", "lib", "other"], "", "bin", "a", 0),
        # The repository does not have them any more, and apt succeeds.
        (["other"], "", "[blo]*", "a", 1),
        # Nothing that a package owns is lost.
        (["bin", "lib", "other"], "", "[blo]*", None, 1),
        # A library without content, as a power cut leaves it.
        (["x.so.1"], "x.so.1", "*.so*", "c", 0),
        (["x.so.1"], "", "*.so*", "c", 1),
    ],
)
def test_the_packages_that_own_lost_files_are_installed_again(
    tmp_path: Path, there: list[str], offered: str, patterns: str, asked: str | None, code: int
) -> None:
    (tmp_path / "offered").write_text(offered)
    for name in there:
        (tmp_path / name).touch()
    done = sh(tmp_path, f"set -eu\n{FUNCTIONS}{script_file('reinstall')}", f"{tmp_path}/{patterns}")
    assert done.returncode == code, done.stderr
    assert ((tmp_path / "asked").read_text().strip() if asked else None) == asked
    assert ("gpunode: cause:" in done.stderr) == bool(code)


# SIMULATED: /gone/x is lost; each database has a link, a folder and a package of two architectures as well.
_DPKG = r"""
case "$1" in
  -S) printf '%s\n' 'diversion by b from: /gone/y' 'a, b: /gone' 'a:amd64: /gone/x' ;;
  -W) shift 2; for each; do echo "$each=1.0-1"; done;;
esac
"""
_MARK = 'case "$1" in showhold) echo a;; *) echo "$*" > held;; esac'
_RPM = r"""
case "$*" in
  *FILENAMES*) printf '%s\n' 'a-1.0-1.x86_64 /gone/x' 'b-1.0-1.x86_64 /else/x';;
  *) echo 'a=1.0-1';;
esac
"""
_PACMAN = r"""
case "$1" in
  -Ql) printf '%s\n' 'a /gone/' 'a /gone/x' 'b /else/x';;
  -Q) echo "$2 1.0-1";;
esac
"""
FAMILY = {
    "apt": ("apt_reinstall", {"dpkg-query": _DPKG, "apt-mark": _MARK}, "apt_get", "a:amd64=1.0-1"),
    "rpm": ("rpm_owned", {"rpm": _RPM}, "again", "a-1.0-1.x86_64"),
    "zypper": ("zypper_reinstall", {"rpm": _RPM, "find": ":"}, "zypp", "a=1.0-1"),
    "pacman": ("pacman_reinstall", {"pacman": _PACMAN}, "pacman_run", "a-1.0-1"),
}


@pytest.mark.parametrize("family", FAMILY)
def test_each_manager_installs_the_same_version_again(tmp_path: Path, family: str) -> None:
    script, stand_ins, call, named = FAMILY[family]
    programs(tmp_path, stand_ins)
    text = script_file(*(("rpm_owned",) if family == "zypper" else ()), script)
    helpers = 'DATABASE=/x; cached_file() { echo "$1-$2"; }; unlocked() { :; }'
    called = f'{call}() {{ echo "$*" >> asked; }}'
    end = f"{text}\n{called}\nowned '/gone/*' > owned; again $(cut -d ' ' -f 1 owned)"
    done = sh(tmp_path, f"set -eu\n{helpers}\n{end}")
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in (tmp_path / "owned").read_text().splitlines()] == ["/gone/x"]
    assert (tmp_path / "asked").read_text().split()[-1] == named
    assert family != "apt" or (tmp_path / "held").read_text() == "hold a\n"
