"""pacman: what it prints is read as it prints it, what it is told is what was meant, and nothing comes half."""

from __future__ import annotations

import base64
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.base.findings import FindingClass
from gpunode.base.probe import shell_text
from gpunode.base.reading import ParseError
from gpunode.components.cuda import parse_cuda
from gpunode.components.toolkit import PACMAN_PACKAGES, parse_toolkit
from gpunode.facts.driver_packages import DriverPackages as DriverPackagesFact
from gpunode.facts.families.pacman import DRIVER_PACKAGES, LOCK, NEEDS, PacmanSimulation
from gpunode.node.components import decisions
from gpunode.node.preflight.boot import boot_refusals
from gpunode.node.preflight.platform import system_refusals
from gpunode.node.preflight.runtimes import toolkit_refusals
from gpunode.operations import driver_packages
from gpunode.operations.families import PACMAN
from gpunode.packages.apt_sources import AptSources, parse_apt_sources
from gpunode.packages.driver_packages import (
    Offers,
    Simulation,
    belongs,
    brings_kernels,
    driver_source,
    gate,
    holds_kernels,
    leftovers,
    package_set,
    resolve_for_os,
)
from gpunode.packages.families import pacman
from gpunode.packages.trust import trust_refusals
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel, parse_boot
from gpunode.system.operating_system import OperatingSystem, parse_operating_system
from tests.support.preflight import machine
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

ARCH = OperatingSystem("arch", "", None, (), "Arch Linux", "x86_64", "6.16.8-arch1-1", False)
DEBIAN = OperatingSystem("debian", "12", "bookworm", (), "Debian 12", "x86_64", "6.1.0", False)


def boot(base: str, headers: bool = True) -> Boot:
    kernel = Kernel("6.16.8-arch1-1", headers, base=base)
    return Boot(kernel.release, kernel.release, "newest", (kernel,), running_base=base)


# --- which packages, from where --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base, flavour, module, built",
    [
        ("linux", "open", "nvidia-open", False), ("linux", "proprietary", "nvidia", False),
        ("linux-lts", "open", "nvidia-lts-open", False), ("linux-lts", "proprietary", "nvidia-lts", False),
        ("linux-zen", "open", "nvidia-open-dkms", True), ("linux-hardened", "proprietary", "nvidia-dkms", True),
    ],
)  # fmt: skip
def test_the_module_is_of_the_kernel_that_boots_next(base: str, flavour: str, module: str, built: bool) -> None:
    settings = resolve_for_os(settings_from({"driver": {"branch": "580"}}), ARCH)
    source = driver_source(settings, ARCH, boot(base))
    assert source is not None
    wanted = package_set(settings.driver, source, flavour, [], boot(base))
    assert wanted == {"nvidia-utils": "580", module: "580"}
    assert source.built_on_node == built
    # A module that came built is for one kernel, which must not go on without it.
    assert holds_kernels(settings, ARCH, boot(base)) != built


def test_without_a_kernel_of_its_own_the_running_one_tells() -> None:
    assert Boot("6.12.48-1-lts", running_base="linux-lts").bases == ("linux-lts",)
    assert boot("linux").bases == ("linux",)


def two_kernels(other: str, headers: bool = True, **lts: Any) -> Boot:
    first = boot("linux").kernels[0]
    kernels = (Kernel("6.12.48-1-other", headers, base=other, **lts), replace(first, module_version="580.95.05"))
    return Boot(first.release, first.release, "grub", kernels, running_base="linux")


