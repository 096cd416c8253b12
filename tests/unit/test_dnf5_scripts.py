"""The shell by which dnf 5 changes a node, as sh runs it.

SIMULATED: dnf 5 and rpm; tests/molecule/dnf5 has the real ones.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpunode.base.shell_file import script_file
from gpunode.operations.families import DNF5
from gpunode.operations.families.dnf5 import OFFERED, REFRESH
from gpunode.packages.families import dnf5
from tests.unit.test_dnf5 import THEIRS
from tests.unit.test_dnf5_words import FILTERED, FLAVOUR

pytestmark = [pytest.mark.simulated, pytest.mark.starts_programs]


def run(tmp_path: Path, text: str, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run shell text with SIMULATED programs, which note what they are told in `asked`."""
    for name, body in programs.items():
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\n{body}\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    text = text.replace(dnf5.LOCKLIST, str(tmp_path / "versionlock.toml"))
    return subprocess.run(
        ["sh", "-c", f"set -eu\n{text}"], env=environment, capture_output=True, text=True, check=False
    )


def test_one_transaction_brings_and_takes_away_and_sees_no_other_version(tmp_path: Path) -> None:
    dnf = 'case "$*" in *repoquery*) printf "%s\\n" "nvidia-open 580.82.07 3:580.82.07-1" '
    dnf += '"nvidia-open 595.58.03 3:595.58.03-1";; esac'
    rpm = 'case "$*" in "-q nvidia-gone") exit 1;; *"--qf"*nvidia-open*) echo 3:580.82.07-1;; esac'
    asked = "own='^nvidia' foreign='^$' names= checkpoint=/x upstream=580.82.07 "
    asked += "arguments='nvidia-open=3:580.82.07-1 cuda-drivers- nvidia-gone-'"
    done = run(tmp_path, f"{asked}\n{DNF5.functions}\ninstall_driver", {"dnf5": dnf, "rpm": rpm})
    assert done.returncode == 0, done.stderr
    (change,) = [line for line in (tmp_path / "asked").read_text().splitlines() if " do " in line]
    assert change.endswith("do --allowerasing --action=install nvidia-open-3:580.82.07-1 --action=remove cuda-drivers")
    assert "--setopt=*.excludepkgs=*nvidia*-3:595.58.03-1,cuda-drivers*-3:595.58.03-1,libnvsdm*-3:595.58.03-1" in change


def test_a_change_of_the_driver_sees_no_locks_and_any_other_does(tmp_path: Path) -> None:
    (tmp_path / "versionlock.toml").write_text(THEIRS)
    programs = {"dnf5": "", "unshare": 'shift 6; exec "$@"'}
    done = run(
        tmp_path,
        f"own= foreign= names= checkpoint=/x\n{DNF5.functions}\ndnf_unlocked install x; dnf_run install y",
        programs,
    )
    assert done.returncode == 0, done.stderr
    hidden, change, other = (tmp_path / "asked").read_text().splitlines()
    assert hidden.startswith("unshare --mount sh -c mount --bind /dev/null") and change.endswith("install x")
    assert other.endswith("install y") and "unshare" not in other


def test_what_goes_for_another_package_is_told_and_what_moves_is_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(FLAVOUR)
    text = f"going=' podman'\nuntold() {{ :; }}\n{OFFERED}\nlosing cuda-drivers=3:580.82.07-1"
    done = run(tmp_path, text, {"dnf5": f"cat {tmp_path}/table; exit 1"})
    assert done.stdout.split() == ["kmod-nvidia-open-dkms", "nvidia-open", "nvidia-settings", "nvidia-fabricmanager"]
    asked = (tmp_path / "asked").read_text()
    assert "do --allowerasing --action=install cuda-drivers-3:580.82.07-1 --action=remove podman" in asked
    (tmp_path / "table").write_text(FILTERED)
    refused = run(tmp_path, text.replace("{ :; }", "{ echo untold; }"), {"dnf5": f"cat {tmp_path}/table; exit 1"})
    assert (refused.returncode, refused.stdout) == (1, "untold\n")


GONE = 'Failed to download metadata (baseurl: "http://127.0.0.1:1/x") for repository "{name}": Usable URL not found'


@pytest.mark.parametrize(
    ("gone", "code", "told"),
    [
        ((), 0, ""),
        (("epel", "site"), 0, "dnf passes over what it cannot read: epel,site"),
        (("gpunode-cuda",), 1, "the repository cuda could not be read; nothing was installed"),
        (("-",), 1, "the repositories could not be read; nothing was installed"),
    ],
)
def test_repositories_that_cannot_be_read_are_named_and_ours_must_answer(
    gone: tuple[str, ...], code: int, told: str, tmp_path: Path
) -> None:
    """dnf 5 is SIMULATED: it gives up at the first repository that is gone and was not left out."""
    (tmp_path / "gpunode-cuda.repo").touch()
    lines = [
        f"case \"$*\" in *--disablerepo=*{name}*|*--enablerepo=*) ;; *) echo '{GONE.format(name=name)}'; exit 1;; esac"
        for name in gone
    ]
    ours = 'case "$*" in *--enablerepo=gpunode-cuda*) exit 1;; esac' if "gpunode-cuda" in gone else ""
    if gone == ("-",):
        lines = ['case "$*" in *--enablerepo=*) ;; *) echo "no space left"; exit 1;; esac']
    text = REFRESH.replace("/etc/yum.repos.d", str(tmp_path))
    done = run(tmp_path, f"{text}\nrefresh cuda", {"dnf5": "\n".join([ours, *lines])})
    assert done.returncode == code, done.stderr
    assert told in done.stderr and bool(told) == bool(done.stderr)


@pytest.mark.parametrize("newer", [True, False])
def test_what_is_there_twice_is_ended_by_dnf_5_4_itself_and_before_by_rpm(newer: bool, tmp_path: Path) -> None:
    listed = "\\n".join(
        (
            "nvidia-open noarch 3:580.95.05-1",
            "nvidia-open noarch 3:580.82.07-1",
            "kernel-core x86_64 0:6.1-1",
            "kernel-core x86_64 0:6.2-1",
            "bash x86_64 0:5-1",
        )
    )
    help_text = "--duplicates" if newer else "--oldinstallonly"
    programs = {
        "dnf5": f'case "$*" in *--help*) echo "{help_text}";; esac',
        "rpm": f'case "$*" in -qa*) printf "{listed}\\n";; esac',
    }
    done = run(tmp_path, f'dnf_unlocked() {{ dnf5 "$@"; }}\n{script_file("dnf5_finish")}', programs)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text()
    if newer:
        assert "dnf5 remove --duplicates" in asked and "rpm -e" not in asked
    else:
        assert "rpm -e --nodeps --noscripts --notriggers nvidia-open-580.82.07-1.noarch" in asked
        assert "dnf5 reinstall nvidia-open\n" in asked and "kernel-core" not in asked
