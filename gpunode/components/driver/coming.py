"""The steps that bring a driver (packages or runfile, headers, holds, modules), and what its packages lack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.comparison import RUN
from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.driver.loading import GPUS, INSTALLED_BY, MODULE_ON_DISK
from gpunode.components.driver.services import FABRIC_MANAGER, IMEX, SUBNET_MANAGER
from gpunode.components.driver.sides import Actual, Desired
from gpunode.components.driver.state import DriverState, driver_finding
from gpunode.packages.driver_packages.installed import taken_away
from gpunode.packages.driver_packages.names import belongs, is_fabric_manager, is_imex
from gpunode.packages.driver_packages.sources import leftovers
from gpunode.packages.families.wording import headers_package, wording
from gpunode.packages.installed_packages import satisfies
from gpunode.settings.driver import DriverSettings


def bring(
    desired: Desired,
    actual: Actual,
    coming: tuple[Finding, ...],
    serving: tuple[Finding, ...],
    after: tuple[Finding, ...],
) -> Iterator[Step[Any]]:
    """Yield what brings another driver, and the headers of the kernel that boots next.

    serving: what the services lack; after: what is said of the driver that goes, and is no step beside the new one's
    """
    settings, driver = desired.settings, actual.driver
    by_runfile = settings.source == "runfile"
    needed = ("gcc", "make", "dkms") if settings.dkms else ("gcc", "make")
    tools = ", ".join(tool for tool in needed if tool not in actual.boot.build_tools)
    if by_runfile and coming and tools and settings.kernel_headers == "install":
        yield Step(f"install {tools}", (), Disruption.nothing, desired="what builds the module")
    other_way = tuple(item for item in coming if item.code == INSTALLED_BY.code)
    if other_way and (driver.packages if by_runfile else driver.runfile):
        what = "packages" if by_runfile else "runfile"
        yield Step(f"remove the driver of the {what}, kept for the way back", other_way, Disruption.nothing)
    if coming:
        version = settings.version or f"{settings.branch} (its newest version)"
        action = "install driver" if driver.module_version is None else "change to driver"
        how = f" by its runfile, {desired.flavour}" if by_runfile else f", {desired.flavour}"
        managers = (item for item in serving if item.code in (FABRIC_MANAGER.code, SUBNET_MANAGER.code, IMEX.code))
        names = desired.packages.items()
        yield Step(
            f"{action} {version}{how} kernel module",
            tuple(dict.fromkeys((*coming, *managers, *after))),
            Disruption.nothing,
            packages=tuple(sorted(name if rule is None else f"{name} {rule}" for name, rule in names)),
        )
    if package := headers(desired, actual):
        what = "headers of the kernel that boots next"
        yield Step(f"install {package}", (), Disruption.nothing, actual="none", desired=what)


def headers(desired: Desired, actual: Actual) -> str | None:
    """Return the package of the headers that a run installs for the kernel that boots next; None: there are such."""
    kernel, source, system = actual.boot.next_kernel, desired.source, actual.system
    if kernel is None or kernel.headers or desired.settings.kernel_headers != "install":
        return None
    if source is None:
        by_us = tables.installs_headers(system.id) or tables.headers_of_image(system.id)
        return headers_package(system, kernel) if by_us else None
    by_us = source.built_on_node and (source.installs_headers or source.headers_of_image)
    return source.headers.replace("<kernel>", kernel.release) if by_us else None


def hold(desired: DriverSettings, held: tuple[Finding, ...], comes: bool) -> Iterator[Step[Any]]:
    """Yield what holds the driver's packages; comes: whether others come before."""
    action = "hold the driver's packages"
    if loose := bad(*held):
        yield Step(action, loose, Disruption.nothing)
    elif held and comes and desired.source != "runfile":
        yield Step(action, (), Disruption.nothing, desired="all held")


def brings_modules(desired: Desired) -> bool:
    """Say whether a run brings the module of each kernel that boots next: built ones, or by the runfile."""
    return desired.settings.installs and (desired.source is None or not desired.source.built_on_node)


def bring_modules(desired: Desired, actual: Actual, lacking: tuple[Finding, ...]) -> Iterator[Step[Any]]:
    """Yield what brings the module of the kernel that boots next, where no DKMS of the packages does."""
    kernel, source = actual.boot.next_kernel, desired.source
    if kernel is None or not lacking or not brings_modules(desired):
        return
    packages = tuple(sorted(name for name in desired.packages if kernel.release in name))
    action = f"install the modules of kernel {kernel.release}" if source else f"build the module of {kernel.release}"
    yield Step(action, lacking, Disruption.nothing, packages=packages)


