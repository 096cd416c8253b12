"""The shell by which dnf 5 changes a node, as sh runs it.

SIMULATED: dnf 5 and rpm; tests/molecule/dnf5 has the real ones.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpunode.base.shell_file import script_file
from gpunode.operations.families import DNF5
from gpunode.operations.families.dnf5 import OFFERED, REFRESH
from gpunode.packages.families import dnf5
from tests.support.dnf5 import THEIRS
from tests.support.messages import unnamed
from tests.support.programs import programs, sh

pytestmark = pytest.mark.simulated


def run(tmp_path: Path, text: str, bodies: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run shell text with SIMULATED programs, which note what they are told in `asked`."""
    noting = {name: f'echo "{name} $*" >> {tmp_path}/asked\n{body}' for name, body in bodies.items()}
    programs(tmp_path, noting)
    return sh(tmp_path, f"set -eu\n{text.replace(dnf5.LOCKLIST, str(tmp_path / 'versionlock.toml'))}")


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


FLAVOUR = """Removing:
 kmod-nvidia-open-dkms   noarch 3:580.82.07-1.fc42 gpunode-cuda   0.0   B
Removing dependent packages:
 nvidia-settings         x86_64 3:580.82.07-1.fc42 gpunode-cuda   0.0   B
Installing:
 nvidia-fabric-manager   x86_64 0:570.172.08-1     gpunode-cuda 589.0   B
   replacing nvidia-fabricmanager x86_64 0:580.95.05-1  gpunode-cuda  587.0   B
Downgrading:
 containerd.io           x86_64 0:1.6.20-1.fc42    docker       104.3 MiB
   replacing containerd.io x86_64 0:1.7.1-1.fc42    docker       104.3 MiB

Transaction Summary:
 Installing:         3 packages
"""


def test_what_goes_for_another_package_is_told_and_what_moves_is_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(FLAVOUR)
    text = f"going=' podman'\nuntold() {{ :; }}\n{OFFERED}\nlosing cuda-drivers=3:580.82.07-1"
    done = run(tmp_path, text, {"dnf5": f"cat {tmp_path}/table; exit 1"})
    assert done.stdout.split() == ["kmod-nvidia-open-dkms", "nvidia-settings", "nvidia-fabricmanager"]
    asked = (tmp_path / "asked").read_text()
    assert "do --allowerasing --action=install cuda-drivers-3:580.82.07-1 --action=remove podman" in asked
    (tmp_path / "table").write_text("Failed to resolve the transaction:\n  - conflicting requests\n")
    refused = run(tmp_path, text.replace("{ :; }", "{ echo untold; }"), {"dnf5": f"cat {tmp_path}/table; exit 1"})
    assert (refused.returncode, refused.stdout) == (1, "untold\n")


GONE = 'Failed to download metadata (baseurl: "http://127.0.0.1:1/x") for repository "{name}": Usable URL not found'


