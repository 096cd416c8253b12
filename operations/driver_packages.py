"""The driver's packages: one version of all in the driver's transaction (operations/driver_transaction.py); and held.

design.md rule 5. What only fresh package lists can tell (a transitional package that moves to another branch) is judged
between the refresh and the install, by what the package manager says that it would do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base import versions
from gpunode.base.disruption import Drain
from gpunode.base.tables import driver_sources
from gpunode.base.tables.sources import DriverSource
from gpunode.components.driver.coming import lost_files
from gpunode.facts.driver import Driver
from gpunode.facts.transaction import TransactionJournal
from gpunode.operations import apt
from gpunode.operations.driver_transaction import DRIVER, driver_transaction, driver_variables, emptied_for_driver
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.families import FAMILIES, DriverChange
from gpunode.operations.keeping import noted_command
from gpunode.operations.transaction import refuse_failed, settled, transaction_command
from gpunode.packages.deb import ArchiveError, whole_archive
from gpunode.packages.driver_packages.choice import NotInstallable, Offers, chosen, come_along, module_behind
from gpunode.packages.driver_packages.installed import taken_away
from gpunode.packages.driver_packages.names import belongs
from gpunode.packages.driver_packages.simulation import gate
from gpunode.packages.driver_packages.sources import leftovers, of_another_source, unversioned_packages


@node_operation
def installed(
    desired: Mapping[str, str | None],
    branch: str,
    branch_change: bool,
    rollback: str,
    kernel: str | None,
    source: DriverSource,
    target: str = "",
    proof: str = "loaded",
    stream: str = "",
    migrate: bool = False,
    drain: Drain | None = None,
) -> Iterator[Any]:
    """Install the driver's packages together, at one version, and put back those of before if the new do not work.

    + desired: package name -> None (any version), a branch (`580`: its newest) or an upstream version
    + branch_change: whether a driver of another branch may be replaced
    + rollback: required: nothing is changed where the installed packages cannot be saved; or best-effort
    + kernel: release of the kernel for which the module must be there afterwards; None: the running one
    + source: where they come from, whose list must be refreshed where gpunode wrote its entry. Of a distribution's
      archive nothing else is in apt's sight
    + target: digest of what is to be reached (Desired.target)
    + proof: what is asked of the change: that the module is `loaded`, or on `disk`, or of the `packages` alone
    + stream: the module stream that holds them (MODULE:STREAM), where the repository has streams
    + migrate: whether a driver of NVIDIA's .run installer may be replaced; without it preflight has refused the node
    """
    family = FAMILIES[source.family]
    transaction = driver_transaction(family)
    yield from settled(transaction)
    state = family.state()
    if state.interrupted:
        yield from family.finish()
        state = family.state()
    rule = next(filter(None, desired.values()), None)
    names = sorted(desired)
    # Whoever needs it would be refused all else until it is back.
    desired = {**desired, **taken_away(source, desired, state.driver, state.pinned)}
    obsolete = leftovers(source, desired, state.driver, rule)
    # Modules for further kernels come along with a driver, and are no reason to change one that is right.
    missing = [name for name in state.missing(desired) if name not in source.beside]
    journal = read_fact(TransactionJournal, "the journal of the driver's change", transaction=DRIVER.name)
    # One that was interrupted and then finished by dpkg alone has not been proven to work.
    unproven = journal.state == "restored"
    over_runfile = migrate and read_fact(Driver, "the driver's state").runfile
    if not missing and not obsolete and not unproven and not over_runfile:
        repository = "cuda" if source.origin is None else "distribution"
        if lost := lost_files(read_fact(Driver, "the driver's state")):
            yield family.reinstall(lost, repository)
            return
        actual = dict(state.packages)
        host.noop(f"installed: {', '.join(f'{name} {actual[name]}' for name in desired if name in actual)}")
        return
    if host.state is not None and not host.state.is_executing:
        # A forecast ends with the first command, and what comes of the lists is not known in it.
        yield from emptied_for_driver(drain, rule)
    yield from family.refresh("cuda" if source.origin is None else "distribution")
    moved = of_another_source(source, state.driver)
    # Which module goes for another the package manager finds out: to ask for both flavours would be refused.
    groups = [row.packages.get(flavour, {}) for row in driver_sources() for flavour in ("open", "proprietary")]
    modules = [name for group in groups for name in group if name.endswith("-dkms")]
    # What is numbered apart is asked for at no version: apt finds out whether it has to move.
    left = {*desired, *obsolete, *modules, *source.apart, *source.kernel_modules}
    # What nothing binds to the driver's version (nvidia-modprobe) would stay behind, and pacman refuses to leave any.
    along_too = moved or source.moves_together
    others = {name: version for name, version in state.driver.items() if along_too and name not in left}
    change = DriverChange({}, obsolete, "", _archive(source), stream)
    offers = family.offers(sorted({*desired, *others}), change)
    # What another source brought is no reason to stay at its version.
    present = {name: version for name, version in state.packages if not (moved and belongs(name))}
    try:
        desired = _to_be_had(desired, present, offers, source)
        resolved = chosen(desired, present, offers.available, unversioned_packages(source, desired))
    except NotInstallable as error:
        raise OperationRefused(
            f"driver: {error}; nothing was changed. Remedy: set driver.version, driver.branch or driver.flavour to one "
            f"that is there, or {family.otherwise}"
        ) from error
    behind = module_behind(source, desired, offers.available)
    if behind is not None and behind.package not in present:
        raise OperationRefused(f"driver: {behind.reason(source)}; nothing was changed. Remedy: {behind.remedy()}")
    upstream = next(versions.upstream(resolved[name]) for name, rule in desired.items() if rule)
    refuse_failed(transaction, target, upstream)
    along = come_along(others, offers.available, upstream, branch, moved=moved, clash=source.family == "apt")
    going = dict.fromkeys([*obsolete, *(name for name, version in along.items() if version is None)])
    change = family.bound(
        replace(
            change,
            coming=dict(sorted(resolved.items())),
            going=tuple(going),
            upstream=upstream,
            along={name: version for name, version in along.items() if version is not None},
        )
    )
    unbound = [*(name for name, rule in desired.items() if rule is None), *source.apart]
    refused = gate(
        family.simulation(change),
        resolved,
        branch,
        branch_change,
        moved,
        unbound,
        leaving=change.going,
        built=source.built_on_node,
        upstream=upstream if source.moves_together else None,
    )
    if refused is not None:
        reason, remedy = refused
        raise OperationRefused(f"driver: {reason}; nothing was changed. Remedy: {remedy}")
    expected = [f"{name}={version}" for name, version in sorted(resolved.items())]
    arguments = [*(f"{name}={version}" for name, version in change.coming.items()), *(f"{name}-" for name in going)]
    yield from emptied_for_driver(drain, upstream)
    yield transaction_command(
        transaction,
        target,
        arguments=" ".join(arguments),
        expected=" ".join(expected),
        names=" ".join(name for name in names if name in desired),
        upstream=upstream,
        kernel=kernel or "",
        rollback=rollback,
        proof=proof,
        **driver_variables(family, state),
        **family.variables(change),
    )


def _to_be_had(
    desired: Mapping[str, str | None], present: Mapping[str, str], offers: Offers, source: DriverSource
) -> Mapping[str, str | None]:
    """Return what is desired without the modules for further kernels that are not to be had at the driver's version."""
    found = {name: rule for name, rule in desired.items() if name not in source.beside}
    for name in (each for each in source.beside if each in desired):
        more = {**found, name: desired[name]}
        try:
            chosen(more, present, offers.available, unversioned_packages(source, more))
        except NotInstallable:
            continue
        found = more
    return found


