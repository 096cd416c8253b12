# The transaction of kube-scheduler's configuration file and static manifest. It takes $manifest, $path (the file,
# empty:
# none), $text and $written (both base64), $option, $health, $timeout, $own, $logs, $proc, and what was read of the
# files.
# The kubelet reads every file of the manifest's folder but those whose names begin with a dot.

# shellcheck disable=SC2154,SC2034  # set by whoever sends it; read by what stands beside it

hidden=yes
option_of() {
  tr '\0' '\n' 2>/dev/null < "$proc/$1/cmdline" | grep -x -- "--config=$own/scheduler-[0-9a-f]*.yaml" || true
}
running() {
  for comm in "$proc"/[0-9]*/comm; do
    program=; read -r program 2>/dev/null < "$comm" || continue
    [ "$program" = kube-scheduler ] || continue
    number=${comm%/comm}; number=${number##*/}
    if [ "$1" = any ] || [ "$(option_of "$number")" = "$1" ]; then echo "$number"; fi
  done
}
answers() {
  if command -v curl >/dev/null; then curl -ksf --noproxy '*' --max-time 5 "$health" >/dev/null
  elif command -v wget >/dev/null; then wget -q --no-proxy --no-check-certificate -T 5 -O /dev/null "$health"; fi
}
# By the seconds since the boot: the clock may be set meanwhile.
now() { read -r up _ < "$proc/uptime"; echo "${up%%.*}"; }
well() {
  end=$(($(now) + timeout))
  while [ "$(now)" -lt "$end" ]; do
    found=$(running "$1")
    if [ -n "$found" ] && answers; then
      # One that ends right after it has answered is none that runs.
      sleep 3
      if [ "$(running "$1")" = "$found" ] && answers; then return 0; fi
    fi
    [ "$(systemctl is-system-running || true)" != stopping ] || exit 143
    sleep 1
  done
  return 1
}
# shellcheck disable=SC2012
words() {
  log=$(ls -t "$logs"/kube-system_kube-scheduler-*/kube-scheduler/*.log 2>/dev/null | head -n 1) || true
  [ -n "$log" ] || return 0
  # Why it ends stands in a line of its own, or in one of the kind F; all else is the log of its work.
  said=$(grep -v '^[IWE][0-9]' "$log" | grep -v '^ *$' | tail -n 1) || true
  [ -n "$said" ] || said=$(tail -n 1 "$log") || true
  printf '%s' "$said"
}

# shellcheck disable=SC2013
save() {
  keep_file "$manifest" "$manifest_read" || exit 1
  [ -z "$path" ] || keep_file "$path" "$path_read" || exit 1
  running any > "$checkpoint/processes"
  for number in $(cat "$checkpoint/processes"); do option_of "$number"; done | head -n 1 > "$checkpoint/by"
}

change() {
  if [ ! -s "$checkpoint/processes" ]; then
    echo "gpunode: no kube-scheduler runs on this host; nothing was changed" >&2
    echo "gpunode: remedy: see why (\`crictl ps -a --name kube-scheduler\` on the host), start it, and run again" >&2
    exit 1
  fi
  if [ -n "$path" ]; then
    printf '%s' "$text" | base64 -d | stage_file "$path" 644
    place_file "$path"
  fi
  printf '%s' "$written" | base64 -d | stage_file "$manifest" -
  place_file "$manifest"
  if ! well "$option"; then
    if [ "$(running any)" = "$(cat "$checkpoint/processes")" ]; then
      echo "gpunode: the kubelet did not take the new manifest in $timeout s: the old scheduler runs on" >&2
      echo "gpunode: remedy: see that the kubelet runs, and that $manifest is in the folder that it reads" \
        "(staticPodPath)" >&2
      exit 1
    fi
    reject "kube-scheduler is not well in $timeout s with the extender: $(words)"
  fi
}

# A manifest that somebody wrote since then is his, and runs: an upgrade of the cluster must not be taken back. This
# very run may change it next, so that it is kept besides.
restore() {
  if is_somebodys "$manifest"; then
    keep_lost "$manifest" || return 1
    rm -f "$(beside_file "$manifest" new)"
    [ -z "$path" ] || rm -f "$(beside_file "$path" new)"
    echo "gpunode: $manifest is left as it is" >&2
  else
    same=''; ! is_as_kept "$manifest" || same=yes
    put_file_back "$manifest" || return 1
    [ -n "$same" ] || well "$(cat "$checkpoint/by")" ||
      { echo "gpunode: kube-scheduler is DOWN: the old manifest is back, and no scheduler is well by it in $timeout s"
        echo "gpunode: remedy: see \`crictl ps -a --name kube-scheduler\` and its logs on the host; run again"
        not_to_blame; } >&2
    [ -z "$path" ] || put_file_back "$path" || return 1
  fi
  true
}

afterwards() {
  for file in "$own"/scheduler-*.yaml; do [ "$file" = "$path" ] || rm -f "$file"; done
}
