"""The driver's packages, as one transaction: saved before it, proven after it, put back if they do not work; and held.

design.md rule 5. What only fresh package lists can tell (a transitional package that moves to another branch) is judged
between the refresh and the install, by what apt says that it would do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from facts.driver_packages import (
    PREFERENCES,
    UNATTENDED,
    DriverOffers,
    DriverPackages,
    DriverSimulation,
)
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
    pin_text,
)
from gpunode.driver_packages import DriverPackages as State
from gpunode.tables import DriverSource, driver_sources
from operations import apt_archive
from operations.apt_shell import APT_GET, FINISH, MARK, READ_LISTS, REFRESH
from operations.explained import explained_command
from operations.failure import OperationRefused, known, node_operation
from operations.files import rendered, write_command
from operations.script import script_command
from operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

DRIVER = Transaction(
    name="driver",
    shared=APT_GET
    + MARK
    + r"""
# Debian's own packages rename the module, so that it need not be the one of that name.
modules='nvidia nvidia-current nvidia-current-open'
sources=${sources:-} proof=${proof:-loaded}
# NAME VERSION WANT STATUS of every package of the driver that is there, half-installed ones too.
driver_packages() {
  dpkg-query -W -f '${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\n' |
    awk -v own="$own" -v foreign="$foreign" \
      '$1 ~ own && $1 !~ foreign && $4 != "not-installed" && $4 != "config-files"' | sort -u
}
deb_of() {
  for file in "$1/$2_$(printf '%s' "$3" | sed 's/:/%3a/')"_*.deb; do
    if [ -f "$file" ] && [ "$(dpkg-deb -W --showformat='${Package} ${Version}' "$file" 2>/dev/null)" = "$2 $3" ] &&
      dpkg-deb --fsys-tarfile "$file" > /dev/null 2>&1; then printf '%s' "$file"; return 0; fi
  done
  return 1
}
is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status} ${Version}' "${1%%=*}" 2>/dev/null)" = "installed ${1#*=}" ]
}
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
""",
    checkpoint="""
unlocked
driver_packages | awk '$4 == "installed"' > "$checkpoint/packages"
apt-mark showmanual > "$checkpoint/manual"
loaded_version > "$checkpoint/loaded"
module_there > "$checkpoint/module"
for file in $holding; do
  if [ -e "$file" ]; then cp -p "$file" "$checkpoint/"; fi
done
mkdir "$checkpoint/debs"
fetch=''
while read -r package version _; do
  if file=$(deb_of /var/cache/apt/archives "$package" "$version"); then
    ln "$file" "$checkpoint/debs/" 2>/dev/null || cp "$file" "$checkpoint/debs/"
  else fetch="$fetch $package=$version"; fi
done < "$checkpoint/packages"
if [ -n "$fetch" ]; then
  # One that is not to be had would keep the others from coming.
  (cd "$checkpoint/debs" && apt_get download $fetch > "$checkpoint/download" 2>&1) || for item in $fetch; do
    (cd "$checkpoint/debs" && apt_get download "$item" > "$checkpoint/download" 2>&1) || true
  done
fi
lacking=''; : > "$checkpoint/lacking"
while read -r package version _; do
  deb_of "$checkpoint/debs" "$package" "$version" > /dev/null ||
    { lacking="$lacking $package=$version"; echo "$package" >> "$checkpoint/lacking"; }
done < "$checkpoint/packages"
if [ -n "$lacking" ]; then
  tail -n 3 "$checkpoint/download" >&2 2>/dev/null || true
  # What is there already, and has only to be proven, needs no way back.
  changes=$([ "$arguments" = "$expected" ] || echo yes)
  for item in $expected; do is_installed "$item" || changes=yes; done
  if [ "$rollback" = required ] && [ -n "$changes" ]; then
    echo "gpunode: rollback would not be possible: of the installed driver's packages these are neither in apt's" \\
      "cache nor in a repository:$lacking" >&2
    echo "gpunode: nothing was changed; mend the repository, or set driver.rollback = 'best-effort' to go on" >&2
    exit 1
  fi
  echo "gpunode: caution: there will be no way back for$lacking (driver.rollback is best-effort)" >&2
