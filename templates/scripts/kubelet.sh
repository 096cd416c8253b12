# The transaction of a kubelet's configuration. It takes $path (the file, empty: none changes), $read, its digest as it
# was read, $text (base64; -: the file goes), $cleared (another file that is written, empty: none), $cleared_read and
# $cleared_text, $cpus (cpu_manager_state, empty: it stays) and $policy, by which the kubelet is to write that anew,
# $health (empty: nothing answers), $timeout and $stays (seconds), $proc, $noted, the file that notes what the kubelet
# starts by, and $reads, the files that it reads then, a line each (empty: nothing is noted).

# shellcheck disable=SC2154  # set by whoever sends it

unit=kubelet.service
main_process() { systemctl show "$unit" -p MainPID; }
answers() {
  if [ -z "$health" ]; then systemctl is-active --quiet "$unit"
  elif command -v curl >/dev/null; then curl -sf --noproxy '*' --max-time 5 "$health" >/dev/null
  elif command -v wget >/dev/null; then wget -q --no-proxy -T 5 -O /dev/null "$health"
  else systemctl is-active --quiet "$unit"; fi
}
# What it writes of its CPUs tells that it got as far as to start by the policy: it says that it is well before.
has_started() { [ -z "$1" ] || grep -q "\"policyName\":\"$1\"" "$cpus" 2>/dev/null; }
# By the seconds since the boot: the clock may be set meanwhile.
now() { read -r up _ < "$proc/uptime"; echo "${up%%.*}"; }
well() {
  end=$(($(now) + timeout))
  while [ "$(now)" -lt "$end" ]; do
    if systemctl is-active --quiet "$unit" && answers && has_started "$1"; then
      # One that ends right after it has answered is none that runs; systemd would start it again and again.
      process=$(main_process); sleep "$stays"
      if [ "$(main_process)" = "$process" ] && answers; then return 0; fi
    fi
    [ "$(systemctl is-system-running || true)" != stopping ] || exit 143
    sleep 1
  done
  return 1
}
# Why it ends stands in a line of the kind F, or E, or in none: behind it come the stacks of all that it did.
words() {
  said=$(journalctl -u "$unit" -n 2000 --no-pager -o cat 2>/dev/null | grep '^[EF][0-9]\|^Error' | tail -n 3) || true
  printf '%s\n' "$said" >&2
}

keep_target() {
  real=$(target_of "$1") || {
    echo "gpunode: $1 is a link that leads nowhere; nothing was changed" >&2
    echo "gpunode: remedy: remove it on the node, and run again" >&2; exit 1; }
  roots_alone "$real" || exit 1
  keep_file "$1" "$2" "$real" || exit 1
}
save() {
  [ -z "$path" ] || keep_target "$path" "$read"
  [ -z "$cleared" ] || keep_target "$cleared" "$cleared_read"
}

# By what the files say a later reading tells one that was touched alone from another configuration.
digests() { printf '%s\n' "$reads" | while IFS= read -r file; do echo "$(file_digest "$file") $file"; done; }
note_start() {
  rm -f "$noted"
  [ -n "$reads" ] || return 0
  process=$(main_process); process=${process#MainPID=}
  read -r stat < "$proc/$process/stat" || return 0
  # Behind the name, which may hold anything, the twentieth is when the process began.
  # shellcheck disable=SC2086  # words of numbers
  set -- ${stat##*) }
  mkdir -p "${noted%/*}" && printf '%s\n' "$process ${20}" "$said_then" > "$noted.new" && mv -f "$noted.new" "$noted"
}

change() {
  if [ -n "$path" ] && [ "$text" != - ]; then printf '%s' "$text" | base64 -d | stage_file "$path" -; fi
  if [ -n "$cleared" ]; then printf '%s' "$cleared_text" | base64 -d | stage_file "$cleared" -; fi
  touch "$checkpoint/stopped"
  # A kubelet that runs writes its state again at any time.
  if [ -n "$cpus" ]; then
    systemctl stop "$unit"
    if [ -e "$cpus" ]; then
      cp -p "$cpus" "$checkpoint/cpus.new" && mv "$checkpoint/cpus.new" "$checkpoint/cpus"
    else touch "$checkpoint/no-cpus"; fi
    rm -f "$cpus"
  fi
  if [ -n "$path" ]; then
    if [ "$text" = - ]; then remove_file "$path"; else place_file "$path"; fi
  fi
  [ -z "$cleared" ] || place_file "$cleared"
  said_then=$(digests)
  systemctl reset-failed "$unit" 2>/dev/null || true
  systemctl restart "$unit" || true
  well "$policy" || { words; reject "the kubelet is not well in $timeout s by these settings"; }
  note_start
}

restore() {
  put_files_back || return 1
  [ -e "$checkpoint/stopped" ] || return 0
  if [ -e "$checkpoint/cpus" ] || [ -e "$checkpoint/no-cpus" ]; then
    systemctl stop "$unit"
    # That of the policy that failed; the former one's comes back where there was one.
    rm -f "$cpus" || return 1
    [ ! -e "$checkpoint/cpus" ] || cp -p "$checkpoint/cpus" "$cpus" || return 1
  fi
  systemctl reset-failed "$unit" 2>/dev/null
  systemctl restart "$unit"
  if well ''; then echo "gpunode: the kubelet runs again as before" >&2
  else
    echo "gpunode: the kubelet is DOWN: it is not well with its old files either" >&2
    echo "gpunode: remedy: see \`journalctl -u kubelet -n 50\` on the node, correct what it names, start the kubelet" \
      "(\`systemctl restart kubelet\`), and run again" >&2
    not_to_blame
  fi
}
