# The transaction of MPS daemons, on top of mps_modes.sh. It takes units: $units (to be there), $gone, $restart, $told
# (told new settings); $read (PATH DIGEST), $written (PATH MODE BASE64), $removed (files); $modes (GPUs' indexes), $mode
# and $shown, as nvidia-smi takes and shows it; $script and $folder_of_settings.

# shellcheck disable=SC2154  # set by whoever sends it

instance() { case "$1" in nvidia-mps@*) name=${1#nvidia-mps@}; printf '%s' "${name%.service}";; esac; }
apply() {
  number=$(instance "$1")
  CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps${number:+/$number} "$script" "$folder_of_settings/${number:-node}.settings"
}
# Without an answer of the GPUs no daemon runs, whatever its settings.
blame() {
  [ -z "$(compute_modes)" ] || reject "$1"
  echo "gpunode: $1, and nvidia-smi does not answer" >&2
  echo "gpunode: remedy: see what \`nvidia-smi\` prints on the node, correct that, and run again" >&2; exit 1
}

save() {
  printf '%s\n' "$read" | while read -r path was; do [ -z "$path" ] || keep_file "$path" "$was" || exit 1; done
  compute_modes > "$checkpoint/modes" || true
  for unit in $units $gone; do
    ! systemctl is-active --quiet "$unit" || echo "$unit" >> "$checkpoint/active"
    ! systemctl is-enabled --quiet "$unit" 2>/dev/null || echo "$unit" >> "$checkpoint/enabled"
  done
}

change() {
  for unit in $gone; do
    # Its file may be gone: then systemd disables nothing, and stops only what still runs.
    case "$(systemctl show "$unit" -p ActiveState)" in *=inactive|*=failed) ;; *) systemctl stop "$unit";; esac
    systemctl disable --quiet "$unit" 2>/dev/null || ! systemctl cat "$unit" > /dev/null 2>&1 ||
      reject "$unit cannot be disabled"
  done
  printf '%s\n' "$written" | while read -r path permissions text; do
    [ -n "$path" ] || continue
    printf '%s' "$text" | base64 -d | stage_file "$path" "$permissions" || exit 1
    place_file "$path"
  done
  for path in $removed; do remove_file "$path"; done
  systemctl daemon-reload
  for unit in $units; do systemctl is-enabled --quiet "$unit" 2>/dev/null || systemctl enable --quiet "$unit"; done
  for unit in $restart; do
    systemctl reset-failed "$unit" 2>/dev/null || true
    systemctl restart "$unit" || { service_state "$unit"; blame "$unit does not start, or its settings are not taken"; }
  done
  for unit in $told; do apply "$unit" || blame "the daemon of $unit does not take its settings"; done
  for index in $modes; do
    set_mode "$index" "$mode" || case "$code" in
      4|9|12|15|18|124|137)
        echo "gpunode: GPU $index does not answer: nvidia-smi exits $code" >&2
        echo "gpunode: remedy: see what \`nvidia-smi\` prints on the node, correct that, and run again" >&2; exit 1;;
      *) reject "GPU $index does not take the compute mode $mode";;
    esac
  done
  # The unit goes on where a GPU does not take the mode, and nvidia-smi may call it a success.
  if [ -n "$units" ]; then
    other=$(compute_modes | awk -F', ' -v shown="$shown" '$2 != shown {print $1}' | tr '\n' ' ')
    [ -z "$other" ] || reject "the compute mode is not $shown on GPU $other"
  fi
}

# A unit that is stopped without its file would leave its GPUs as it had set them.
restore() {
  was_active() { grep -qx "$1" "$checkpoint/active" 2>/dev/null; }
  for unit in $units; do was_active "$unit" || systemctl stop "$unit" 2>/dev/null; done
  put_files_back || return 1
  systemctl daemon-reload
  for unit in $units $gone; do
    if grep -qx "$unit" "$checkpoint/enabled" 2>/dev/null; then systemctl enable --quiet "$unit"
    else systemctl disable --quiet "$unit" 2>/dev/null; fi
    was_active "$unit" || continue
    # Clients of a daemon that the change left alone feel nothing of its end either.
    case " $told " in *" $unit "*) ! apply "$unit" || continue;; esac
    case " $restart $gone " in *" $unit "*)
      systemctl reset-failed "$unit" 2>/dev/null; systemctl restart "$unit" ||
        { echo "gpunode: $unit is DOWN: it does not come back with its old settings either"
          echo "gpunode: remedy: see \`journalctl -u $unit -n 50\` on the node, correct what it names, and run" \
            "again"; not_to_blame; } >&2;;
    esac
  done
  for index in $modes; do
    before=$(awk -F', ' -v index_of="$index" '$1 == index_of {print toupper($2)}' "$checkpoint/modes")
    [ -z "$before" ] || set_mode "$index" "$before" > /dev/null
  done
  true
}