fi
""",
    change="""
held=$(awk '$3 == "hold" {print $1}' "$checkpoint/packages")
if [ -n "$held" ]; then mark unhold $held; fi
{ printf '%s\\n' "$pin"; cat /etc/apt/preferences 2>/dev/null || true; } > "$checkpoint/preferences"
only=''
if [ -n "$sources" ]; then
  printf '%s\\n' "$sources" > "$checkpoint/archive.sources"
  only="-o Dir::Etc::sourcelist=$checkpoint/archive.sources -o Dir::Etc::sourceparts=-"
fi
apt_get -o Dir::Etc::Preferences="$checkpoint/preferences" $only install --no-install-recommends --allow-downgrades \\
  --allow-change-held-packages $arguments || {
  failed_build
  echo "gpunode: apt could not install the driver's packages; mend what it says above, and run again" >&2; exit 1; }
# What was held stays held, whoever did it, until the holds are brought to what the settings say.
for package in $held; do
  if driver_packages | grep -qx "$package .* installed"; then
    mark hold "$package" || echo "gpunode: caution: $package could not be held again" >&2
  fi
done
for item in $expected; do
  is_installed "$item" || reject "$item should be installed, but is \\
$(dpkg-query -W -f '${db:Status-Status} at ${Version}' "${item%%=*}" 2>/dev/null || echo absent)"
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
""",
    restore="""