@pytest.mark.parametrize(
    ("other", "flavour", "modules"),
    [
        ("linux-lts", "open", {"nvidia-open", "nvidia-lts-open"}),
        ("linux-lts", "proprietary", {"nvidia", "nvidia-lts"}),
        # What comes built and what DKMS builds exclude each other: the kernel that boots next decides.
        ("linux-zen", "open", {"nvidia-open"}),
    ],
)
def test_each_installed_kernel_that_has_a_package_gets_its_module(other: str, flavour: str, modules: set[str]) -> None:
    settings = resolve_for_os(settings_from({"driver": {"branch": "590"}}), ARCH)
    source = driver_source(settings, ARCH, two_kernels(other))
    assert source is not None
    assert set(package_set(settings.driver, source, flavour, [], two_kernels(other))) == {"nvidia-utils", *modules}
    assert (source.headers, source.built_on_node) == ("linux-headers", False)
    first = replace(two_kernels("linux-zen"), next_release="6.12.48-1-other")
    by_dkms = driver_source(settings, ARCH, first)
    assert by_dkms is not None and by_dkms.built_on_node and by_dkms.beside == ()
    assert set(package_set(settings.driver, by_dkms, "open", [], first)) == {"nvidia-utils", "nvidia-open-dkms"}


def test_a_spare_kernel_s_module_comes_along_and_is_no_reason_to_change_a_driver_that_is_right() -> None:
    settings = resolve_for_os(settings_from({"driver": {"branch": "580"}}), ARCH)
    source = driver_source(settings, ARCH, two_kernels("linux-lts"))
    assert source is not None and source.beside == ("nvidia-lts", "nvidia-lts-open")
    desired = package_set(settings.driver, source, "open", [], two_kernels("linux-lts"))
    present = {"nvidia-utils": "580.95.05-1", "nvidia-open": "580.95.05-14"}
    # The archive has moved on: what is held stays, and the spare kernel's module is not to be had at its version.
    newer = Offers((("nvidia-lts-open", "580.119.02-2"),))
    assert set(driver_packages._to_be_had(desired, present, newer, source)) == {"nvidia-utils", "nvidia-open"}
    every = Offers(tuple((name, "580.119.02-1") for name in desired))
    assert set(driver_packages._to_be_had(desired, {}, every, source)) == set(desired)


@pytest.mark.parametrize(
    ("actual", "remedy"),
    [
        (two_kernels("linux-lts"), "install nvidia-lts-open where the repositories have it at 580.95.05"),
        (two_kernels("linux-lts", module_version="580.82.07"), "or upgrade the node's system"),
        (two_kernels("linux-zen"), "no package brings one for linux-zen"),
    ],
)
def test_a_kernel_beside_the_next_one_without_the_module_is_told_and_no_difference(actual: Boot, remedy: str) -> None:
    settings = resolve_for_os(settings_from({"driver": {"branch": "580"}, "containerd": {"enabled": False}}), ARCH)
    node = replace(GOOD, operating_system=ARCH, boot=actual)
    decision = decisions(settings, node)["driver"]
    (found,) = [item for item in decision.findings if item.what == "module for kernel 6.12.48-1-other"]
    assert found.is_caution and remedy in (found.remedy or "") and "has no GPU" in (found.cause or "")
    assert not any(found in step.settles for step in decision.steps)
    good = replace(node, boot=two_kernels("linux-lts", module_version="580.95.05"))
    (same,) = [item for item in decisions(settings, good)["driver"].findings if "module for kernel" in item.what]
    assert same.finding_class is FindingClass.OK and not same.is_caution


def test_beside_a_kernel_by_dkms_the_spare_one_is_built_where_it_has_headers() -> None:
    settings = resolve_for_os(settings_from({"driver": {"branch": "580"}, "containerd": {"enabled": False}}), ARCH)
    for headers, remedy in (
        (True, "`dkms autoinstall -k"),
        (False, "install linux-lts-headers, then `dkms autoinstall"),
    ):
        kernels = (
            Kernel("6.16.8-zen1-1-zen", True, base="linux-zen", module_version="580.95.05"),
            Kernel("6.12.48-1-lts", headers, base="linux-lts"),
        )
        boots = Boot(kernels[0].release, kernels[0].release, "grub", kernels, running_base="linux-zen")
        findings = decisions(settings, replace(GOOD, operating_system=ARCH, boot=boots))["driver"].findings
        (told,) = [item for item in findings if item.what == "module for kernel 6.12.48-1-lts"]
        assert told.is_caution and (told.remedy or "").startswith(remedy)