MOVED = "an upgrade moved one package and not the other"
_IS_LOST = "{lost} is lost, or of another version, while {names} is installed as desired"
# Of a package that is missing with another, apt takes neither alone.
_BRING_BACK = (
    "install what is lost again, at the driver's version: `{again} PACKAGE …` on the node; `{owner} {file}` names it"
)
_BRING_BACK_NAMED = "install again what is lost, at the driver's version: `{again} {packages}` on the node"
# Which of the driver's packages has a file, by the names that NVIDIA's repositories and the distributions give them.
_OWNERS = {
    "libnvidia-ml.so": r"libnvidia-ml\d*|libnvidia-compute-.*|nvidia-driver-cuda-libs|nvidia-compute-G\d+|nvidia-utils",
    "libcuda.so": r"libcuda1|libnvidia-compute-.*|nvidia-driver-cuda-libs|nvidia-compute-G\d+|nvidia-utils",
    "nvidia-smi": r"nvidia-smi|nvidia-utils(-\d+.*)?|nvidia-driver-cuda|nvidia-compute-utils-G\d+",
}
_BUILD_AGAIN = (
    "look at `dkms status` and at the headers of the kernel, then have the module's package build it again: `{again} "
    "PACKAGE` on the node"
)
_REMOVED, _MISSING = "{names} was removed, which gpunode holds", "no run has installed them yet, or they were removed"

LIBRARY = driver_finding(
    "library",
    "The driver's libraries are not of the version of its module.",
    "nvidia-smi and CUDA then fail with `Driver/library version mismatch`.",
    causes=(MOVED, _IS_LOST),
    remedies=(RUN, _BRING_BACK, _BRING_BACK_NAMED),
)
_LOST = "the dynamic loader finds no libcuda.so.1, or an empty one"
_OTHER = "by {origin} programs load {file}, which is not of the module's version: CUDA fails (error 803 or 804)"
_NEWER = (
    "by {origin} programs load {file} (cuda-compat), which is newer than the module: data-centre GPUs take some pairs "
    "of versions, on all others CUDA fails (error 804)"
)
_NO_LOADER = "there is no ldconfig on the PATH, which reads the dynamic loader's cache"
_CACHE = "/etc/ld.so.conf.d"
_TAKE_OUT = "remove {file} with its links, or take its folder out of {origin}; then run `ldconfig`"
_LOOK = "look for the pair in NVIDIA's CUDA compatibility guide, and start a CUDA program"
_FIND = "look for it: `ls -lL /usr/lib*/libcuda.so.1 /usr/lib/*/libcuda.so.1` on the node"
CUDA_LIBRARY = driver_finding(
    "libcuda",
    "CUDA programs do not load the libcuda of the driver.",
    "Each loads libcuda.so.1 as the dynamic loader finds it: by LD_LIBRARY_PATH, by its cache, or in its own folders. "
    "Without it, or with another version than the module's, every CUDA program fails, while nvidia-smi works.",
    causes=(_LOST, _OTHER, _NEWER, _NO_LOADER, MOVED, _IS_LOST),
    remedies=(RUN, _BRING_BACK, _BRING_BACK_NAMED, _TAKE_OUT, _LOOK, _FIND),
)
PACKAGES = driver_finding(
    "packages",
    "Packages of the driver are missing on the node.",
    "The settings ask for them, or they came with the desired ones and gpunode holds them. They were removed, by "
    "force where other packages need them. Without nvidia-persistenced the GPUs lose their settings when their "
    "last program ends; without a library programs do not start.",
    causes=(_REMOVED, _MISSING),
)


def libraries(desired: Desired, actual: Actual) -> Iterator[Finding]:
    """Judge libnvidia-ml, nvidia-smi's library, and yield what is wrong with libcuda, of a reading that has it."""
    driver, to_be = actual.driver, actual.driver.module_version
    # Where the node has no kernel of its own, its maker brings kernel and modules from elsewhere, as clouds do.
    if desired.settings.is_elsewhere or (to_be is None and actual.boot.next_release is None):
        to_be = driver.loaded_version
    if actual.is_image:
        to_be = desired.rule

    def fits(version: str | None) -> bool:
        if actual.is_image and version and to_be:
            return versions.in_branch(version, to_be)
        return bool(version) and version == to_be

    library = driver.library_version
    cause = MOVED if library and to_be else None
    yield LIBRARY.compared(library, to_be or "that of a module on disk", fits(library), cause=cause)
    if to_be is None or driver.cuda_library == "" or actual.system.tegra:
        return
    if driver.cuda_library is None and driver.loader_unknown:
        yield CUDA_LIBRARY.not_known(to_be, _NO_LOADER, _FIND)
        return
    has_consumer = any("GeForce" in gpu.name for gpu in actual.gpus.gpus)
    for origin, file in ((_CACHE, driver.cuda_library or ""), *driver.session_libraries):
        version, values = file.rpartition(".so.")[2], {"origin": origin, "file": file}
        if fits(version):
            continue
        if origin == _CACHE and not driver.is_cuda_shadowed:
            yield CUDA_LIBRARY.compared(version or None, to_be, False, cause=MOVED if file else _LOST)
        elif "/compat/" in file and version[:3] > to_be[:3] and not has_consumer:
            yield CUDA_LIBRARY.not_known(None, _NEWER.format(**values), _LOOK)
        else:
            cause, remedy = _OTHER.format(**values), _TAKE_OUT.format(**values)
            yield CUDA_LIBRARY.compared(version, to_be, False, cause=cause, remedy=remedy)
        return