dpkg --force-confold --configure -a > /dev/null 2>&1 < /dev/null
driver_packages > "$checkpoint/now"
cut -d' ' -f1 "$checkpoint/packages" > "$checkpoint/names"
added=$(cut -d' ' -f1 "$checkpoint/now" | grep -vxF -f "$checkpoint/names")
if [ ! -s "$checkpoint/packages" ] && [ -z "$rejected" ]; then
  # There was no driver, and nothing is said against this one: what has come stays, if its installation can be finished.
  if apt_get --fix-broken install && [ -z "$(dpkg --audit)" ]; then
    come=$(driver_packages | cut -d' ' -f1 | grep -xF "$(printf '%s\\n' $names)")
    [ -z "$come" ] || apt-mark manual $come > /dev/null
    return 0
  fi
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
  files=''; going=''
  while read -r package version _; do
    if file=$(deb_of "$checkpoint/debs" "$package" "$version"); then files="$files $file"; fi
  done < "$checkpoint/packages"
  for package in $added; do going="$going $package-"; done
  { [ -n "$files" ] && apt_get install --no-install-recommends --allow-downgrades --allow-change-held-packages \\
    $files $going; } || {
    # Without apt's judgement, which what is half-installed may not satisfy.
    [ -z "$added" ] || dpkg --force-depends --purge $added
    [ -z "$files" ] || dpkg --force-confold --install "$checkpoint"/debs/*.deb
  }
  [ -z "$added" ] || dpkg --force-depends --purge $added > /dev/null 2>&1
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
  apt-mark auto $(grep -vxF -f "$checkpoint/manual" "$checkpoint/names") > /dev/null 2>&1
  apt-mark manual $(grep -xF -f "$checkpoint/manual" "$checkpoint/names") > /dev/null 2>&1
  apt-mark hold $(awk '$3 == "hold" {print $1}' "$checkpoint/packages") > /dev/null 2>&1
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
""",
)


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
    """
    yield from settled(DRIVER)
    state = _state()
    if state.interrupted:
        yield explained_command(script_command(f"{APT_GET}{FINISH}"))
        state = _state()
    missing, obsolete = state.missing(wanted), leftovers(source, wanted, state.driver)
    journal = known(host.get_fact(TransactionJournal, transaction=DRIVER.name), "the journal of the driver's change")
    # One that was interrupted and then finished by dpkg alone has not been proven to work.
    unproven = journal.state == "restored"
    if not missing and not obsolete and not unproven:
        there = dict(state.packages)
        host.noop(f"installed: {', '.join(f'{name} {there[name]}' for name in wanted)}")
        return
    repository = "cuda" if source.origin is None else "distribution"
    yield explained_command(script_command(f'{APT_GET}{READ_LISTS}{REFRESH}refresh "$1"', repository))
    sources = _archive(source)
    moved = of_another_source(source, state.driver)
    # Which module goes for another apt finds out: to ask for both flavours would be refused.
    groups = [row.packages.get(flavour, {}) for row in driver_sources() for flavour in ("open", "proprietary")]
    modules = [name for group in groups for name in group if name.endswith("-dkms")]
    left = {*wanted, *obsolete, *modules}
    others = {name: version for name, version in state.driver.items() if moved and name not in left}
    names = sorted({*wanted, *others})
    offers = known(host.get_fact(DriverOffers, names=names, sources=sources), "what the repositories offer")
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
    refuse_failed(DRIVER, target)
    arguments = [f"{name}={version}" for name, version in sorted(resolved.items())]
    going = [f"{name}-" for name in obsolete]
    arguments += dict.fromkeys([*going, *moved_along(others, offers.available, upstream)])
    pin = pin_text(upstream)
    simulation = known(
        host.get_fact(DriverSimulation, arguments=arguments, pin=pin, sources=sources), "what apt would do"
    )
    unbound = [name for name, rule in wanted.items() if rule is None]
    refused = gate(
        simulation, resolved, branch, branch_change, moved, unbound, leaving=obsolete, built=source.built_on_node
    )
    if refused is not None:
        reason, remedy = refused
        raise OperationRefused(f"driver: {reason}; nothing was changed. To go on, {remedy}")
    yield transaction_command(
        DRIVER, target,
        arguments=" ".join(arguments), expected=" ".join(arguments[: len(resolved)]), names=" ".join(sorted(wanted)),
        upstream=upstream, pin=pin, kernel=kernel or "", own=OWN, foreign=FOREIGN,
        rollback=rollback, holding=f"{PREFERENCES} {UNATTENDED}", sources=sources, proof=proof,
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


_HOLD = f"""{APT_GET}{MARK}
unlocked
if [ -n "$hold" ]; then mark hold $hold; fi
if [ -n "$unhold" ]; then mark unhold $unhold; fi
"""


@node_operation
def held(hold: bool, kernel: bool) -> Iterator[Any]:
    """Keep apt and unattended-upgrades off the driver's packages; or let go of what was kept still before.

    Holds that others set stay. NVIDIA's pinning package pins as well, to the same version.

    + hold: whether the driver is held
    + kernel: whether the packages that bring new kernels are held, too
    """
    state = _state()
    keep = state.to_hold(kernel) if hold else {}
    hold_now = sorted(set(keep) - set(state.held))
    let_go = sorted(set(state.held_by_us) & set(state.held) - set(keep))
    files = {
        PREFERENCES: (state.preferences, "driver-preferences"),
        UNATTENDED: (state.unattended, "driver-unattended-upgrades.conf"),
    }
    by_version: dict[str, list[str]] = {}
    for name, version in keep.items():
        by_version.setdefault(version, []).append(name)
    # As regular expressions, of which a package's name holds these two signs at most.
    names = [name.replace(".", "[.]").replace("+", "[+]") for name in keep]
    writes = []
    for path, (there, template) in files.items():
        text = rendered(template, by_version=by_version, names=names) if keep else None
        if there != text:
            writes.append((path, text))
    if hold and not keep and host.state is not None and not host.state.is_executing:
        yield StringCommand("true")  # a forecast: the packages come with an operation before this one
        return
    if not (hold_now or let_go or writes):
        host.noop(f"held: {', '.join(keep)}" if keep else "nothing of the driver is held by gpunode")
        return
    # What is let go is known by the file of before, which is therefore written last.
    if hold_now or let_go:
        yield explained_command(script_command(_HOLD, hold=" ".join(hold_now), unhold=" ".join(let_go)))
    for path, text in writes:
        yield write_command(path, text) if text is not None else script_command('rm -f "$path"', path=path)


def _state() -> State:
    state: State = known(host.get_fact(DriverPackages), "the list of the driver's packages")
    return state


__all__ = ["DRIVER", "held", "installed"]