@pytest.mark.parametrize(("said", "branch"), [("590", "590"), ("", "580"), (None, "580"), ("59$", "580")])
def test_a_branch_that_nobody_names_is_the_archive_s(said: str | None, branch: str) -> None:
    lines = ["os.ID=arch", "architecture=x86_64", "kernel=6.16.8-arch1-1"]
    system = parse_operating_system([*lines, *([] if said is None else [f"driver_branch={said}"])])
    assert resolve_for_os(settings_from({}), system).driver.branch == branch
    assert resolve_for_os(settings_from({"driver": {"branch": "595"}}), system).driver.branch == "595"


@pytest.mark.real
def test_the_installed_driver_tells_the_branch_else_pacman_s_lists(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    program = tmp_path / "bin/pacman"
    program.parent.mkdir()
    answer = "printf 'Name  : x\\nVersion   : 590.48.01-7\\n'"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = '-Si nvidia-utils' ] && {answer}\n")
    program.chmod(0o755)
    text = shell_text("system/operating_system").replace("/var/lib/pacman/local", str(folder))
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "LC_ALL": "C"}

    def said() -> list[str]:
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, env=environment, check=False)
        return [line for line in done.stdout.splitlines() if line.startswith("driver_branch")]

    assert said() == []
    folder.mkdir()
    assert said() == ["driver_branch=590"]
    (folder / "nvidia-utils-580.95.05-1").mkdir()
    assert said() == ["driver_branch=580"]


def test_what_is_of_another_flavour_or_built_by_dkms_goes_and_another_kernel_s_module_stays() -> None:
    settings = resolve_for_os(settings_from({}), ARCH)
    prebuilt, by_dkms = (driver_source(settings, ARCH, boot(base)) for base in ("linux", "linux-zen"))
    assert prebuilt is not None
    assert by_dkms is not None
    there = [
        "nvidia-open",
        "nvidia-lts-open",
        "nvidia-lts",
        "nvidia",
        "nvidia-dkms",
        "nvidia-open-dkms",
        "nvidia-utils",
    ]
    assert leftovers(prebuilt, ["nvidia-open", "nvidia-utils"], there) == (
        "nvidia", "nvidia-dkms", "nvidia-lts", "nvidia-open-dkms",
    )  # fmt: skip
    assert set(leftovers(by_dkms, ["nvidia-open-dkms", "nvidia-utils"], there)) == {
        "nvidia", "nvidia-dkms", "nvidia-lts", "nvidia-lts-open", "nvidia-open",
    }  # fmt: skip


def test_dkms_needs_the_headers_of_that_kernel_and_a_module_that_comes_built_needs_none() -> None:
    settings = resolve_for_os(settings_from({"driver": {"branch": "580", "kernel_headers": "install"}}), ARCH)
    (refusal,) = boot_refusals(settings, ARCH, boot("linux-zen", headers=False))
    assert "install linux-zen-headers" in str(refusal)
    assert "kernel_headers" not in refusal.remedy
    assert list(boot_refusals(settings, ARCH, boot("linux", headers=False))) == []


def test_what_is_not_said_comes_from_arch_itself_and_what_is_said_is_refused_where_there_is_no_such_repository() -> (
    None
):
    unsaid = resolve_for_os(settings_from({}), ARCH)
    assert (unsaid.driver.source, unsaid.cuda.source) == ("distribution", "distribution")
    assert list(system_refusals(unsaid, ARCH)) == []
    assert resolve_for_os(settings_from({}), DEBIAN).driver.source == "cuda-repository"
    said: dict[str, Any] = {
        "driver": {"source": "cuda-repository"}, "cuda": {"source": "cuda-repository"},
        "containerd": {"source": "docker-repository"}, "toolkit": {"channel": "experimental"},
    }  # fmt: skip
    found = [str(item) for item in system_refusals(resolve_for_os(settings_from(said), ARCH), ARCH)]
    assert len(found) == 4
    assert all("Arch Linux" in item for item in found)
    assert "set it to 'distribution'" in found[1]
    for source in ("distribution", "docker-repository"):
        asked = settings_from({"containerd": {"enabled": False}, "docker": {"enabled": True, "source": source}})
        (refusal,) = system_refusals(resolve_for_os(asked, ARCH), ARCH)
        assert (refusal.component, "docker-repository" in refusal.remedy) == ("docker", False)
    (refusal,) = system_refusals(settings_from({"cuda": {"source": "distribution"}}), DEBIAN)
    assert "set cuda.source = 'cuda-repository' or 'runfile'" in str(refusal)


