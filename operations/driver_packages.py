"""The driver's packages, as one transaction: saved before it, proven after it, put back if they do not work; and held.

design.md rule 5. What only fresh package lists can tell (a transitional package that moves to another branch) is judged
between the refresh and the install, by what the package manager says that it would do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from facts.transaction import TransactionJournal
from gpunode import versions
from gpunode.apt_archive import ArchiveError, whole_archive
from gpunode.driver_packages import (
    FOREIGN,
    OWN,
    NotInstallable,
    belongs,
    chosen,
    gate,
    goes_along,
    leftovers,
    moved_along,
    of_another_source,
)
from gpunode.tables import DriverSource, driver_sources
from operations import apt_archive
from operations.failure import OperationRefused, known, node_operation
from operations.families import APT, FAMILIES, DriverChange, Family
from operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

_SHARED = r"""
# Debian's own packages rename the module, so that it need not be the one of that name.
modules='nvidia nvidia-current nvidia-current-open'
sources=${sources:-} proof=${proof:-loaded} saved=${saved:-debs}
module_there() {
  for each in $modules; do
    modinfo -k "${kernel:-$(uname -r)}" -F version "$each" 2>/dev/null && return 0
  done
  return 0
}
loaded_version() { cat /sys/module/nvidia/version 2>/dev/null || true; }
# DKMS takes the build's folder away where a build succeeds.
failed_build() {
  for log in /var/lib/dkms/nvidia*/"$upstream"/build/make.log; do
    [ -f "$log" ] || continue
    echo "gpunode: DKMS could not build the module; the end of $log:" >&2
    tail -n 15 "$log" | sed 's/^/  /' >&2
    reject "DKMS could not build the module $upstream ($(head -n 1 "$log")): $(grep -m 1 -iE 'error' "$log" || true)"
  done
}
"""
# Every function that is called and not defined here is the family's: operations/families says what each does.
_CHECKPOINT = """
unlocked
driver_packages | awk '$4 == "installed"' > "$checkpoint/packages"
save_choices
loaded_version > "$checkpoint/loaded"
module_there > "$checkpoint/module"
for file in $holding; do
  if [ -e "$file" ]; then cp -p "$file" "$checkpoint/"; fi
done
mkdir "$checkpoint/$saved"
fetch=''
while read -r package version _; do
  if file=$(cached_file "$package" "$version"); then
    ln "$file" "$checkpoint/$saved/" 2>/dev/null || cp "$file" "$checkpoint/$saved/"
  else fetch="$fetch $package=$version"; fi
done < "$checkpoint/packages"
if [ -n "$fetch" ]; then
  # One that is not to be had would keep the others from coming.
  (cd "$checkpoint/$saved" && fetch $fetch > "$checkpoint/download" 2>&1) || for item in $fetch; do
    (cd "$checkpoint/$saved" && fetch "$item" > "$checkpoint/download" 2>&1) || true
  done
fi
lacking=''; : > "$checkpoint/lacking"
while read -r package version _; do
  saved_file "$checkpoint/$saved" "$package" "$version" > /dev/null ||
    { lacking="$lacking $package=$version"; echo "$package" >> "$checkpoint/lacking"; }
done < "$checkpoint/packages"
if [ -n "$lacking" ]; then
  tail -n 3 "$checkpoint/download" >&2 2>/dev/null || true
  # What is there already, and has only to be proven, needs no way back.
  changes=$([ "$arguments" = "$expected" ] || echo yes)
  for item in $expected; do is_installed "$item" || changes=yes; done
  if [ "$rollback" = required ] && [ -n "$changes" ]; then
    echo "gpunode: rollback would not be possible: of the installed driver's packages these are neither in the" \\
      "package manager's cache nor in a repository:$lacking" >&2
    echo "gpunode: nothing was changed; mend the repository, or set driver.rollback = 'best-effort' to go on" >&2
    exit 1
  fi
  echo "gpunode: caution: there will be no way back for$lacking (driver.rollback is best-effort)" >&2
fi
"""
_CHANGE = """
held=$(awk '$3 == "hold" {print $1}' "$checkpoint/packages")
if [ -n "$held" ]; then release $held; fi
install_driver || {
  failed_build
  echo "gpunode: the driver's packages could not be installed; mend what it says above, and run again" >&2; exit 1; }
# What was held stays held, whoever did it, until the holds are brought to what the settings say.
for package in $held; do
  if driver_packages | grep -qx "$package .* installed"; then
    keep "$package" || echo "gpunode: caution: $package could not be held again" >&2
  fi
done
for item in $expected; do
  is_installed "$item" || reject "$item should be installed, but is \\
$(stated "${item%%=*}")"
done
# DKMS builds for the running and for the newest kernel; the one that boots next may be neither.
if [ -n "$kernel" ] && [ -z "$(module_there)" ] && command -v dkms > /dev/null; then
  dkms autoinstall -k "$kernel" || true
fi
on_disk=''
for module in $modules; do
  on_disk=$(modinfo -k "${kernel:-$(uname -r)}" -F version "$module" 2>/dev/null) && break
