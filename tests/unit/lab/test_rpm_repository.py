"""The rpm repositories: what the .deb packages hold under rpm's names, in streams, signed, and read by the real dnf."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpunode.lab import rpm_repository
from gpunode.lab.cache import cache_dir
from gpunode.lab.errors import LabError
from gpunode.lab.families import DNF, ZYPPER, family_named
from gpunode.lab.image import tools
from gpunode.lab.packages.deb import Deb, Payload
from gpunode.lab.packages.driver import driver_packages
from gpunode.lab.packages.rpm import Rpm
from gpunode.lab.packages.rpm_driver import driver_rpms
from gpunode.lab.packages.rpm_names import rpm_of
from gpunode.lab.rpm_metadata import described, read_packages, read_streams
from gpunode.lab.rpm_repository import LEAP, RHEL, TOOLKIT, cuda_folder
from gpunode.lab.signing import key_file, public_key
from gpunode.lab.toolbox import run_in
from gpunode.lab.world.rpm import rpm_world


def deb(name: str, version: str = "580.95.05-1") -> Deb:
    return next(item for item in driver_packages() if (item.name, item.version) == (name, version))


def test_a_family_that_the_lab_does_not_know_is_refused_by_name() -> None:
    assert family_named("apt") is None
    assert family_named("dnf") is DNF
    with pytest.raises(LabError, match="--family yum: not allowed; allowed are apt, dnf, dnf5, zypper, pacman"):
        family_named("yum")


def group(version: str, repository: str = "rhel9") -> dict[str, Rpm]:
    return {package.name: package for package in driver_rpms(rpm_world(repository))[version]}


def test_a_package_keeps_its_contents_under_rpm_s_name_number_and_folders() -> None:
    there = group("580.95.05")["libnvidia-ml"]
    assert there.nevra == "libnvidia-ml-3:580.95.05-1.el9.x86_64"
    assert [file.path for file in there.files] == [
        f"usr/lib64/{name}.so.{end}" for name in ("libnvidia-ml", "libcuda") for end in ("580.95.05", "1")
    ]  # fmt: skip
    assert [file.content for file in there.files] == [file.content for file in deb("libnvidia-ml1").files]


def test_dependencies_become_rpm_s_and_those_of_debian_s_base_fall_away() -> None:
    any_1 = Deb("nvidia-container-toolkit", "1.18.0-1", "x", depends="python3, libnvidia-container1 (<< 2.0.0)")
    assert rpm_of(any_1).requires == ("libnvidia-container1 < 2.0.0",)


@pytest.mark.parametrize(
    ("repository", "version", "contents"),
    [
        ("rhel9", "570.172.08", {"kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms", "nvidia-driver-cuda",
                                 "libnvidia-ml", "nvidia-persistenced", "nvidia-fabric-manager"}),
        ("rhel9", "615.71.09", {"kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms", "nvidia-driver-cuda",
                                "nvidia-driver-common", "nvidia-persistenced", "nvidia-fabricmanager"}),
        ("sles15", "570.211.01", {"nvidia-open-driver-G06-kmp-default", "nvidia-driver-G06-kmp-default",
                                  "nvidia-compute-utils-G06", "nvidia-compute-G06", "nvidia-persistenced",
                                  "nvidia-fabric-manager"}),
        ("sles15", "595.71.05", {"nvidia-open-driver-G07", "nvidia-driver-G07", "nvidia-compute-utils-G07",
                                 "libnvidia-ml", "nvidia-persistenced", "nvidia-fabricmanager"}),
    ],
)  # fmt: skip
def test_modules_programs_and_daemons_are_in_the_packages_that_bear_their_names(
    repository: str, version: str, contents: set[str]
) -> None:
    filled = {name for name, package in group(version, repository).items() if package.files or package.scripts}
    assert filled == contents


@pytest.mark.parametrize(("repository", "place"), [("rhel9", "/extra"), ("opensuse15", "/updates")])
def test_a_module_that_dkms_builds_is_where_dkms_puts_it_on_that_system(repository: str, place: str) -> None:
    name = "kmod-nvidia-open-dkms" if repository == "rhel9" else "nvidia-open-driver-G06"
    (text,) = [text for section, text in group("580.95.05", repository)[name].scripts if section == "post"]
    assert f'dir="/lib/modules/$(uname -r){place}"' in text


def test_a_script_hears_dpkg_s_words_from_rpm_s_numbers() -> None:
    sections = dict(rpm_of(Deb("x", "1-1", "x", scripts=(("prerm", '#!/bin/sh\necho "$1"\n'),))).scripts)
    said = [subprocess.run(["sh", "-c", sections["preun"], "-", count], capture_output=True, text=True).stdout
            for count in ("0", "1")]  # fmt: skip
    assert said == ["remove\n", "upgrade\n"]


# A .deb that stands for containerd's, so that apt need not be asked.
OF_ANOTHER_PROCESS = """
import subprocess, sys
from pathlib import Path
from gpunode.lab import rpm_repository
folder = Path(sys.argv[1])
rpm_repository.build_containerd_io = lambda cache: folder / "containerd.deb"
print(rpm_repository._containerd(folder, print, "containerd.io", "1"))
"""


def test_a_package_is_the_same_in_every_process_lest_the_mirror_be_built_anew(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: containerd.io\nVersion: 1.6-1\nArchitecture: amd64\nMaintainer: x <x@example.org>\nDescription: x\n"
    )
    subprocess.run(
        ["dpkg-deb", "--build", str(tree), str(tmp_path / "containerd.deb")], check=True, capture_output=True
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", OF_ANOTHER_PROCESS, str(tmp_path)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in range(5)
    }  # fmt: skip
    assert len(said) == 1, said
    assert "obsoletes=('containerd', 'runc')" in said.pop()


def test_another_byte_in_a_file_is_another_digest() -> None:
    def digest(content: bytes, path: str = "etc/x") -> str:
        packages = {"base": [Rpm("x", "1", "x", files=(Payload(path, content),))]}
        return rpm_repository._digest(packages, "A" * 40)

    assert digest(b"1") == digest(b"1")
    assert len({digest(b"1"), digest(b"2"), digest(b"1", "etc/y")}) == 3


CANNOT = os.geteuid() != 0 or shutil.which("podman") is None


@pytest.fixture(scope="module")
def mirror() -> Path:
    """Return the rpm repositories, built by the tools of a dnf node's root."""
    folder = cache_dir() / "mirror"
    folder.mkdir(exist_ok=True)
    rpm_repository.build_rpm_mirror(cache_dir(), folder, tools(print, DNF), print)
    return folder / "dnf"


