# Functions of the driver's transaction by dnf 5; operations/families/family.py says what each does.
# On top of dnf5_run.sh and rpm_driver.sh; other_versions prints what dnf is to leave out, so that all comes at
# $upstream.

# shellcheck disable=SC2154  # set by whoever sends it

# NAME=VERSION as dnf takes it: with the epoch, which rpm prints only where there is one.
nevra() { case "$2" in *:*) printf '%s' "$1-$2";; *) printf '%s' "$1-0:$2";; esac; }
cached_file() {
  for packages in /var/cache/libdnf5/*/packages; do
    if saved_file "$packages" "$1" "$2"; then return 0; fi
  done
  return 1
}
# shellcheck disable=SC2086
fetch() {
  asked=''
  for item in "$@"; do asked="$asked $(nevra "${item%%=*}" "${item#*=}")"; done
  dnf_unlocked download --destdir . $asked
}
save_choices() { :; }
restore_choices() { :; }
# What goes may have files of what comes, and no relation that says so (fabric manager's two names): one transaction.
# shellcheck disable=SC2086
install_driver() {
  coming=''; leaving=''
  for item in $arguments; do
    case "$item" in
      *=*) coming="$coming $(nevra "${item%%=*}" "${item#*=}")";;
      *-) ! rpm -q "${item%-}" > /dev/null 2>&1 || leaving="$leaving ${item%-}";;
    esac
  done
  others=$(other_versions)
  set --
  [ -z "$coming" ] || set -- --action=install $coming
  [ -z "$leaving" ] || set -- "$@" --action=remove $leaving
  [ "$#" -gt 0 ] || return 0
  dnf_unlocked ${others:+"--setopt=*.excludepkgs=$others"} "do" --allowerasing "$@" || return 1
  for item in $arguments; do
    case "$item" in *=*) is_installed "$item" || return 1;; esac
  done
}
remove_driver() { dnf_run remove "$@"; }
unneeded() {
  dnf5 -q -C '--setopt=*.skip_if_unavailable=1' repoquery --unneeded --qf '%{name}\n' 2>/dev/null | sort -u
}
remove_unneeded() { dnf_run remove "$@"; }
unlocked() { :; }
