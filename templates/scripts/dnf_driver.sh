# Functions of the driver's transaction by dnf; operations/families/family.py says what each does.
# On top of DNF_RUN and rpm_driver.sh; other_versions prints what dnf is to leave out, so that all comes at $upstream.
# It takes $stream, the module stream that is to be enabled, and $streamed, the modules that gpunode may have enabled.

# shellcheck disable=SC2154  # set by whoever sends it

# NAME=VERSION as dnf takes it: with the epoch, which rpm prints only where there is one.
nevra() { case "$2" in *:*) printf '%s' "$1-$2";; *) printf '%s' "$1-0:$2";; esac; }
cached_file() {
  for packages in /var/cache/dnf/*/packages; do
    if saved_file "$packages" "$1" "$2"; then return 0; fi
  done
  return 1
}
# shellcheck disable=SC2086
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
# shellcheck disable=SC2086
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
  others=$(other_versions)
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
