# The transaction of a container runtime's configuration, one for all of them: containerd.sh, docker.sh and crio.sh have
# what is a runtime's own (operations/runtime.py says which functions). It takes $program, $unit, $plugin, $config,
# $files (lines PATH BASE64|- READ), $staged, $expected, $loaded, $act, $needs, $notes, $proc and $image.

# shellcheck disable=SC2154  # set by whoever sends it

main_process() { [ "$image" = yes ] || systemctl show "$unit" -p MainPID,ActiveEnterTimestamp; }
# By the seconds since the boot: the node's clock may be set meanwhile, by an hour and either way.
now() { read -r up _ < "$proc/uptime"; echo "${up%%.*}"; }
healthy() {
  # By time, not by tries: a client may itself wait for a daemon that is not there.
  end=$(($(now) + 30)); state=
  while [ "$(now)" -lt "$end" ]; do
    if systemctl is-active --quiet "$unit"; then
      state=$(plugin_state 2>/dev/null) || true
      if [ "$state" = ok ]; then
        # One that ends right after it has said that it is ready is none that runs.
        process=$(main_process); sleep 2
        if systemctl is-active --quiet "$unit" && [ "$(main_process)" = "$process" ]; then return 0; fi
        state='ok, and then the service ended'; break
      fi
      # A plugin that could not load is not loaded again before the next start.
      case "$state" in error*) break;; esac
    fi
    # A machine that goes down takes its daemon with it: that is nobody's fault.
    [ "$(systemctl is-system-running || true)" != stopping ] || exit 143
    sleep 0.5
  done
  service=$(systemctl is-active "$unit" || true)
  service_state "$unit"
  return 1
}
note_loaded() {
  if [ -z "$1" ]; then return 0; fi
  mkdir -p "$notes" && printf '%s\n' "$1" > "$notes/$program.loaded.new" &&
    mv -f "$notes/$program.loaded.new" "$notes/$program.loaded"
}
as_expected() {
  printf '%s\n' "$expected" | while read -r line; do
    if [ -n "$line" ] && ! grep -qxF "$line" "$1"; then printf '%s\n' "$line"; fi
  done
}
proven() {
  effective "$1" > "$checkpoint/effective" || reject "$program cannot read the new configuration"
  lacking=$(as_expected "$checkpoint/effective" | tr '\n' ' ')
  if [ -n "$lacking" ]; then
    reject "$program reads the new configuration, but does not obey it: it lacks $lacking"
  fi
}
written() { printf '%s' "$2" | base64 -d > "$1"; }

# Undone is what was changed, wherever a link leads by then; of what is to go the link itself goes.
save() {
  while read -r path encoded was; do
    if [ -z "$path" ]; then continue; fi
    real=$path
    [ "$encoded" = - ] || real=$(target_of "$path") || {
      echo "gpunode: $path is a link that leads nowhere; nothing was changed" >&2
      echo "gpunode: remedy: remove it on the node, and run again" >&2; exit 1; }
    # Here, where a refusal has nothing to undo.
    roots_alone "$real" || exit 1
    keep_file "$path" "$was" "$real" || exit 1
  done <<FILES
$files
FILES
  main_process > "$checkpoint/process"
}

change() {
  if [ -n "$needs" ] && [ ! -x "$needs" ]; then
    echo "gpunode: $needs is missing, and containers would be run by it: nothing was changed" >&2
    echo "gpunode: remedy: install the package that has it (nvidia-container-toolkit), and run again" >&2
    exit 1
  fi
  while read -r path encoded was; do
    if [ -z "$path" ] || [ "$encoded" = - ]; then continue; fi
    printf '%s' "$encoded" | base64 -d | stage_file "$path" - || {
      echo "gpunode: $(real_file "$path") cannot be written" >&2; exit 1; }
  done <<FILES
$files
FILES
  if [ -n "$files" ]; then
    written "$checkpoint/staged" "$staged"
    check "$checkpoint/staged" || reject "$program refuses the new configuration${refused:+: $refused}"
    proven "$checkpoint/staged"
  # A daemon that would not come up by the files of others is left running by the older ones.
  elif [ -e "$config" ]; then check "$config" || reject "$program refuses its configuration${refused:+: $refused}"
  fi
  while read -r path encoded was; do
    if [ -z "$path" ]; then continue; fi
    if [ "$encoded" = - ]; then remove_file "$path"; else place_file "$path"; fi
  done <<FILES
$files
FILES
  if [ -n "$files" ]; then proven "$config"; fi
  # In an image that is made nothing runs, which the first boot starts with these files.
  if [ "$image" = yes ]; then return 0; fi
  systemctl daemon-reload
  merged=$(digest)
  if [ -n "$loaded" ] && [ "$merged" = "$loaded" ]; then
    echo "gpunode: what $program makes of its files is what it runs by: it is left running" >&2
    note_loaded "$merged"; return 0
  fi
  case "$act" in
    nothing)
      if [ -n "$merged" ]; then
        echo "gpunode: what $program makes of its files would take a restart, which disruption.allow forbids" >&2
        echo "gpunode: remedy: set disruption.allow = 'restart', and run again" >&2
        exit 1
      fi;;
    reload)
      touch "$checkpoint/reloaded"
      systemctl reload "$unit" || true;;
    restart)
      # A daemon that was restarted often of late would be refused a start, though the cause has been mended since.
      systemctl reset-failed "$unit" 2>/dev/null || true
      systemctl restart "$unit" || true;;
  esac
  healthy || reject "$program is $service, $plugin '${state:-not answering for 30 s}'"
  note_loaded "$merged"
}

# The times of files that were put back would make the daemon look older than they are: it is noted what it runs by,
# where it is still the very process of before.
restore() {
  # A full disk has no room for a here-document (bash before 5.1), and this is to succeed there.
  differs=$(printf '%s\n' "$files" | while read -r path encoded was; do
    if [ -n "$path" ] && ! is_as_kept "$path"; then echo yes; break; fi
  done)
  put_files_back || return 1
  if [ "$image" = yes ]; then return 0; fi
  expected=
  same=$([ "$(main_process)" != "$(cat "$checkpoint/process" 2>/dev/null)" ] || echo yes)
  if [ -n "$same" ] && [ ! -e "$checkpoint/reloaded" ] &&
    { [ -z "$differs" ] || [ -n "$loaded" ] || [ -z "$(digest)" ]; }; then
    if [ -n "$differs" ]; then note_loaded "$loaded"; fi
    if systemctl is-active --quiet "$unit"; then echo "gpunode: $program runs on, as before" >&2; fi
    return 0
  fi
  rm -f "$notes/$program.loaded"
  systemctl daemon-reload
  systemctl reset-failed "$unit" 2>/dev/null
  if [ -n "$same" ] && [ -e "$checkpoint/reloaded" ]; then systemctl reload "$unit"; else systemctl restart "$unit"; fi
  if healthy; then note_loaded "$(digest)"; echo "gpunode: $program runs again as before" >&2
  else
    echo "gpunode: $program is DOWN: it does not come up with the old files either ($service, $plugin '$state')" >&2
    echo "gpunode: remedy: see \`journalctl -u $unit -n 50\` on the node, correct what it names, start it" \
      "(\`systemctl restart $unit\`), and run again" >&2
    not_to_blame
  fi
}
