# The transaction of a node's devices in Slurm. It takes $etc, the folder of slurm.conf; $read (PATH DIGEST), $written
# (PATH BASE64), $removed (files); $node, and $gres, words gpu:TYPE:COUNT; and yes or nothing each: $included, whether
# the site's files include all of it, $nvml, $restart (slurmd), $controller (slurmctld here, too), $resume.

# shellcheck disable=SC2154  # set by whoever sends it

save() {
  printf '%s\n' "$read" | while read -r path was; do [ -z "$path" ] || keep_file "$path" "$was" || exit 1; done
  for unit in slurmd slurmctld; do ! systemctl is-active --quiet $unit || echo $unit >> "$checkpoint/active"; done
}

# A copy of the site's files, in which gpunode's are what they are to become; where nothing includes them yet, the least
# that a slurm.conf says.
staged_folder() {
  staged=$(mktemp -d); cp -R "$etc/." "$staged/"
  printf '%s\n' "$written" | while read -r path text; do
    [ -z "$path" ] || printf '%s' "$text" | base64 -d > "$staged/${path##*/}"
  done
  if [ -n "$included" ]; then
    find "$staged" -type f -name '*.conf' -exec sed -i "s#$etc/gpunode-#$staged/gpunode-#g" {} +
  else
    printf '%s\n' ClusterName=check "SlurmctldHost=$node" GresTypes=gpu ProctrackType=proctrack/linuxproc \
      > "$staged/slurm.conf"
    if [ -f "$staged/gpunode-nodes.conf" ]; then echo "include $staged/gpunode-nodes.conf"
    else printf 'NodeName=%s%s\n' "$node" "${gres:+ Gres=$(printf '%s' "$gres" | tr ' ' ,)}"; fi >> "$staged/slurm.conf"
    printf 'PartitionName=check Nodes=%s\n' "$node" >> "$staged/slurm.conf"
    echo "include $staged/gpunode-gres.conf" > "$staged/gres.conf"
  fi
}
# What slurmd makes of them: a wrong device or key ends it, a wrong count is only told.
judged() {
  staged_folder
  answer=$(timeout -k 5 90 slurmd -N "$node" -f "$staged/slurm.conf" -G 2>&1); status=$?
  rm -rf "$staged"
  found=$(printf '%s\n' "$answer" | awk '/ Gres Name=gpu / {
    type = count = ""
    for (i = 1; i <= NF; i++) {
      split($i, pair, "=")
      if (pair[1] == "Type") type = pair[2]
      if (pair[1] == "Count") count = pair[2]
    }
    if (!(type in sum)) order[++n] = type
    sum[type] += count; all += count }
    END { for (i = 1; i <= n; i++) printf "%sgpu:%s:%d", (i > 1 ? " " : ""), order[i], sum[order[i]] }')
  # NVML has words of its own for the types.
  counts() {
    printf '%s' "$1" | tr ' ' '\n' | if [ -n "$nvml" ]; then awk -F: '{n += $NF} END {print n + 0}'; else sort; fi
  }
  if [ "$status" -ne 0 ] || [ "$(counts "$found")" != "$(counts "$gres")" ] ||
    printf '%s\n' "$answer" | grep -q 'Invalid GRES'; then
    printf '%s\n' "$answer" | tail -n 8 >&2
    return 1
  fi
}
answers() {
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    line=$(timeout -k 2 5 scontrol -o show node "$node" 2>/dev/null) && [ -n "$line" ] && return 0
    sleep 1
  done
  return 1
}

change() {
  if [ -n "$written" ]; then
    judged || reject "slurmd does not take the devices as they are to be written (slurmd -G)"
  fi
  printf '%s\n' "$written" | while read -r path text; do
    [ -n "$path" ] || continue
    printf '%s' "$text" | base64 -d | stage_file "$path" 644 || exit 1
    place_file "$path"
  done
  for path in $removed; do remove_file "$path"; done
  if [ -n "$controller" ]; then
    # It keeps its jobs; a reconfigure would leave counts and types as they were.
    systemctl reset-failed slurmctld 2>/dev/null || true
    systemctl restart slurmctld || { service_state slurmctld; reject "slurmctld does not start with these devices"; }
  fi
  [ -z "$restart" ] || proven
  [ -z "$controller" ] || answers || { service_state slurmctld; reject "slurmctld does not answer with these devices"; }
  if [ -n "$resume" ]; then
    # Whose devices are not there yet is refused again.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      answers || break
      case "$line" in *INVALID_REG*) sleep 1;; *) break;; esac
    done
    timeout -k 2 10 scontrol update "NodeName=$node" State=RESUME || echo "gpunode: $node is not given jobs again" >&2
  fi
}
proven() {
  systemctl reset-failed slurmd 2>/dev/null || true
  systemctl restart slurmd || { service_state slurmd; reject "slurmd does not start with these devices"; }
  # Its unit is simple: it counts as started before it has read anything.
  sleep 2
  systemctl is-active --quiet slurmd || { service_state slurmd; reject "slurmd does not stay up with these devices"; }
}

restore() {
  put_files_back || return 1
  for unit in slurmctld slurmd; do
    grep -qx "$unit" "$checkpoint/active" 2>/dev/null || continue
    { [ "$unit" = slurmd ] && [ -n "$restart" ]; } || { [ "$unit" = slurmctld ] && [ -n "$controller" ]; } || continue
    systemctl reset-failed "$unit" 2>/dev/null
    if systemctl restart "$unit"; then echo "gpunode: $unit runs again as before" >&2
    else
      echo "gpunode: $unit is DOWN: it does not come back with its old files either" >&2
      echo "gpunode: remedy: see \`journalctl -u $unit -n 50\` on the node, correct what it names, and run again" >&2
      not_to_blame
    fi
  done
  true
}