def test_arch_has_no_version_and_names_of_its_own_are_the_driver_s() -> None:
    found = tables.distribution("arch", "")
    assert found is not None
    assert (found.family, found.repository) == ("pacman", None)
    for name in ("nvidia", "nvidia-lts", "nvidia-utils", "opencl-nvidia", "lib32-nvidia-utils", "nvidia-settings"):
        assert belongs(name), name
    for name in ("nvidia-container-toolkit", "libnvidia-container", "cuda", "linux-firmware"):
        assert not belongs(name), name
    for name in ("linux", "linux-lts", "linux-zen-headers"):
        assert brings_kernels(name), name
    assert not brings_kernels("linux-firmware")


@pytest.mark.parametrize(
    "levels, refused",
    [
        ("PackageRequired PackageTrustedOnly DatabaseOptional DatabaseTrustedOnly", False),
        ("PackageOptional PackageTrustedOnly", True), ("PackageNever DatabaseNever", True),
        ("PackageRequired PackageTrustAll", True), ("", True),
    ],
)  # fmt: skip
def test_a_repository_whose_packages_nobody_need_sign_is_refused(levels: str, refused: bool) -> None:
    sources = parse_apt_sources([f"siglevel=extra {levels}"])
    assert sources.pacman_repositories == (("extra", tuple(levels.split())),)
    found = list(trust_refusals(sources))
    assert bool(found) == refused
    assert not list(trust_refusals(AptSources()))
    if refused:
        assert "set SigLevel = Required for [extra]" in found[0].remedy


# --- what is there ---------------------------------------------------------------------------------------------------


def test_what_boots_next_is_the_kernel_whose_package_grub_names_else_one_of_the_kind_that_runs() -> None:
    kernels = ["kernel=6.16.8-arch1-1 headers=yes base=linux", "kernel=6.12.48-1-lts headers=yes base=linux-lts"]
    lines = ["running=6.12.40-2-lts", "base=", *kernels]
    assert parse_boot(lines).next_release == "6.12.48-1-lts"
    assert parse_boot(["running=6.16.1-arch1-1", *kernels]).next_release == "6.16.8-arch1-1"
    menu = "set default=\"0\"\nmenuentry 'Arch' {\n linux /boot/vmlinuz-linux-lts root=x\n}\n"
    grub = f"grub={base64.b64encode(menu.encode()).decode()}"
    read = parse_boot(["running=6.16.1-arch1-1", *kernels, grub])
    assert (read.next_release, read.decided_by, read.bases[0]) == ("6.12.48-1-lts", "grub", "linux-lts")


def test_cuda_in_opt_is_the_default_where_the_link_leads_there() -> None:
    read = parse_cuda(["arch=12.9.86", "default=/opt/cuda", "toolkit=/usr/local/cuda-12.8", "profile=yes"])
    assert (read.versions, read.default_version) == (("12.8", "12.9"), "12.9")
    assert parse_cuda(["arch="]).versions == ()


def test_the_toolkit_is_whole_with_arch_s_two_packages() -> None:
    lines = ["names=arch", *(f"package={name} 1.17.8-1" for name in PACMAN_PACKAGES)]
    assert parse_toolkit(lines).missing_packages == ()
    assert parse_toolkit(lines).to_hold == dict.fromkeys(PACMAN_PACKAGES, "1.17.8-1")
    assert parse_toolkit(lines[1:]).missing_packages != ()


def test_the_toolkit_is_neither_held_nor_put_in_another_s_place_with_pacman() -> None:
    legacy = parse_toolkit(["names=arch", "package=nvidia-docker 2.13.0-1"])
    node = replace(machine(system=ARCH), toolkit=legacy)
    asked = settings_from({"toolkit": {"hold": True, "migrate": True}})
    said = [item.reason for item in toolkit_refusals(asked, node)]
    assert said == [
        "on the node is nvidia-docker 2.13.0-1, which gpunode does not replace with pacman",
        "gpunode does not hold the toolkit's packages with pacman",
    ]