done
# Without a kernel (an image that is being made) there is nothing that a module could be for.
if [ "$proof" != packages ] && [ "$on_disk" != "$upstream" ]; then
  failed_build
  reject "$upstream is installed, but for kernel ${kernel:-$(uname -r)} the module on disk is ${on_disk:-none}; see\\
 dkms status, or where modules come built, for which driver linux-modules-nvidia-* of that kernel is"
fi
# nouveau gives the GPU up at a boot alone, and a module that is built for another kernel waits for that kernel.
if [ "$proof" = loaded ] && [ -z "$(loaded_version)" ] && [ ! -d /sys/module/nouveau ] &&
  [ "$(modinfo -F version "$module" 2>/dev/null)" = "$upstream" ]; then
  said=$(modprobe nvidia 2>&1) || { dmesg 2>/dev/null | grep -iE 'nvrm|nvidia|rejected' | tail -n 5 >&2 || true
    reject "the module $upstream is installed and does not load: $said"; }
  [ "$(loaded_version)" = "$upstream" ] || reject "the module on disk is $upstream and loaded is $(loaded_version)"
  code=0; said=$(timeout -k 5 60 nvidia-smi -L 2>&1) || code=$?
  # Not of the driver's doing: a GPU that is lost (15), or that nvidia-smi itself is none of its packages (127).
  case "$code" in 9|12|18|124|137) reject "the module $upstream is loaded, and nvidia-smi exits $code: $said";; esac
fi
# What only a reboot can load is not proven yet: operations/driver.py takes the mark away, or undoes the change.
if [ "$(loaded_version)" != "$upstream" ]; then : > "$checkpoint/unproven"; fi
"""
_RESTORE = """
finish_half
driver_packages > "$checkpoint/now"
cut -d' ' -f1 "$checkpoint/packages" > "$checkpoint/names"
added=$(cut -d' ' -f1 "$checkpoint/now" | grep -vxF -f "$checkpoint/names")
if [ ! -s "$checkpoint/packages" ] && [ -z "$rejected" ]; then
  # There was no driver, and nothing is said against this one: what has come stays, if its installation can be finished.
  ! finish_first || return 0
fi
was=$(cat "$checkpoint/loaded")
if [ -n "$rejected" ] && [ -z "$was" ] && [ -n "$(loaded_version)" ]; then
  systemctl stop nvidia-persistenced nvidia-fabricmanager > /dev/null 2>&1
  modprobe -r nvidia_uvm nvidia > /dev/null 2>&1
fi
# What could not be saved (rollback: best-effort) is no part of what has to come back.
restorable() {
  awk -v lacking="$checkpoint/lacking" \
    'BEGIN {while ((getline line < lacking) > 0) lost[line] = 1} !($1 in lost) {print $1, $2, $4}' "$1"
}
back() {
  driver_packages > "$checkpoint/now"
  [ "$(restorable "$checkpoint/now")" = "$(restorable "$checkpoint/packages")" ]
}
if ! back; then
  files=''
  while read -r package version _; do
    if file=$(saved_file "$checkpoint/$saved" "$package" "$version"); then files="$files $file"; fi
  done < "$checkpoint/packages"
  put_back
fi
back || return 1
# The packages may be back and the module not: DKMS builds none without the kernel's headers, and calls that a success.
if [ -s "$checkpoint/module" ] && [ -z "$(module_there)" ]; then
  ! command -v dkms > /dev/null || dkms autoinstall -k "${kernel:-$(uname -r)}"
  [ -n "$(module_there)" ] || {
    echo "gpunode: the packages of before are back, but kernel ${kernel:-$(uname -r)} has NO nvidia module on disk:" \\
      "install its headers and run dkms autoinstall before anybody reboots" >&2; return 1; }
fi
if [ -s "$checkpoint/names" ]; then
  restore_choices
  if [ -z "$(loaded_version)" ] && [ ! -d /sys/module/nouveau ]; then
    modprobe nvidia && modprobe nvidia_uvm ||
      echo "gpunode: the driver's earlier packages are back, and its module does not load now" >&2
  fi
  for unit in nvidia-fabricmanager nvidia-persistenced; do
    if systemctl is-enabled --quiet "$unit" 2>/dev/null && ! systemctl is-active --quiet "$unit"; then
      systemctl reset-failed "$unit"; systemctl start "$unit"
    fi
  done
fi
for file in $holding; do
  if [ -e "$checkpoint/${file##*/}" ]; then cp -p "$checkpoint/${file##*/}" "$file"; else rm -f "$file"; fi
done
"""


def driver_transaction(family: Family) -> Transaction:
    """Return the driver's transaction with the functions of a package manager."""
    return Transaction(
        name="driver",
        shared=family.functions + _SHARED,
        checkpoint=_CHECKPOINT,
        change=_CHANGE,
        restore=_RESTORE,
    )


DRIVER = driver_transaction(APT)


