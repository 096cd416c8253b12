"""What apt says that it would do, and whether it may."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpunode.base import versions
from gpunode.base.explanations import explained
from gpunode.base.folding import shortened
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.packages.driver_packages.names import belongs, driver_branch


@dataclass(frozen=True)
class Simulation(Reading):
    """Hold what `apt-get -s install` says: (name, old or None, new) that would come, (name, old) that would go.

    `errors` are the package manager's own words where it would refuse, dependencies that it cannot satisfy first;
    `manager` is its name, `trial` the command that shows a person the same, `remedy` what helps where that is known.
    `refusal` is a (reason, remedy) of its own for which nothing may come. `replaced` are names that would go because a
    package of the driver that comes takes their place by name (rpm's Obsoletes).
    """

    comes: tuple[tuple[str, str | None, str], ...]
    goes: tuple[tuple[str, str], ...]
    errors: tuple[str, ...] = ()
    manager: str = "apt"
    trial: str = "apt-get -s install"
    remedy: str | None = None
    refusal: tuple[str, str] | None = None
    replaced: tuple[str, ...] = ()


_COMES = re.compile(r"Inst (?P<name>\S+) (?:\[(?P<old>[^\]\s]+)\] )?\((?P<new>\S+)[^)]*\).*")
_IMAGE = re.compile(r"linux-image-(unsigned-)?\d.*")
_GOES = re.compile(r"(?:Remv|Purg) (?P<name>\S+)(?: \[(?P<old>[^\]\s]+)\])?.*")


def exit_status(lines: list[str], manager: str) -> int:
    """Return the exit status of a package manager (`status=EXIT CODE`); raise ParseError."""
    status = values(lines).get("status", "")
    if not status.isdecimal():
        raise ParseError(f"{manager} gave no exit status")
    return int(status)


def parse_simulation(lines: list[str]) -> Simulation:
    """Parse `status=EXIT CODE` and `line=WHAT APT SAID` lines; raise ParseError where apt's words are not its usual."""
    status = exit_status(lines, "apt-get -s")
    comes, goes, errors = [], [], []
    for line in repeated(lines, "line"):
        if line.startswith("Inst "):
            match = _COMES.fullmatch(line)
            if match is None:
                raise ParseError(f"not a line of apt-get -s: {line[:120]!r}")
            comes.append((_unqualified(match["name"]), match["old"], match["new"]))
        elif line.startswith(("Remv ", "Purg ")):
            match = _GOES.fullmatch(line)
            if match is None:
                raise ParseError(f"not a line of apt-get -s: {line[:120]!r}")
            goes.append((_unqualified(match["name"]), match["old"] or ""))
        elif line.startswith("E: ") or "Depends: " in line:
            errors.append(line.removeprefix("E: "))
    if status and not errors:
        errors = [line for line in repeated(lines, "line") if line][-3:] or [f"it exits {status}"]
    return Simulation(tuple(comes), tuple(goes), tuple(errors) if status else ())


def left_behind(along: Mapping[str, str], simulation: Simulation) -> dict[str, str]:
    """Return name -> version of what is to come along, and of which a simulation says nothing; none where it fails."""
    moves = {name for name, _, _ in simulation.comes} | {name for name, _ in simulation.goes}
    return {} if simulation.errors else {name: version for name, version in along.items() if name not in moves}


def _unqualified(name: str) -> str:
    return name.partition(":")[0]


def gate(
    simulation: Simulation,
    desired: Mapping[str, str],
    branch: str,
    branch_change: bool,
    moved: bool = False,
    unbound: Collection[str] = (),
    leaving: Collection[str] = (),
    built: bool = True,
    upstream: str | None = None,
) -> tuple[str, str] | None:
    """Judge what apt would do after the lists were refreshed; return (reason, remedy), None where it may go on.

    + desired: name -> package version that was resolved
    + branch: the driver's branch that is asked for
    + branch_change: whether the settings allow packages of another branch to be replaced
    + unbound: names of the driver's packages that are numbered otherwise, and so of no branch
    + leaving: names that were told to go
    + built: whether the node builds the module, rather than that it comes built for each kernel
    + upstream: the one version of all packages of the driver that are numbered by it; None where the source numbers
      some of them apart
    + moved: the driver that is there came from another source, which divides it into other packages
    """
    if simulation.refusal is not None:
        return simulation.refusal
    if simulation.errors:
        if not built and any("linux-modules-nvidia" in error for error in simulation.errors):
            return (
                f"apt would refuse: {shortened('; '.join(simulation.errors))}",
                "boot a newer kernel first (upgrade linux-image-… on the node, and reboot it): the archive has built "
                "modules of this kernel for an older driver alone",
            )
        if simulation.manager == "apt" and (told := explained(simulation.errors)):
            # The last one is the deepest: what the others need.
            return f"apt would refuse: {'; '.join(item.cause for item in told)}", told[-1].remedy
        return (
            f"{simulation.manager} would refuse: {shortened('; '.join(simulation.errors))}",
            simulation.remedy
            or f"look at `{simulation.trial}` of the same packages on the node, and at its repositories and "
            "preferences",
        )
    images = sorted(name for name, _, _ in simulation.comes if _IMAGE.fullmatch(name))
    if images:
        return (
            f"the kernel {', '.join(images)} would come along, without what else belongs to it (linux-modules-extra)",
            "upgrade the node's kernel by its metapackage (linux-image-…), reboot it, and run again",
        )
    for name, old, new in simulation.comes:
        numbered = belongs(name) and name not in unbound
        actual = driver_branch(new) if numbered else None
        if actual is not None and actual != branch:
            return (
                f"package {name} would come at {new}, which is not of branch {branch}: a package that is asked for is "
                "a transitional one, or the repository no longer has all of that branch",
                f"set driver.branch = '{actual}' (see driver.allow_branch_change), ask for another version, or use a "
                "repository that still has the branch",
            )
        if name in desired and new != desired[name]:
            return (
                f"package {name} would come at {new} and not at {desired[name]}",
                f"look at `{simulation.trial}` on the node, and at its repositories and preferences",
            )
        if actual is not None and upstream is not None and versions.upstream(new) != upstream:
            return (
                f"package {name} would come at {new}, and the driver at {upstream}: a driver of two versions does not "
                "work",
                f"look at `{simulation.trial}` on the node, and at what pins or holds {name} there",
            )
        before = driver_branch(old) if old and numbered else None
        if before is not None and before != branch and not branch_change:
            return (
                f"package {name} {old} would be moved to {new}, which is another branch",
                f"set driver.allow_branch_change = True for this change, or driver.branch = '{before}'",
            )
    coming = {_role(name) for name, _, _ in simulation.comes if belongs(name)}
    for name, old in simulation.goes:
        if name in leaving:
            continue
        if not belongs(name):
            return (
                f"{simulation.manager} would remove {name} {old}, which is no part of the driver",
                f"look at `{simulation.trial}` on the node; remove {name} yourself if it is to go",
            )
        if _role(name) not in coming and name not in simulation.replaced and not moved:
            return (
                f"{simulation.manager} would remove {name} {old}, and nothing comes in its place",
                f"look at `{simulation.trial}` on the node; remove {name} yourself if it is to go",
            )
    return None


def _role(name: str) -> str:
    """Return what a package is for, whatever its branch and flavour: nvidia-kernel-open-dkms -> nvidia-kernel-dkms."""
    if re.fullmatch(r"(nvidia-open|cuda-drivers|nvidia-driver)(-\d{3})?(-open)?", name):
        return "driver"
    # Of SUSE: built by DKMS, or built already for a kind of kernel (a KMP).
    plain = re.sub(r"(-signed)?(-cuda)?-kmp-[a-z0-9]+$", "", name)
    plain = re.sub(r"-(\d{3}(\.\d+)*|open|server|latest|G\d\d)(?=-|$)", "", plain)
    return plain.replace("fabric-manager", "fabricmanager")
