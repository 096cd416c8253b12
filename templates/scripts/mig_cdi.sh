# A function, on top of mig_asking.sh. It takes $cdi and $mark: gpunode's own specification, and its first line.

# shellcheck disable=SC2154  # set by whoever sends it

# renew_cdi: a specification names each instance: one that gpunode had made is made anew
renew_cdi() {
  [ "$(head -n 1 "$cdi" 2>/dev/null)" = "$mark" ] || return 0
  if { printf '%s\n' "$mark"; timeout -k 5 60 nvidia-ctk cdi generate </dev/null; } > "$cdi.gpunode-new"; then
    # nvidia-ctk takes its time: one that somebody put there meanwhile is his.
    if [ "$(head -n 1 "$cdi" 2>/dev/null)" != "$mark" ]; then rm -f "$cdi.gpunode-new"; return 0; fi
    chmod 644 "$cdi.gpunode-new" && sync "$cdi.gpunode-new" && mv -fT "$cdi.gpunode-new" "$cdi"
  else
    rm -f "$cdi.gpunode-new"; fails "nvidia-ctk does not make the CDI specification $cdi anew"; return 1
  fi
}
