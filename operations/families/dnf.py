"""dnf and rpm: RHEL and its kin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyinfra import host
from pyinfra.api import StringCommand

from facts.driver_packages import DriverPackages
from facts.families.dnf import DRIVER_PACKAGES, EVERY_VERSION, OTHER_VERSIONS, SKIPPING, DnfOffers, DnfSimulation
from facts.families.rpm import RpmPackages
from gpunode.driver_packages import DriverPackages as State
from gpunode.driver_packages import Offers, Simulation
from gpunode.families.dnf import LOCKLIST, LockedPackages, locked
from gpunode.packages import InstalledPackages
from gpunode.tables import driver_sources
from operations.failure import OperationRefused, known
from operations.families.family import DriverChange
from operations.families.rpm import INSTALL, TRANSACTION
from operations.files import replace_command
from operations.keeping import UNREAD, digest_of_text
from operations.script import script_command

# dnf waits for its own lock and rpm's. versionlock hides what our own change is about.
DNF_RUN = f"""
dnf_run() {{
  dnf -q -y {SKIPPING} --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False "$@"
}}
dnf_cached() {{ dnf -q -C {SKIPPING} --disableplugin=versionlock "$@"; }}
"""

_FUNCTIONS = (
    r"""
stream=${stream:-} streamed=${streamed:-}
"""
    + DRIVER_PACKAGES.strip()
    + TRANSACTION
    + r"""