@pytest.mark.parametrize(
    ("gone", "code", "told"),
    [
        ((), 0, None),
        (("epel", "site"), 0, "epel,site"),
        (("gpunode-cuda",), 1, "repository cuda"),
        (("-",), 1, "repositories"),
    ],
)
def test_repositories_that_cannot_be_read_are_named_and_ours_must_answer(
    gone: tuple[str, ...], code: int, told: str | None, tmp_path: Path
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
    assert bool(done.stderr) == bool(told) and (told is None or unnamed(done.stderr, told) == [])


# As dnf 5 prints it, with a name that dnf.conf added at the end.
_CONFIGURATION = (
    "installonly_limit = 3\ninstallonlypkgs = kernel, kernel-PAE, installonlypkg(kernel), "
    "installonlypkg(kernel-module), installonlypkg(vm), multiversion(kernel), site-boots\nip_resolve = whatever"
)


@pytest.mark.parametrize("newer", [True, False])
def test_what_is_there_twice_is_ended_by_dnf_5_4_itself_and_before_by_rpm(newer: bool, tmp_path: Path) -> None:
    twice = {
        "nvidia-open noarch 3:580.{}.07-1": "", "kernel-core x86_64 0:{}-1": "",
        "kmod-site x86_64 0:{}-1": "kmod-site installonlypkg(kernel-module)",
        "site-kernel noarch 0:{}-1": "multiversion(kernel)", "site-image noarch 0:{}-1": "site-image site-boots",
    }  # fmt: skip
    rows = [f"{row.format(at)} {provides}".strip() for row, provides in twice.items() for at in (95, 82)]
    listed = "\\n".join([*rows, "bash x86_64 0:5-1"])
    help_text = "--duplicates" if newer else "--oldinstallonly"
    programs = {
        "dnf5": f'case "$*" in *--help*) echo "{help_text}";; *main-config) echo "{_CONFIGURATION}";; esac',
        "rpm": f'case "$*" in -qa*) printf "{listed}\\n";; esac',
    }
    done = run(tmp_path, f'dnf_unlocked() {{ dnf5 "$@"; }}\n{script_file("dnf5_finish")}', programs)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text()
    if newer:
        assert "dnf5 remove --duplicates" in asked and "rpm -e" not in asked
    else:
        assert "rpm -e --nodeps --noscripts --notriggers nvidia-open-580.82.07-1.noarch" in asked
        assert asked.count("rpm -e") == 1 and "dnf5 reinstall nvidia-open\n" in asked


# Two versions of each: what a cut-off change left, and what dnf only ever installs, which a module by DKMS is not.
_PROVIDES = {
    "kmod-nvidia-open-dkms": "", "kmod-site": "Provides: installonlypkg(kernel-module)\n",
    "site-kernel": "Provides: multiversion(kernel)\n", "site-image": "Provides: site-boots = %{at}\n",
    "kernel-core": "",
}  # fmt: skip
_HEAD = "Name: nvidia-open\nVersion: %{at}\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\n%description\n"
_SPEC = _HEAD + "".join(
    f"%package -n {name}\nSummary: x\n{provides}%description -n {name}\n" for name, provides in _PROVIDES.items()
)
_SPEC += "%files\n" + "".join(f"%files -n {name}\n" for name in _PROVIDES)


@pytest.mark.real
@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="needs rpm and rpmbuild")
def test_what_dnf_only_ever_installs_stays_in_all_its_versions_in_a_real_database_of_rpm(tmp_path: Path) -> None:
    """dnf 5 is SIMULATED; rpm, its packages and its database are real."""
    (tmp_path / "site.spec").write_text(_SPEC)
    rpm = f"{shutil.which('rpm')} --dbpath {tmp_path}/db"
    for at in "1", "2":
        build = ["rpmbuild", "-bb", "--quiet", "-D", f"_topdir {tmp_path}/build", "-D", f"at {at}", "site.spec"]
        subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    text = f"{rpm} -i --force --nodeps --justdb --nosignature $(ls {tmp_path}/build/RPMS/noarch/*.rpm)"
    # Debian's rpm takes packages for itself by a word of its own alone.
    debian = "--force-debian " if Path("/etc/debian_version").exists() else ""
    subprocess.run(["sh", "-c", text.replace(" -i ", f" -i {debian}")], check=True, capture_output=True)
    (tmp_path / "configuration").write_text(_CONFIGURATION)
    programs = {
        "dnf5": f'case "$*" in --dump-main-config) cat {tmp_path}/configuration;; esac',
        "rpm": f'exec {rpm} "$@"',
    }
    done = run(tmp_path, f'dnf_unlocked() {{ dnf5 "$@"; }}\n{script_file("dnf5_finish")}', programs)
    assert done.returncode == 0, done.stderr
    left = subprocess.run(
        ["sh", "-c", f"{rpm} -qa --qf '%{{NAME}}-%{{VERSION}}\\n'"], check=True, capture_output=True, text=True
    )
    both = ("kernel-core", "kmod-site", "site-image", "site-kernel")
    assert sorted(left.stdout.split()) == sorted(
        ["kmod-nvidia-open-dkms-2", "nvidia-open-2", *(f"{name}-{at}" for name in both for at in "12")]
    )
    assert "dnf5 reinstall kmod-nvidia-open-dkms nvidia-open\n" in (tmp_path / "asked").read_text()