def test_silence_is_no_answer() -> None:
    for parse in (pacman.parse_installed, pacman.parse_driver_packages, pacman.parse_offers):
        with pytest.raises(ParseError):
            parse(["pacman=127"])
    with pytest.raises(ParseError):
        pacman.parse_simulation(["comes=nvidia-open 580.95.05-1"])


def test_of_two_repositories_the_first_counts() -> None:
    offers = pacman.parse_offers(["pacman=0", "available=nvidia-open 595.1-1", "available=nvidia-open 580.95.05-1"])
    assert offers.available == (("nvidia-open", "595.1-1"),)


def test_a_lock_that_was_left_is_an_interruption() -> None:
    assert pacman.parse_installed(["pacman=0", "lock=stale"]).interrupted
    assert not pacman.parse_installed(["pacman=0", "lock=held", "package=curl 1:8.0-1"]).interrupted


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def ran(folder: Path, text: str) -> str:
    done = subprocess.run(
        ["sh", "-c", text], env={"PATH": f"{folder}:{os.environ['PATH']}"}, cwd=folder, capture_output=True, text=True
    )
    return done.stdout


def test_what_others_ignore_counts_as_held_by_pattern_too(tmp_path: Path) -> None:
    program(tmp_path, "pacman", "printf '%s 1-1\\n' nvidia-open nvidia-utils opencl-nvidia linux linux-firmware curl")
    program(tmp_path, "pacman-conf", "echo 'nvidia-*'; echo linux")
    # What a pattern would match in the folder counts nothing.
    (tmp_path / "nvidia-x").touch()
    assert ran(tmp_path, f"{DRIVER_PACKAGES}\nof_driver").splitlines() == [
        "hold nvidia-open 1-1", "hold nvidia-utils 1-1", "install opencl-nvidia 1-1", "hold linux 1-1",
        "install linux-firmware 1-1",
    ]  # fmt: skip


def test_a_lock_is_held_while_a_process_has_it_open_and_stale_after(tmp_path: Path) -> None:
    program(tmp_path, "pacman-conf", f"echo {tmp_path}/")
    lock = tmp_path / "db.lck"
    assert ran(tmp_path, f"{LOCK}\nlock_state") == "none\n"
    with lock.open("w"):
        assert ran(tmp_path, f"{LOCK}\nlock_state") == "held\n"
    assert ran(tmp_path, f"{LOCK}\nlock_state") == "stale\n"


def test_what_differs_of_all_that_is_needed_is_told_with_its_order(tmp_path: Path) -> None:
    there = "glibc 2.41-1\\nlinux 6.17-1\\nnvidia-utils 580-1\\nbash 1-1"
    needed = "glibc 2.42-1\\nlinux 6.16-1\\nnvidia-utils 580-1\\nlibx 1-1\\n"
    # What is held back is needed all the same.
    refuses = "[ $1 != --config ] || ! grep -q Ignore $2 || exit 1"
    program(tmp_path, "pacman", f"{refuses}; case $1 in -Q) printf '{there}\\n';; *) printf '{needed}';; esac")
    program(tmp_path, "pacman-conf", f"[ -n \"$1\" ] && echo {tmp_path} || printf '[options]\\nIgnorePkg = linux\\n'")
    program(tmp_path, "vercmp", '[ "$1" = 2.41-1 ] && echo -1 || echo 1')
    text = f"{NEEDS.replace('/var/cache/gpunode', str(tmp_path))}\nfolder=.\ndiffering nvidia-utils"
    assert ran(tmp_path, text).splitlines() == ["glibc 2.41-1 2.42-1 -1", "linux 6.17-1 6.16-1 1"]


# --- what would come -------------------------------------------------------------------------------------------------

