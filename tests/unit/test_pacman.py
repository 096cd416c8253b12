"""pacman: which packages a kernel takes, and what pacman is asked and told on a node; tests/cases has what is read."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.findings import FindingClass
from gpunode.base.probe import shell_text
from gpunode.facts.driver import DriverPackages as DriverPackagesFact
from gpunode.facts.families.pacman import DRIVER_PACKAGES, LOCK, NEEDS, PacmanSimulation
from gpunode.node.components import decisions
from gpunode.node.preflight import refusals
from gpunode.operations import driver_packages
from gpunode.operations.families import PACMAN
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.simulation import Simulation, gate
from gpunode.packages.driver_packages.sources import (
    driver_source,
    holds_kernels,
    leftovers,
    package_set,
    resolve_for_os,
)
from gpunode.packages.families import pacman
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel
from tests.support.messages import unnamed
from tests.support.package_sources import ARCH
from tests.support.preflight import machine
from tests.support.programs import programs, sh
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

SETTINGS = resolve_for_os(settings_from({"driver": {"branch": "580"}, "containerd": {"enabled": False}}), ARCH)


def boot(base: str, other: str = "", headers: bool = True, **more: Any) -> Boot:
    """Return what boots: the kernel of a package, and beside it that of another package, which may lack its headers."""
    first = Kernel("6.16.8-arch1-1", True, base=base, module_version="580.95.05")
    spare = (Kernel("6.12.48-1-other", headers, base=other, **more),) if other else ()
    return Boot(first.release, first.release, "grub", (*spare, first), running_base=base)


def source_and_set(boots: Boot, flavour: str = "open") -> tuple[Any, dict[str, str | None]]:
    source = driver_source(SETTINGS, ARCH, boots)
    assert source is not None
    return source, package_set(SETTINGS.driver, source, flavour, [], boots)


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
    source, wanted = source_and_set(boot(base), flavour)
    assert wanted == {"nvidia-utils": "580", module: "580"}
    assert source.built_on_node == built
    # A module that came built is for one kernel, which must not go on without it.
    assert holds_kernels(SETTINGS, ARCH, boot(base)) != built


def test_without_a_kernel_of_its_own_the_running_one_tells() -> None:
    assert Boot("6.12.48-1-lts", running_base="linux-lts").bases == ("linux-lts",)
    assert boot("linux").bases == ("linux",)


@pytest.mark.parametrize(
    ("base", "other", "flavour", "modules"),
    [
        ("linux", "linux-lts", "open", {"nvidia-open", "nvidia-lts-open"}),
        ("linux", "linux-lts", "proprietary", {"nvidia", "nvidia-lts"}),
        # What comes built and what DKMS builds exclude each other: the kernel that boots next decides.
        ("linux", "linux-zen", "open", {"nvidia-open"}),
        ("linux-zen", "linux", "open", {"nvidia-open-dkms"}),
    ],
)
def test_each_installed_kernel_that_has_a_package_gets_its_module(
    base: str, other: str, flavour: str, modules: set[str]
) -> None:
    source, wanted = source_and_set(boot(base, other), flavour)
    assert set(wanted) == {"nvidia-utils", *modules}
    assert (source.headers, source.built_on_node) == (f"{base}-headers", base == "linux-zen")
    assert bool(source.beside) == (other == "linux-lts")


def test_a_spare_kernel_s_module_comes_along_and_is_no_reason_to_change_a_driver_that_is_right() -> None:
    source, desired = source_and_set(boot("linux", "linux-lts"))
    assert source.beside == ("nvidia-lts", "nvidia-lts-open")
    present = {"nvidia-utils": "580.95.05-1", "nvidia-open": "580.95.05-14"}
    # The archive has moved on: what is held stays, and the spare kernel's module is not to be had at its version.
    newer = Offers((("nvidia-lts-open", "580.119.02-2"),))
    assert set(driver_packages._to_be_had(desired, present, newer, source)) == {"nvidia-utils", "nvidia-open"}
    every = Offers(tuple((name, "580.119.02-1") for name in desired))
    assert set(driver_packages._to_be_had(desired, {}, every, source)) == set(desired)


@pytest.mark.parametrize(
    ("boots", "remedy"),
    [
        (boot("linux", "linux-lts"), ["nvidia-lts-open", "580.95.05"]),
        (boot("linux", "linux-lts", module_version="580.82.07"), ["nvidia-lts-open", "upgrade"]),
        (boot("linux", "linux-lts", module_version="580.95.05"), None),
        (boot("linux", "linux-zen"), ["no package", "linux-zen"]),
        # By DKMS the spare one is built where it has headers.
        (boot("linux-zen", "linux-lts"), ["`dkms autoinstall -k"]),
        (boot("linux-zen", "linux-lts", headers=False), ["install linux-lts-headers", "`dkms autoinstall"]),
    ],
)
def test_a_kernel_beside_the_next_one_without_the_module_is_told_and_no_difference(
    boots: Boot, remedy: list[str] | None
) -> None:
    decision = decisions(SETTINGS, replace(GOOD, operating_system=ARCH, boot=boots))["driver"]
    (found,) = [item for item in decision.findings if item.what == "module for kernel 6.12.48-1-other"]
    assert found.is_caution == (remedy is not None) == bool(found.cause)
    assert found.finding_class is (FindingClass.OK if remedy is None else found.finding_class)
    assert unnamed(found.remedy, *(remedy or ())) == []
    assert not any(found in step.settles for step in decision.steps)


@pytest.mark.real
def test_the_installed_driver_tells_the_branch_else_pacman_s_lists(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    answer = "printf 'Name  : x\\nVersion   : 590.48.01-7\\n'"
    programs(tmp_path, {"pacman": f"[ \"$*\" = '-Si nvidia-utils' ] && {answer}"})
    text = shell_text("system/operating_system").replace("/var/lib/pacman/local", str(folder))

    def said() -> list[str]:
        lines = sh(tmp_path, text, LC_ALL="C").stdout.splitlines()
        return [line for line in lines if line.startswith("driver_branch")]

    assert said() == []
    folder.mkdir()
    assert said() == ["driver_branch=590"]
    (folder / "nvidia-utils-580.95.05-1").mkdir()
    assert said() == ["driver_branch=580"]


def test_what_is_of_another_flavour_or_built_by_dkms_goes_and_another_kernel_s_module_stays() -> None:
    proprietary = {"nvidia", "nvidia-dkms", "nvidia-lts"}
    there = [*proprietary, "nvidia-open", "nvidia-lts-open", "nvidia-open-dkms", "nvidia-utils"]
    for base, stays in (("linux", {"nvidia-open", "nvidia-lts-open"}), ("linux-zen", {"nvidia-open-dkms"})):
        source, wanted = source_and_set(boot(base))
        assert set(leftovers(source, wanted, there)) == {*there} - {"nvidia-utils", *stays}


def test_docker_s_repository_is_no_remedy_on_arch() -> None:
    for source in ("distribution", "docker-repository"):
        asked = settings_from({"containerd": {"enabled": False}, "docker": {"enabled": True, "source": source}})
        (refusal,) = refusals(asked, machine(ARCH))
        assert unnamed(refusal.remedy, "'present'", "docker-repository") == ["docker-repository"]


# --- what is there ---------------------------------------------------------------------------------------------------


def test_what_others_ignore_counts_as_held_by_pattern_too(tmp_path: Path) -> None:
    listed = "nvidia-open nvidia-utils opencl-nvidia linux linux-firmware curl"
    programs(tmp_path, {"pacman": f"printf '%s 1-1\\n' {listed}", "pacman-conf": "echo 'nvidia-*'; echo linux"})
    # What a pattern would match in the folder counts nothing.
    (tmp_path / "nvidia-x").touch()
    assert sh(tmp_path, f"{DRIVER_PACKAGES}\nof_driver").stdout.splitlines() == [
        "hold nvidia-open 1-1", "hold nvidia-utils 1-1", "install opencl-nvidia 1-1", "hold linux 1-1",
        "install linux-firmware 1-1",
    ]  # fmt: skip


def test_a_lock_is_held_while_a_process_has_it_open_and_stale_after(tmp_path: Path) -> None:
    programs(tmp_path, {"pacman-conf": f"echo {tmp_path}/"})
    lock = tmp_path / "db.lck"
    text = f"{LOCK}\nlock_state"
    assert sh(tmp_path, text).stdout == "none\n"
    with lock.open("w"):
        assert sh(tmp_path, text).stdout == "held\n"
    assert sh(tmp_path, text).stdout == "stale\n"


def test_what_differs_of_all_that_is_needed_is_told_with_its_order(tmp_path: Path) -> None:
    there = "glibc 2.41-1\\nlinux 6.17-1\\nnvidia-utils 580-1\\nbash 1-1"
    needed = "glibc 2.42-1\\nlinux 6.16-1\\nnvidia-utils 580-1\\nlibx 1-1\\n"
    # What is held back is needed all the same.
    refuses = "[ $1 != --config ] || ! grep -q Ignore $2 || exit 1"
    bodies = {
        "pacman": f"{refuses}; case $1 in -Q) printf '{there}\\n';; *) printf '{needed}';; esac",
        "pacman-conf": f"[ -n \"$1\" ] && echo {tmp_path} || printf '[options]\\nIgnorePkg = linux\\n'",
        "vercmp": '[ "$1" = 2.41-1 ] && echo -1 || echo 1',
    }
    programs(tmp_path, bodies)
    text = f"{NEEDS.replace('/var/cache/gpunode', str(tmp_path))}\nfolder=.\ndiffering nvidia-utils"
    assert sh(tmp_path, text).stdout.splitlines() == ["glibc 2.41-1 2.42-1 -1", "linux 6.17-1 6.16-1 1"]


# --- what would come -------------------------------------------------------------------------------------------------

THERE = ["installed=nvidia-open 580.95.05-1", "installed=glibc 2.41-1", "installed=linux 6.16.8-1"]


def simulated(*more: str, status: int = 0, needed: int = 0) -> Simulation:
    asked = [f"{verb}=nvidia-open 590.48.01-1" for verb in ("asked", "comes")]
    return pacman.parse_simulation([f"status={status}", f"needed={needed}", *asked, *THERE, *more])


@pytest.mark.parametrize(
    ("simulation", "allowed", "named"),
    [
        (simulated(), True, None),
        (simulated(), False, ["590.48.01-1", "driver.allow_branch_change"]),
        (simulated("differs=glibc 2.41-1 2.42-1 -1"), True, ["partial upgrade", "glibc 2.41-1", "-Syu glibc"]),
        (simulated("differs=linux 6.16.8-1 6.17.9-1 -1"), True, ["partial upgrade", "linux 6.16.8-1", "-Syu linux"]),
        # A mirror that is behind: a library does no harm, a module is for another kernel.
        (simulated("differs=glibc 2.41-1 2.40-1 1"), True, None),
        (simulated("differs=linux 6.16.8-1 6.15-1 1"), True, ["partial upgrade", "linux 6.16.8-1", "-Syu linux"]),
        # It would be upgraded along.
        (simulated("comes=glibc 2.42-1"), True, ["partial upgrade", "glibc 2.41-1", "-Syu glibc nvidia-open"]),
        (simulated("line=error: target not found: x", status=1), True, ["pacman", "x"]),
        (simulated("why=error: no z", needed=1), True, ["pacman", "no z"]),
        (simulated("going=linux"), True, ["remove linux"]),
    ],
)
def test_a_partial_upgrade_and_what_pacman_refuses_or_takes_away_stop_the_driver(
    simulation: Simulation, allowed: bool, named: list[str] | None
) -> None:
    found = gate(simulation, {"nvidia-open": "590.48.01-1"}, "590", allowed)
    assert (found is None) == (named is None)
    assert unnamed(" ".join(found or ()), *(named or ())) == []


def asked_of_pacman(folder: Path, body: str, coming: dict[str, str]) -> Simulation:
    programs(folder, {"pacman": body, "pacman-conf": "echo /nowhere"})
    text = sh(folder, str(PacmanSimulation().command(coming, []))).stdout
    return pacman.parse_simulation([line for line in text.splitlines() if line and not line.startswith("gpunode:")])


def test_what_pacman_tells_where_it_refuses_is_read_wherever_it_tells_it(tmp_path: Path) -> None:
    told = "echo 'warning: x' >&2; echo 'error: failed' >&2; echo ':: unable: y'; exit 1"
    read = asked_of_pacman(tmp_path, f'case "$*" in *-Sp*) {told};; -Q) echo linux 6.16-1;; esac', {"x": "1-1"})
    assert (read.errors, read.comes) == (("unable: y", "failed"), ())


def test_what_is_there_already_is_asked_of_no_repository_that_has_moved_on(tmp_path: Path) -> None:
    body = "[ $1 = -Q ] && echo nvidia-utils 580-1 || echo nvidia-utils 590-1"
    read = asked_of_pacman(tmp_path, body, {"nvidia-utils": "580-1"})
    assert (read.comes, read.goes, read.errors, read.refusal) == ((), (), (), None)


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


def held(
    host: Host, configuration: str, ignored: str | None = None, hold: bool = True, kernel: bool = True
) -> list[str]:
    packages = (("linux", "6.16.8-1"), ("nvidia-open", "580.95.05-1"), ("nvidia-utils", "580.95.05-1"))
    found = pacman.IgnoredPackages(packages, (), configuration=configuration, ignored=ignored)
    host.readings[DriverPackagesFact] = found
    return commands(driver_packages.held, host, family="pacman", hold=hold, kernel=kernel)


def test_our_file_is_there_before_the_line_that_reads_it_and_goes_after_it(host: Host) -> None:
    first, second = held(host, CONF)
    text, ours = pacman.ignored_text(["linux", "nvidia-open", "nvidia-utils"]), pacman.including(CONF, True)
    assert base64.b64encode(text.encode()).decode() in first
    assert base64.b64encode(ours.encode()).decode() in second
    assert held(host, ours, text) == []
    assert len(held(host, ours, text, kernel=False)) == 1
    first, second = held(host, ours, text, hold=False)
    assert base64.b64encode(CONF.encode()).decode() in first
    assert "rm -f" in second
    assert held(host, CONF, hold=False) == []


def test_a_configuration_without_options_is_refused_with_the_remedy(host: Host) -> None:
    assert held(host, "[core]\n") == []
    assert unnamed(host.refusals[0], "[options]", "driver.hold = False") == []


def test_gpunode_refreshes_lists_of_its_own_alone() -> None:
    scripts = [str(PACMAN.install(["cuda"], "")), *(str(item) for item in PACMAN.refresh("")), PACMAN.functions]
    for text in scripts:
        for line in text.splitlines():
            if "-Sy" in line and "echo" not in line and '"' not in line.split("-Sy")[0]:
                assert '--dbpath "$DATABASE"' in line, line
                assert "\nDATABASE=/var/cache/gpunode/pacman\n" in text.replace("'", "")
    assert any("-Sy --dbpath" in text for text in scripts)