@pytest.mark.node
@pytest.mark.tier2
@pytest.mark.skipif(CANNOT, reason="needs root and podman")
@pytest.mark.parametrize("world", RHEL.worlds)
def test_what_dnf_s_repository_says_of_itself_is_what_the_table_says(mirror: Path, world: str) -> None:
    compared(mirror / cuda_folder(world), world)


def compared(repository: Path, world: str) -> None:
    """Compare the metadata that createrepo_c made of real packages with the table, relation by relation."""
    table = rpm_world(world)
    ours = {described(package).nevra: described(package) for package in table.packages()}
    there = {each.nevra: each for each in read_packages(repository)}
    # CUDA's and the toolkit's packages have tables of their own.
    others = {nevra for nevra in there if nevra.startswith("cuda-toolkit-")}
    assert there.keys() - others == ours.keys()
    assert [(each, there[nevra]) for nevra, each in ours.items() if there[nevra] != each] == []
    streams, default = read_streams(repository)
    assert default == (table.modules.default if table.modules else None)
    listed = {name: sorted(package.nevra for package in packages) for name, packages in table.streams().items()}
    assert streams == listed


READ = """
mkdir -p /etc/yum.repos.d
printf '[x]\\nname=x\\nbaseurl=file:///work/%s\\ngpgcheck=1\\nrepo_gpgcheck=1\\ngpgkey=file:///work/%s\\n' \\
  "$repository" "$key" > /etc/yum.repos.d/x.repo
printf '[main]\\nenabled=false\\n' > /etc/dnf/plugins/local.conf
echo 'PLATFORM_ID="platform:el9"' >> /etc/os-release
dnf -q -y --releasever=9 --setopt=skip_if_unavailable=False --disable-modular-filtering repoquery --showduplicates \\
  --qf '%{name}-%{version}' 2>&1
"""


