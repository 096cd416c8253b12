# The transaction that brings a node's GPUs from one MIG layout to another, on top of mig_asking.sh, mig_holders.sh,
# mig_creating.sh, mig_reaching.sh and mig_cdi.sh. It takes $goal and $rest (lines UUID LAYOUT: what changes, what
# stays), $layout, $boot, the files $unit_path, $script_path, $record_path with their texts and what was read of them.
# From the first step on, a loss of power brings the former layout back at the boot: the new one once it is proven.

# shellcheck disable=SC2154,SC2034  # set by whoever sends it; read by what stands beside it

proc=/proc
# unseen: add to $why what may hold the GPU though no process is seen on it: a console by nvidia_drm, NVIDIA's services
unseen() {
  [ -z "$(holders)" ] || return 0
  may=''
  [ ! -d /sys/module/nvidia_drm ] || may='the kernel module nvidia_drm'
  for each in nvidia-fabricmanager nvidia-persistenced nvidia-dcgm; do
    ! systemctl is-active --quiet "$each.service" || may="${may:+$may, }$each.service"
  done
  [ -z "$may" ] || why="$why; no process is seen on it, but these may hold it: $may"
}
gave_up() {
  case "$why" in *' refuses a reset '*) unseen;; esac
  if [ -n "$blame" ]; then reject "$why"; fi
  echo "gpunode: $why" >&2; advise_mig; exit 1
}
advise_mig() {
  case "$why" in
    *' in use '*) way='end these processes, or name their units in mig.stop_units, and run again';;
    *' may hold it: '*)
      way="stop these services (\`systemctl stop\`), unload nvidia_drm where no screen needs it"
      way="$way (\`modprobe -r nvidia_drm\`), and run again; or set disruption.allow to 'reboot', by which the node is"
      way="$way booted for the mode";;
    *) way="look at the GPU (\`nvidia-smi\` and \`journalctl -k | grep -i xid\` on the node), and run again";;
  esac
  echo "gpunode: remedy: $way" >&2
}
# The toolkit's own unit makes its specification by itself, at a boot and when it is told.
renewed() {
  if systemctl is-enabled --quiet nvidia-cdi-refresh.service 2>/dev/null; then
    systemctl restart nvidia-cdi-refresh.service </dev/null ||
      { fails "nvidia-cdi-refresh.service does not make the CDI specification anew"; return 1; }
  fi
  renew_cdi
}
written() { stage_file "$1" "$2" && place_file "$1"; }
# recorded LAYOUT: by the time of the record the device plugin's pods are begun anew, so that it stays where it says so.
recorded() {
  if [ ! -e "$record_path" ] || [ "$(cat "$record_path")" != "$1" ]; then
    printf '%s\n' "$1" | written "$record_path" 644
  fi
}

# shellcheck disable=SC2015
save() {
  keep_file "$unit_path" "$unit_read" && keep_file "$script_path" "$script_read" &&
    keep_file "$record_path" "$record_read" || exit 1
  while read -r uuid wanted <&3; do
    [ -n "$uuid" ] || continue
    look && read_instances || { echo "gpunode: $why; nothing was changed" >&2; advise_mig; exit 1; }
    if [ "$current" = Enabled ]; then echo "$uuid on $(printf '%s\n' "$found" | cut -d' ' -f2 | tr '\n' ' ')"
    else echo "$uuid off"; fi | sed 's/ *$//' >> "$checkpoint/layout"
  done 3<<GOAL
$goal
GOAL
  ! systemctl is-enabled --quiet "$name_of_unit" 2>/dev/null || touch "$checkpoint/enabled"
}

change() {
  printf '%s' "$unit_text" | base64 -d | written "$unit_path" 644
  printf '%s' "$script_text" | base64 -d | written "$script_path" 755
  if [ -e "$checkpoint/layout" ]; then
    recorded "$(cat "$checkpoint/layout"; printf '%s' "$rest")"
  fi
  systemctl daemon-reload
  systemctl is-enabled --quiet "$name_of_unit" 2>/dev/null || systemctl enable --quiet "$name_of_unit"
  sync -f "$record_path" 2>/dev/null || true
  while read -r uuid wanted <&3; do
    [ -z "$uuid" ] || free "$wanted" || gave_up
  done 3<<GOAL
$goal
GOAL
  while read -r uuid wanted <&3; do
    [ -n "$uuid" ] || continue
    reach "$uuid" "$wanted" && continue
    if [ -z "$waits" ] || [ -z "$boot" ]; then gave_up; fi
    echo "gpunode: $why: the layout comes with the next boot" >&2
  done 3<<GOAL
$goal
GOAL
  [ -z "$goal" ] || renewed || gave_up
  start_stopped || gave_up
  systemctl reset-failed "$name_of_unit" 2>/dev/null || true
  # The last step: whoever undoes this after a loss of power knows by it that nothing was left to do.
  recorded "$layout"
}

restore() {
  if [ -e "$checkpoint/layout" ] && [ "$(cat "$record_path" 2>/dev/null)" = "$layout" ]; then
    echo "gpunode: the new layout was complete, and stays" >&2
    start_stopped || { echo "gpunode: $why" >&2; return 1; }
    return 0
  fi
  missing=''
  if [ -e "$checkpoint/layout" ] && ! command -v nvidia-smi > /dev/null; then
    echo "gpunode: caution: nvidia-smi is gone, and the former layout with it" >&2
  elif [ -e "$checkpoint/layout" ]; then
    while read -r uuid wanted <&3; do
      if reach "$uuid" "$wanted"; then echo "gpunode: GPU $gpu is as before" >&2; continue; fi
      reason=$why; lacks=''
      if is_gone; then
        echo "gpunode: caution: GPU $uuid is in the node no more, and its layout with it" >&2; continue
      fi
      if look && read_instances; then
        lacks=$(lacking "$(instances_of "$wanted")")
        [ "$current" = "$(mode_of "$wanted")" ] || lacks=" MIG mode $(mode_of "$wanted")$lacks"
      fi
      missing="$missing; GPU $uuid is not as before: missing${lacks:- its answer} ($reason)"
    done 3< "$checkpoint/layout"
  fi
  [ -z "$missing" ] || {
    echo "gpunode: ${missing#; }" >&2
    echo "gpunode: remedy: run again when the GPU answers; where it is broken, boot the node: what is gone then is" \
      "given up by itself. Or leave mig.config out, which gives up all that is missing" >&2
  }
  [ ! -e "$checkpoint/layout" ] || renewed || echo "gpunode: $why" >&2
  if ! start_stopped; then echo "gpunode: $why" >&2; missing="$missing; $why"; fi
  if [ -n "$missing" ]; then
    record began "$(printf '%s' "${missing#; }" | tr -cd 'A-Za-z0-9 .,:;_/()=+-')"
    return 1
  fi
  put_files_back || return 1
  if [ ! -e "$checkpoint/enabled" ]; then systemctl disable --quiet "$name_of_unit" 2>/dev/null; fi
  systemctl daemon-reload
}
