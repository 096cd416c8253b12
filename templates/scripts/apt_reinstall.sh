# Functions for reinstall.sh, by apt and dpkg. On top of apt_get.sh.

owned() {
  dpkg-query -S "$1" 2>/dev/null | sed -n 's|^\([a-z0-9][a-z0-9.+-]*\(:[a-z0-9]*\)\{0,1\}\): \(/.*\)$|\1 \3|p'
}
# apt lifts the hold of what it installs.
# shellcheck disable=SC2016,SC2046,SC2086  # dpkg's own variables; they are words.
again() {
  held=$(apt-mark showhold "$@")
  code=0
  apt_get install --reinstall --no-install-recommends --allow-change-held-packages \
    $(dpkg-query -W -f '${binary:Package}=${Version}\n' "$@") || code=$?
  [ -z "$held" ] || apt-mark hold $held > /dev/null || true
  return "$code"
}