ASKED = ["asked=nvidia-open 590.48.01-1", "asked=nvidia-utils 590.48.01-1"]
COMES = [line.replace("asked", "comes") for line in ASKED]
THERE = ["installed=nvidia-open 580.95.05-1", "installed=nvidia-utils 580.95.05-1", "installed=glibc 2.41-1",
         "installed=linux 6.16.8-1", "installed=r 4.5-1"]  # fmt: skip


def simulated(*more: str, status: int = 0, needed: int = 0) -> Simulation:
    return pacman.parse_simulation([f"status={status}", f"needed={needed}", *ASKED, *COMES, *THERE, *more])


def judged(simulation: Simulation, allow: bool = True) -> tuple[str, str] | None:
    return gate(simulation, {"nvidia-open": "590.48.01-1"}, "590", allow)


def test_on_a_system_of_today_the_driver_comes_with_what_it_newly_needs() -> None:
    read = simulated("comes=egl-gbm 1.1-1", "differs=nvidia-utils 580.95.05-1 590.48.01-1 -1")
    assert read.comes == (
        ("nvidia-open", "580.95.05-1", "590.48.01-1"), ("nvidia-utils", "580.95.05-1", "590.48.01-1"),
        ("egl-gbm", None, "1.1-1"),
    )  # fmt: skip
    assert judged(read) is None
    assert "another branch" in (judged(read, allow=False) or ("",))[0]


@pytest.mark.parametrize(
    "line, refused",
    [
        ("differs=glibc 2.41-1 2.42-1 -1", True),
        ("differs=linux 6.16.8-1 6.17.9-1 -1", True),
        # A mirror that is behind: a library does no harm, a module is for another kernel.
        ("differs=glibc 2.41-1 2.40-1 1", False),
        ("differs=linux 6.16.8-1 6.15-1 1", True),
        # It would be upgraded along.
        ("comes=glibc 2.42-1", True),
    ],
)
def test_a_partial_upgrade_is_refused_with_what_is_behind_and_the_way_out(line: str, refused: bool) -> None:
    found = judged(simulated(line))
    assert (found is not None) == refused
    if found:
        name = line.partition("=")[2].split(" ")[0]
        assert "partial upgrade" in found[0]
        assert f"{name} " in found[0]
        assert "pacman -Syu " in found[1]
        assert name in found[1]


def test_what_pacman_cannot_satisfy_and_what_nobody_has_is_its_error() -> None:
    read = simulated("line=error: target not found: x", "line=:: y breaks dependency 'z'", status=1)
    assert read.errors == ("target not found: x", "y breaks dependency 'z'")
    assert "pacman would refuse" in (judged(read) or ("",))[0]
    assert simulated("why=error: no z", needed=1).errors[-1] == "error: no z"


def test_what_pacman_tells_where_it_refuses_is_read_wherever_it_tells_it(tmp_path: Path) -> None:
    wrong = "echo 'warning: x' >&2; echo 'error: failed' >&2"
    told = f"{wrong}; echo ':: unable to satisfy dependency y required by x'; exit 1"
    program(tmp_path, "pacman", f'case "$*" in *-Sp*) {told};; -Q) echo linux 6.16-1;; esac')
    program(tmp_path, "pacman-conf", "echo /nowhere")
    text = ran(tmp_path, str(PacmanSimulation().command({"x": "1-1"}, [])))
    read = pacman.parse_simulation([line for line in text.splitlines() if line and not line.startswith("gpunode:")])
    assert read.errors == ("unable to satisfy dependency y required by x", "failed")
    assert read.comes == ()


def test_what_is_there_already_is_asked_of_no_repository_that_has_moved_on(tmp_path: Path) -> None:
    program(tmp_path, "pacman", "[ $1 = -Q ] && echo nvidia-utils 580-1 || echo nvidia-utils 590-1")
    program(tmp_path, "pacman-conf", "echo /nowhere")
    text = ran(tmp_path, str(PacmanSimulation().command({"nvidia-utils": "580-1"}, [])))
    read = pacman.parse_simulation([line for line in text.splitlines() if line and not line.startswith("gpunode:")])
    assert (read.comes, read.goes, read.errors, read.refusal) == ((), (), (), None)


