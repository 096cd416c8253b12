# Functions that rpm_install.sh needs, by dnf. On top of DNF_RUN.

skipping='--setopt=*.skip_if_unavailable=1'
offered() {
  dnf -q -C "$skipping" repoquery --showduplicates --qf '%{version} %{epoch}:%{version}-%{release}' "$1" | sort -r -V
}
# In the table of what it would do, what goes stands below a head of its own, and what is replaced behind that word. One
# transaction with what is to go, as `exchange` makes it; dnf's status says nothing where it is told to answer no.
# shellcheck disable=SC2086
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
# shellcheck disable=SC2086
install_chosen() {
  asked=''
  for item in "$@"; do asked="$asked ${item%%=*}-${item#*=}"; done
  dnf_run install $asked
}
# rpm takes a package's configuration away with it, or puts it aside: docker's own file is to stay.
# shellcheck disable=SC2329
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
      echo "gpunode: $gone should be gone, and dnf left it installed" >&2
      echo "gpunode: remedy: remove it (\`dnf remove $gone\` on the node names what needs it), and run again" >&2
      exit 1; }
  done
}