@pytest.fixture
def reads(mirror: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Return a function that has the real dnf read a copy of a repository with a key."""

    def read(repository: str, key: str = "repository", harm: str = "") -> subprocess.CompletedProcess[str]:
        work = tmp_path / "work"
        shutil.copytree(mirror / repository, work / repository)
        for name in ("repository", "wrong"):
            (work / f"{name}.asc").write_bytes(public_key(key_file(cache_dir() / "keys", name))[0])
        if harm:
            path = work / repository / "repodata/repomd.xml"
            path.write_text(path.read_text() + harm)
        return run_in(tools(print, DNF), work, READ, repository=repository, key=f"{key}.asc")

    return read


@pytest.mark.node
@pytest.mark.real
@pytest.mark.skipif(CANNOT, reason="needs root and podman")
@pytest.mark.parametrize(
    ("repository", "package"),
    [
        (RHEL.cuda, "nvidia-open-570.124.06"),
        (RHEL.cuda, "cuda-toolkit-12-9-12.9.1"),
        (TOOLKIT, "libnvidia-container1-1.16.2"),
        (RHEL.docker, "containerd.io-1.6.20"),
        (RHEL.base, "python3-dnf-plugin-versionlock-4.3.0"),
    ],
)
def test_the_real_dnf_reads_every_repository_with_both_checks(reads, repository: str, package: str) -> None:  # type: ignore[no-untyped-def]
    done = reads(repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert package in done.stdout.split(), done.stdout


@pytest.mark.node
@pytest.mark.real
@pytest.mark.skipif(CANNOT, reason="needs root and podman")
@pytest.mark.parametrize(("key", "harm"), [("wrong", ""), ("repository", "<!-- altered -->")])
def test_the_real_dnf_refuses_the_wrong_key_and_an_altered_index(reads, key: str, harm: str) -> None:  # type: ignore[no-untyped-def]
    done = reads(TOOLKIT, key, harm)
    assert done.returncode != 0
    assert "repomd.xml GPG signature verification error" in done.stdout


READ_BY_ZYPPER = """
mkdir -p /etc/zypp/repos.d /etc/rpm
printf '%%_dbpath /var/lib/rpm\\n%%__gpg /usr/bin/gpg\\n' > /etc/rpm/macros.lab
rpm --import "/work/$key.asc"
printf '[x]\\nname=x\\nbaseurl=dir:///work/%s\\ngpgcheck=1\\nrepo_gpgcheck=1\\ngpgkey=file:///work/%s.asc\\n' \\
  "$repository" "$key" > /etc/zypp/repos.d/x.repo
zypper -n refresh 2>&1 && zypper -n search -s nvidia-open-driver-G06 2>&1
"""


@pytest.mark.node
@pytest.mark.real
@pytest.mark.skipif(CANNOT, reason="needs root and podman")
@pytest.mark.parametrize(
    ("key", "harm", "good"), [("repository", "", True), ("wrong", "", False), ("repository", "<x/>", False)]
)
def test_the_real_zypper_reads_its_repository_by_the_right_key_alone_and_as_it_was_signed(
    tmp_path: Path, key: str, harm: str, good: bool
) -> None:
    folder = cache_dir() / "mirror"
    folder.mkdir(exist_ok=True)
    root = tools(print, ZYPPER)
    rpm_repository.build_rpm_mirror(cache_dir(), folder, root, print, LEAP)
    work = tmp_path / "work"
    shutil.copytree(folder / "zypper" / LEAP.cuda, work / LEAP.cuda)
    for name in ("repository", "wrong"):
        (work / f"{name}.asc").write_bytes(public_key(key_file(cache_dir() / "keys", name))[0])
    # zypper takes the key that stands beside the metadata, where it has been told to trust that.
    (work / LEAP.cuda / "repodata/repomd.xml.key").write_bytes((work / f"{key}.asc").read_bytes())
    path = work / LEAP.cuda / "repodata/repomd.xml"
    path.write_text(path.read_text() + harm)
    done = run_in(root, work, READ_BY_ZYPPER, repository=LEAP.cuda, key=key)
    assert (done.returncode == 0) == good, done.stdout + done.stderr
    if good:
        assert "580.95.05-1" in done.stdout
        compared(folder / "zypper" / LEAP.cuda, "opensuse15")
    else:
        assert "Signature verification failed" in done.stdout or "Valid metadata not found" in done.stdout, done.stdout