def test_what_conflicts_would_go_and_what_is_no_part_of_the_driver_must_not() -> None:
    assert simulated("conflict=nvidia-open nvidia-utils").goes == ()
    read = simulated("conflict=nvidia-open glibc", "conflict=nvidia-open absent", "going=linux")
    assert read.goes == (("linux", "6.16.8-1"), ("glibc", "2.41-1"))
    assert "pacman would remove linux" in (judged(read) or ("",))[0]


# --- holds -----------------------------------------------------------------------------------------------------------

CONF = "# somebody's\n[options]\nIgnorePkg = bash\n\n[core]\nInclude = /etc/pacman.d/mirrorlist"
LINE = st.sampled_from(
    ["", "# x", "[options]", " [options] ", "[core]", "Include = /etc/pacman.d/mirrorlist", "IgnorePkg = a", "\t",
     "Include=/etc/pacman.d/gpunode.conf.old"]
)  # fmt: skip
LINES = st.lists(LINE | st.text(max_size=12))


@given(LINES)
def test_the_configuration_is_the_same_again_when_the_hold_is_gone_and_twice_is_nothing(lines: list[str]) -> None:
    text = "\n".join(["[options]", *lines])
    held = pacman.including(text, True)
    assert pacman.including(held, False) == text
    assert pacman.including(held, True) == held
    assert [line for line in held.split("\n") if "gpunode.conf" in line and ".old" not in line] == [
        f"Include = {pacman.IGNORED}"
    ]


def test_our_line_stands_in_options_and_without_that_section_nothing_is_written() -> None:
    assert pacman.including(CONF, True).split("\n")[1:3] == ["[options]", f"Include = {pacman.IGNORED}"]
    with pytest.raises(ValueError, match="no section"):
        pacman.including("[core]\n", True)
    assert pacman.including("[core]\n", False) == "[core]\n"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host({})
    for module in ("gpunode.operations.driver_packages", "gpunode.operations.families.pacman"):
        monkeypatch.setattr(f"{module}.host", made)
    return made


def state(configuration: str = CONF, ignored: str | None = None) -> pacman.IgnoredPackages:
    packages = (("linux", "6.16.8-1"), ("nvidia-open", "580.95.05-1"), ("nvidia-utils", "580.95.05-1"))
    return pacman.IgnoredPackages(packages, (), configuration=configuration, ignored=ignored)


def held(host: Host, hold: bool, kernel: bool = True) -> list[str]:
    return commands(driver_packages.held, host, family="pacman", hold=hold, kernel=kernel)


def test_our_file_is_there_before_the_line_that_reads_it_and_goes_after_it(host: Host) -> None:
    host.readings[DriverPackagesFact] = state()
    first, second = held(host, True)
    text = pacman.ignored_text(["linux", "nvidia-open", "nvidia-utils"])
    assert base64.b64encode(text.encode()).decode() in first
    assert base64.b64encode(pacman.including(CONF, True).encode()).decode() in second
    host.readings[DriverPackagesFact] = state(pacman.including(CONF, True), text)
    assert held(host, True) == []
    assert len(held(host, True, kernel=False)) == 1
    first, second = held(host, False)
    assert base64.b64encode(CONF.encode()).decode() in first
    assert "rm -f" in second
    host.readings[DriverPackagesFact] = state()
    assert held(host, False) == []


def test_a_configuration_without_options_is_refused_with_the_remedy(host: Host) -> None:
    host.readings[DriverPackagesFact] = state("[core]\n")
    assert held(host, True) == []
    assert "mend it, or set driver.hold = False" in host.refusals[0]


def test_gpunode_refreshes_lists_of_its_own_alone() -> None:
    scripts = [str(PACMAN.install(["cuda"], "")), *(str(item) for item in PACMAN.refresh("")), PACMAN.functions]
    for text in scripts:
        for line in text.splitlines():
            if "-Sy" in line and "echo" not in line and '"' not in line.split("-Sy")[0]:
                assert '--dbpath "$DATABASE"' in line, line
                assert "\nDATABASE=/var/cache/gpunode/pacman\n" in text.replace("'", "")
    assert any("-Sy --dbpath" in text for text in scripts)