# NAME=VERSION as dnf takes it: with the epoch, which rpm prints only where there is one.
nevra() { case "$2" in *:*) printf '%s' "$1-$2";; *) printf '%s' "$1-0:$2";; esac; }
cached_file() {
  for packages in /var/cache/dnf/*/packages; do
    if saved_file "$packages" "$1" "$2"; then return 0; fi
  done
  return 1
}
fetch() {
  asked=''
  for item in "$@"; do asked="$asked $(nevra "${item%%=*}" "${item#*=}")"; done
  dnf_run --disableplugin=versionlock download --destdir . $asked
}
save_choices() {
  mkdir "$checkpoint/modules.d"
  cp -a /etc/dnf/modules.d/. "$checkpoint/modules.d/" 2>/dev/null || true
}
restore_choices() {
  [ -d "$checkpoint/modules.d" ] || return 0
  rm -rf /etc/dnf/modules.d && cp -a "$checkpoint/modules.d" /etc/dnf/modules.d
}
install_driver() {
  module=${stream%%:*}
  if [ -n "$stream" ] && dnf_cached module list "$module" > /dev/null 2>&1; then
    grep -qsx "stream=${stream#*:}" "/etc/dnf/modules.d/$module.module" || {
      dnf_run module reset "$module" && dnf_run module enable "$stream"; } || return 1
  fi
  coming=''; leaving=''
  for item in $arguments; do
    case "$item" in
      *=*) coming="$coming $(nevra "${item%%=*}" "${item#*=}")";;
      *-) ! rpm -q "${item%-}" > /dev/null 2>&1 || leaving="$leaving ${item%-}";;
    esac
  done
  others=$("""
    + f"{EVERY_VERSION} | {OTHER_VERSIONS}"
    + r""")
  if [ -z "$leaving" ]; then
    dnf_run --disableplugin=versionlock ${others:+"--setopt=*.excludepkgs=$others"} install --allowerasing $coming
    return
  fi
  # What goes may have files of what comes, and no relation that says so (fabric manager's two names): one transaction,
  # which only dnf's shell makes of both. Its status says nothing.
  commands=$(mktemp)
  { [ -z "$coming" ] || echo "install$coming"; echo "remove$leaving"; echo run; } > "$commands"
  dnf_run --disableplugin=versionlock ${others:+"--setopt=*.excludepkgs=$others"} \
    --allowerasing shell "$commands" || true
  rm -f "$commands"
  for item in $leaving; do ! rpm -q "$item" > /dev/null 2>&1 || return 1; done
  for item in $arguments; do
    case "$item" in *=*) is_installed "$item" || return 1;; esac
  done
}
remove_driver() { dnf_run --disableplugin=versionlock remove "$@"; }
# Without its packages, which stream is enabled is nobody's choice any more.
forget() {
  for each in $streamed; do rm -f "/etc/dnf/modules.d/$each.module"; done
}
unneeded() { dnf_cached repoquery --unneeded --qf '%{name}' 2>/dev/null | sort -u; }
remove_unneeded() { dnf_run remove "$@"; }
unlocked() { :; }
"""
)

_FINISH = """
dnf_run --disableplugin=versionlock remove --duplicates || {
  echo "gpunode: a change of packages was interrupted, and what it began cannot be finished; see dnf check" >&2
  exit 1; }
"""

# Ours, which the packages come from, must answer; any other may be broken, and is named.
REFRESH = f"""
refresh() {{
  if [ -e "/etc/yum.repos.d/gpunode-$1.repo" ]; then
    dnf -q -y --disablerepo='*' --enablerepo="gpunode-$1" makecache --refresh || {{
      echo "gpunode: the repository $1 could not be read; nothing was installed. See dnf's message above" >&2
      exit 1; }}
  fi
  said=$(dnf -y {SKIPPING} makecache --refresh 2>&1) || {{
    printf '%s\\n' "$said" >&2
    echo "gpunode: the repositories could not be read; nothing was installed. See dnf's message above" >&2; exit 1; }}
  skipped=$(printf '%s\\n' "$said" | sed -n 's/^Ignoring repositories: *//p' | sort -u | paste -s -d ' ' -)
  [ -z "$skipped" ] || {{
    printf '%s\\n' "$said" | grep -v '^Ignoring' | tail -n 6 >&2
    echo "gpunode: caution: dnf passes over what it cannot read: $skipped; mend it, or switch it off" \
      "(dnf config-manager --set-disabled $skipped)" >&2; }}
}}
"""

OFFERED = r"""
skipping='--setopt=*.skip_if_unavailable=1'
offered() {
  dnf -q -C "$skipping" repoquery --showduplicates --qf '%{version} %{epoch}:%{version}-%{release}' "$1" | sort -r -V
}
# In the table of what it would do, what goes stands below a head of its own, and what is replaced behind that word. One
# transaction with what is to go, as `exchange` makes it; dnf's status says nothing where it is told to answer no.
losing() {
  entering=''; trial=$(mktemp)
  for item in "$@"; do entering="$entering ${item%%=*}-${item#*=}"; done
  { [ -z "$entering" ] || echo "install $entering"; echo "remove $going"; echo run; } > "$trial"
  if [ -z "$going" ]; then asked="install $entering"; else asked="shell $trial"; fi
  said=$(dnf -C "$skipping" --assumeno --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False \
    $asked 2>&1) || true
  rm -f "$trial"
  printf '%s\n' "$said" | grep -qE '^(Transaction Summary|Nothing to do)' || { untold dnf "$said"; return 1; }
  printf '%s\n' "$said" | awk '
    /^[A-Z]/ {go = /^Remov/}
    /^ +replacing / {sub(/[.][^.]*$/, "", $2); print $2; next}
    go && /^ [^ ]/ {print $1}'
}
install_chosen() {
  asked=''
  for item in "$@"; do asked="$asked ${item%%=*}-${item#*=}"; done
  dnf_run install $asked
}
# rpm takes a package's configuration away with it, or puts it aside: docker's own file is to stay.
exchange() {
  leaving=$1; shift; entering=''
  for item in "$@"; do entering="$entering ${item%%=*}-${item#*=}"; done
  kept=/etc/docker/daemon.json
  keep() { [ ! -e "$kept.gpunode-kept" ] || [ -e "$kept" ] || cp -p "$kept.gpunode-kept" "$kept"; }
  if [ -e "$kept" ]; then cp -p "$kept" "$kept.gpunode-kept"; fi
  trap 'keep; rm -f "$kept.gpunode-kept"' EXIT
  # One transaction, which only dnf's shell makes of both; its status says nothing.
  commands=$(mktemp)
  { [ -z "$entering" ] || echo "install $entering"; echo "remove $leaving"; echo run; } > "$commands"
  dnf_run shell "$commands" || true
  rm -f "$commands"
  for gone in $leaving; do
    ! rpm -q "$gone" > /dev/null 2>&1 || {
      echo "gpunode: $gone should be gone, and dnf left it installed; its words are above" >&2; exit 1; }
  done
}
"""


class _Dnf:
    """Change packages by dnf; the driver stays still by versionlock."""

    name = "dnf"
    functions = DNF_RUN + _FUNCTIONS
    saved = "rpms"
    # curl is there, as the package curl or curl-minimal. `dnf download` saves what a change takes away.
    tools: tuple[str, ...] = ("ca-certificates", "dnf-plugins-core", "gnupg2")
    holding_tools: tuple[str, ...] = ("python3-dnf-plugin-versionlock",)
    holding: tuple[str, ...] = (LOCKLIST,)
    otherwise = "mend the repository"

    def state(self) -> State:
        state: State = known(host.get_fact(DriverPackages), "the list of the driver's packages")
        return state

    def held_by(self, state: State) -> Mapping[str, str]:
        # Without the plugin the list was not read, and may be there.
        text = state.locklist if isinstance(state, LockedPackages) else None
        return {LOCKLIST: UNREAD if text is None else digest_of_text(text)}

    def finish(self) -> Iterator[StringCommand]:
        yield script_command(f"{DNF_RUN}{_FINISH}")

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield script_command(f'{REFRESH}refresh "$1"', repository)

    def offers(self, names: Sequence[str], change: DriverChange) -> Offers:
        fact = host.get_fact(DnfOffers, names=list(names), stream=change.stream)
        offers: Offers = known(fact, "what the repositories offer")
        return offers

    def bound(self, change: DriverChange) -> DriverChange:
        """Return the change as it is: of the driver, no other version is in dnf's sight."""
        return replace(change, coming={**change.coming, **change.along})

    def simulation(self, change: DriverChange) -> Simulation:
        # What only goes is looked for at no version.
        upstream = change.upstream if change.coming else ""
        fact = host.get_fact(
            DnfSimulation, coming=dict(change.coming), going=list(change.going), stream=change.stream, upstream=upstream
        )
        simulation: Simulation = known(fact, "what dnf would do")
        return simulation

    def variables(self, change: DriverChange) -> dict[str, str]:
        streams = [name for row in driver_sources() if row.family == self.name for name in row.stream.values()]
        return {"stream": change.stream, "streamed": " ".join(sorted({name.partition(":")[0] for name in streams}))}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by our part of versionlock's list; the plugin comes with what else dnf needs before the driver."""
        if not isinstance(state, LockedPackages) or (state.locklist is None and keep):
            raise OperationRefused(
                "dnf's plugin versionlock is missing or switched off, and without it nothing keeps the driver's "
                "packages as they are; install python3-dnf-plugin-versionlock and set enabled = 1 in "
                "/etc/dnf/plugins/versionlock.conf, or set driver.hold = False"
            )
        there = state.locklist or ""
        text = locked(there, keep, every=state.every)
        if text != there:
            yield replace_command(LOCKLIST, text)

    def installed(self, names: Sequence[str]) -> InstalledPackages:
        found: InstalledPackages = known(
            host.get_fact(RpmPackages, names=list(names)), "the list of installed packages"
        )
        return found

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        asked = [argument.replace("-rc.", "~rc.") for argument in arguments]
        return script_command(
            f'{DNF_RUN}{REFRESH}refresh "$repository"\n{OFFERED}{INSTALL}', *asked,
            repository=repository, instead=instead, manager="dnf",
        )  # fmt: skip


DNF = _Dnf()