def _missing(desired: Desired, actual: Actual) -> tuple[list[str], list[str]] | None:
    """Return the packages that a driver lacks, and those of them that were removed by force; a run brings them back.

    None: the driver did not come by packages, or no run installs them. A package with a finding of its own
    (services.py) is left out.
    """
    source, driver = desired.source, actual.driver
    if source is None or not desired.settings.installs or not driver.packages or driver.runfile:
        return None
    there = dict(driver.packages)
    lacking = [name for name in desired.packages if name not in (*there, *source.beside) and belongs(name)]
    removed = taken_away(source, desired.packages, there, dict(driver.pinned))
    every, taken = (
        [name for name in names if not (is_fabric_manager(name) or is_imex(name) or name == "nvlsm")]
        for names in ((*lacking, *removed), removed)
    )
    return every, taken


def packages(desired: Desired, actual: Actual) -> Iterator[Finding]:
    """Judge whether the driver has all of its packages, where it came by packages."""
    if (found := _missing(desired, actual)) is None:
        return
    missing, taken = found
    yield PACKAGES.compared(
        f"not {', '.join(missing)}" if missing else "all",
        "all",
        not missing,
        cause=_REMOVED.format(names=", ".join(taken)) if taken else _MISSING,
    )


def bring_back(desired: Desired, actual: Actual, lacking: tuple[Finding, ...]) -> Iterator[Step[None]]:
    """Yield what brings missing packages back to a driver that stays as it is."""
    if lacking and (missing := _missing(desired, actual)):
        action = f"install again what the driver lacks: {', '.join(missing[0])}"
        yield Step(action, lacking, Disruption.nothing, packages=tuple(missing[0]))


def installs_nothing(desired: Desired, actual: Actual) -> bool:
    """Say whether a run leaves the driver's packages as they are: each one asked for is there, and none is to go.

    What these depend on the run does not look at; the package manager keeps that right, unless somebody forces it.
    """
    source, driver = desired.source, actual.driver
    if source is None or not desired.settings.installs or driver.runfile or driver.unproven:
        return False
    asked = {name: rule for name, rule in desired.packages.items() if belongs(name) and name not in source.beside}
    found = dict(driver.packages)
    there = all(name in found and satisfies(found[name], rule) for name, rule in asked.items())
    # Those that have a rule share one version: the newest of a branch may be there in parts.
    together = len({found.get(name) for name, rule in asked.items() if rule}) <= 1
    missing = _missing(desired, actual) or ([], [])
    lacks = bool(missing[0] or leftovers(source, desired.packages, found, desired.rule))
    return bool(asked) and there and together and not lacks


def lost_files(actual: DriverState) -> tuple[str, ...]:
    """Return which libraries of installed packages a run brings back, as patterns."""
    cuda = "" if actual.loader_unknown else actual.cuda_library
    files = {"*/libnvidia-ml.so*": actual.library_version, "*/libcuda.so*": cuda}
    return tuple(pattern for pattern, found in files.items() if found is None and actual.module_version is not None)


def told_lost(item: Finding, desired: Desired, actual: Actual) -> Finding:
    """Return a difference that only the package manager mends, with what is lost and how it comes back."""
    if item.finding_class is FindingClass.OK:
        return item
    names, words = ", ".join(name for name in desired.packages if belongs(name)), wording(actual.system)
    files = {LIBRARY.code: "libnvidia-ml.so", CUDA_LIBRARY.code: "libcuda.so", GPUS.code: "nvidia-smi"}
    # Without a module on disk, the library has nothing to be compared with.
    code = MODULE_ON_DISK.code if actual.driver.module_version is None else item.code
    lost = files.get(code, "the kernel module")
    owners = sorted(name for name, _ in actual.driver.packages if re.fullmatch(_OWNERS.get(lost, ""), name))
    way = _BUILD_AGAIN if code not in files else _BRING_BACK_NAMED if owners else _BRING_BACK
    remedy = way.format(again=words.again, owner=words.owner, file=lost, packages=" ".join(owners))
    cause = _IS_LOST.format(lost=lost, names=names)
    return replace(item, cause=cause, remedy=remedy, by_person=True)