@node_operation
def installed(
    wanted: Mapping[str, str | None],
    branch: str,
    branch_change: bool,
    rollback: str,
    kernel: str | None,
    source: DriverSource,
    proof: str = "loaded",
    headers: bool = True,
    stream: str = "",
) -> Iterator[Any]:
    """Install the driver's packages together, at one version, and put back those of before if the new do not work.

    + wanted: package name -> None (any version), a branch (`580`: its newest) or an upstream version
    + branch: the branch that is asked for
    + branch_change: whether a driver of another branch may be replaced
    + rollback: required: nothing is changed where the installed packages cannot be saved; or best-effort
    + kernel: release of the kernel for which the module must be there afterwards; None: the running one
    + source: where they come from, whose list must be refreshed where gpunode wrote its entry. Of a distribution's
      archive nothing else is in apt's sight
    + headers: whether that kernel's headers were there when the run began
    + proof: what is asked of the change: that the module is `loaded`, or on `disk`, or of the `packages` alone
    + stream: the module stream that holds them (MODULE:STREAM), where the repository has streams
    """
    family = FAMILIES[source.family]
    transaction = driver_transaction(family)
    yield from settled(transaction)
    state = family.state()
    if state.interrupted:
        yield from family.finish()
        state = family.state()
    missing, obsolete = state.missing(wanted), leftovers(source, wanted, state.driver)
    journal = known(host.get_fact(TransactionJournal, transaction=DRIVER.name), "the journal of the driver's change")
    # One that was interrupted and then finished by dpkg alone has not been proven to work.
    unproven = journal.state == "restored"
    if not missing and not obsolete and not unproven:
        there = dict(state.packages)
        host.noop(f"installed: {', '.join(f'{name} {there[name]}' for name in wanted)}")
        return
    yield from family.refresh("cuda" if source.origin is None else "distribution")
    moved = of_another_source(source, state.driver)
    # Which module goes for another the package manager finds out: to ask for both flavours would be refused.
    groups = [row.packages.get(flavour, {}) for row in driver_sources() for flavour in ("open", "proprietary")]
    modules = [name for group in groups for name in group if name.endswith("-dkms")]
    left = {*wanted, *obsolete, *modules}
    others = {name: version for name, version in state.driver.items() if moved and name not in left}
    change = DriverChange({}, obsolete, "", _archive(source), stream)
    offers = family.offers(sorted({*wanted, *others}), change)
    # What another source brought is no reason to stay at its version.
    present = {name: version for name, version in state.packages if not (moved and belongs(name))}
    try:
        resolved = chosen(wanted, present, offers.available, goes_along(source, wanted))
    except NotInstallable as error:
        raise OperationRefused(
            f"driver: {error}; nothing was changed. Set driver.version or driver.branch to one that is there, or mend "
            "the repository"
        ) from error
    upstream = next(versions.upstream(resolved[name]) for name, rule in wanted.items() if rule)
    # Headers that came since are a new try.
    lacking = () if headers else (f"{kernel} without headers",)
    target = target_digest(*(f"{name}={version}" for name, version in sorted(resolved.items())), *lacking)
    refuse_failed(transaction, target)
    along = moved_along(others, offers.available, upstream)
    coming = dict(sorted(resolved.items())) | {name: version for name, version in along.items() if version is not None}
    going = dict.fromkeys([*obsolete, *(name for name, version in along.items() if version is None)])
    change = replace(change, coming=coming, going=tuple(going), upstream=upstream)
    unbound = [name for name, rule in wanted.items() if rule is None]
    refused = gate(
        family.simulation(change), resolved, branch, branch_change, moved, unbound,
        leaving=obsolete, built=source.built_on_node,
    )  # fmt: skip
    if refused is not None:
        reason, remedy = refused
        raise OperationRefused(f"driver: {reason}; nothing was changed. To go on, {remedy}")
    expected = [f"{name}={version}" for name, version in sorted(resolved.items())]
    arguments = [*(f"{name}={version}" for name, version in coming.items()), *(f"{name}-" for name in going)]
    yield transaction_command(
        transaction, target,
        arguments=" ".join(arguments), expected=" ".join(expected),
        names=" ".join(sorted(wanted)), upstream=upstream, kernel=kernel or "", own=OWN, foreign=FOREIGN,
        rollback=rollback, proof=proof, saved=family.saved, holding=" ".join(family.holding),
        **family.variables(change),
    )  # fmt: skip


def _archive(source: DriverSource) -> str:
    """Return apt sources of the distribution's archive alone; empty where the driver comes from elsewhere.

    NVIDIA's repository, which CUDA may come from, has packages of the same names.
    """
    if source.origin is None:
        return ""
    try:
        return whole_archive(apt_archive.reading(), source.origin, source.components)
    except ArchiveError as error:
        raise OperationRefused(f"the archive of {source.origin}: {error}; nothing was changed") from error


@node_operation
def held(family: str, hold: bool, kernel: bool) -> Iterator[Any]:
    """Keep the package manager off the driver's packages; or let go of what was kept still before.

    Holds that others set stay.

    + family: of the node's package manager
    + hold: whether the driver is held
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


__all__ = ["DRIVER", "driver_transaction", "held", "installed"]
