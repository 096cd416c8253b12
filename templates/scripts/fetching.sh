# A function: fetching_failed FILE URL prints, in one line, why curl could not fetch, by its words in FILE, which goes.
# Where a certificate is refused, it adds how far the node's clock is from that of the server.

fetching_failed() {
  why=$(sed -n 's/^curl: ([0-9]*) .*/&/p' "$1" | tail -n 1); [ -n "$why" ] || why=$(tail -n 1 "$1")
  rm -f "$1"; printf '%s' "${why:-curl gave no reason}"
  case "$why" in 'curl: (60)'*|'curl: (35)'*) ;; *) return 0;; esac
  # What an untrusted server says of the time is no more than a hint.
  when=$(curl --silent --insecure --head --max-time 9 "$2" | tr -d '\r' | sed -n 's/^[Dd]ate: *//p' | tail -n 1) || :
  there=$(date -d "$when" +%s 2> /dev/null) && [ -n "$when" ] || return 0
  off=$(($(date +%s) - there))
  if [ "${off#-}" -gt 3600 ]; then printf "; the node's clock says %s, the server's %s" "$(date -u)" "$when"; fi
}
