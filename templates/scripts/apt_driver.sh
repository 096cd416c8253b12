# Functions of the driver's transaction by apt and dpkg; operations/families/family.py says what each does.
# On top of apt_get.sh and apt_mark.sh.

# shellcheck disable=SC2154  # set by whoever sends it

driver_packages() {
  dpkg-query -W -f '${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\n' |
    awk -v own="$own" -v foreign="$foreign" \
      '$1 ~ own && $1 !~ foreign && $4 != "not-installed" && $4 != "config-files"' | sort -u
}
# shellcheck disable=SC2016
saved_file() {
  for file in "$1/$2_$(printf '%s' "$3" | sed 's/:/%3a/')"_*.deb; do
    if [ -f "$file" ] && [ "$(dpkg-deb -W --showformat='${Package} ${Version}' "$file" 2>/dev/null)" = "$2 $3" ] &&
      dpkg-deb --fsys-tarfile "$file" > /dev/null 2>&1; then printf '%s' "$file"; return 0; fi
  done
  return 1
}
cached_file() { saved_file /var/cache/apt/archives "$1" "$2"; }
fetch() { apt_get download "$@"; }
is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status} ${Version}' "${1%%=*}" 2>/dev/null)" = "installed ${1#*=}" ]
}
stated() { dpkg-query -W -f '${db:Status-Status} at ${Version}' "$1" 2>/dev/null || echo absent; }
save_choices() { apt-mark showmanual > "$checkpoint/manual"; }
# shellcheck disable=SC2046
restore_choices() {
  apt-mark auto $(grep -vxF -f "$checkpoint/manual" "$checkpoint/names") > /dev/null 2>&1
  apt-mark manual $(grep -xF -f "$checkpoint/manual" "$checkpoint/names") > /dev/null 2>&1
  apt-mark hold $(awk '$3 == "hold" {print $1}' "$checkpoint/packages") > /dev/null 2>&1
}
release() { mark unhold "$@"; }
keep() { mark hold "$1"; }
# shellcheck disable=SC2086
install_driver() {
  { printf '%s\n' "$pin"; cat /etc/apt/preferences 2>/dev/null || true; } > "$checkpoint/preferences"
  only=''
  if [ -n "$sources" ]; then
    printf '%s\n' "$sources" > "$checkpoint/archive.sources"
    only="-o Dir::Etc::sourcelist=$checkpoint/archive.sources -o Dir::Etc::sourceparts=-"
  fi
  apt_get -o Dir::Etc::Preferences="$checkpoint/preferences" $only install --no-install-recommends \
    --allow-downgrades --allow-change-held-packages $arguments || return 1
  # A pin of NVIDIA's is a configuration file, which stays when its package goes, and goes on pinning.
  for item in $arguments; do
    case "$item" in nvidia-driver-pinning-*-) forget "${item%-}";; esac
  done
  # What was named only so that it comes along had come for something else: it may go with that one day.
  auto=$(cut -d' ' -f1 "$checkpoint/packages" | grep -vxF -f "$checkpoint/manual" |
    grep -vxF "$(printf '%s\n' $names)") || true
  [ -z "$auto" ] || apt-mark auto $auto > /dev/null || true
}
remove_driver() { apt_get remove "$@"; }
forget() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" != config-files ] || dpkg --purge "$1"
}
unneeded() { apt-get -s -q autoremove 2>/dev/null | sed -n 's/^Remv \([^ ]*\).*/\1/p'; }
remove_unneeded() { apt_get purge "$@"; }
finish_half() { dpkg --force-confold --configure -a > /dev/null 2>&1 < /dev/null; }
# shellcheck disable=SC2086
finish_first() {
  # At the versions that it was cut off at: the newest may be of another branch.
  pinned="$checkpoint/preferences"
  [ -f "$pinned" ] || pinned=/etc/apt/preferences
  apt_get -o Dir::Etc::Preferences="$pinned" --fix-broken install && [ -z "$(dpkg --audit)" ] || return 1
  come=$(driver_packages | cut -d' ' -f1 | grep -xF "$(printf '%s\n' $names)")
  [ -z "$come" ] || apt-mark manual $come > /dev/null
  return 0
}
# shellcheck disable=SC2086
put_back() {
  going=''
  for package in $added; do going="$going $package-"; done
  { [ -n "$files" ] && apt_get install --no-install-recommends --allow-downgrades --allow-change-held-packages \
    $files $going; } || {
    # Without apt's judgement, which what is half-installed may not satisfy.
    [ -z "$added" ] || dpkg --force-depends --purge $added
    [ -z "$files" ] || dpkg --force-confold --install "$checkpoint/$saved"/*.deb
  }
  [ -z "$added" ] || dpkg --force-depends --purge $added > /dev/null 2>&1
}