def _archive(source: DriverSource) -> str:
    """Return apt sources of the distribution's archive alone; empty where the driver comes from elsewhere.

    NVIDIA's repository, which CUDA may come from, has packages of the same names.
    """
    if source.origin is None:
        return ""
    try:
        return whole_archive(apt.reading(), source.origin, source.components)
    except ArchiveError as error:
        raise OperationRefused(f"the archive of {source.origin}: {error}; nothing was changed") from error


@node_operation
def held(family: str, hold: bool, kernel: bool) -> Iterator[Any]:
    """Keep the package manager off the driver's packages; or let go of what was kept still before.

    Holds that others set stay.

    + kernel: whether the packages that bring new kernels are held, too
    """
    state = FAMILIES[family].state()
    keep = state.to_hold(kernel) if hold else {}
    if hold and not keep and host.state is not None and not host.state.is_executing:
        yield StringCommand("true")  # a forecast: the packages come with an operation before this one
        return
    commands = list(FAMILIES[family].hold(state, keep))
    if not commands:
        host.noop(f"held: {', '.join(keep)}" if keep else "nothing of the driver is held by gpunode")
    yield from commands
    if commands and FAMILIES[family].holding:
        # A driver that does not load after the boot is undone, and these files with it.
        yield noted_command(DRIVER.name, FAMILIES[family].holding)
