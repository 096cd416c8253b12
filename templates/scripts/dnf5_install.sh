# Functions that rpm_install.sh needs, by dnf 5. On top of dnf5_run.sh.

skipping='--setopt=*.skip_if_unavailable=1'
offered() {
  dnf5 -q -C "$skipping" repoquery --qf '%{version} %{epoch}:%{version}-%{release}\n' "$1" | sort -r -V
}
# The words of the one transaction that brings NAME=VERSION... and takes $going away.
# shellcheck disable=SC2154  # rpm_install.sh's
together() {
  entering=''
  for item in "$@"; do entering="$entering ${item%%=*}-${item#*=}"; done
  printf '%s' "${going:+--allowerasing }${entering:+--action=install$entering }${going:+--action=remove$going}"
}
# In the table of what it would do, what goes stands below a head of its own, and what is replaced behind that word,
# with its own name where it only moves. dnf's status says nothing where it is told to answer no.
# shellcheck disable=SC2046
losing() {
  said=$(dnf5 -C "$skipping" --assumeno --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False \
    "do" $(together "$@") 2>&1) || true
  printf '%s\n' "$said" | grep -qE '^(Transaction Summary|Nothing to do)' || { untold dnf "$said"; return 1; }
  printf '%s\n' "$said" | awk '
    /^[A-Z]/ {go = /^Remov/}
    /^ +replacing / {if ($2 != by) print $2; next}
    /^ [^ ]/ {by = $1; if (go) print $1}'
}
# shellcheck disable=SC2086
install_chosen() {
  asked=''
  for item in "$@"; do asked="$asked ${item%%=*}-${item#*=}"; done
  dnf_run install $asked
}
# rpm takes a package's configuration away with it, or puts it aside: docker's own file is to stay.
# shellcheck disable=SC2329,SC2046
exchange() {
  shift
  kept=/etc/docker/daemon.json
  keep() { [ ! -e "$kept.gpunode-kept" ] || [ -e "$kept" ] || cp -p "$kept.gpunode-kept" "$kept"; }
  if [ -e "$kept" ]; then cp -p "$kept" "$kept.gpunode-kept"; fi
  trap 'keep; rm -f "$kept.gpunode-kept"' EXIT
  dnf_run "do" $(together "$@")
}
