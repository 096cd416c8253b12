# Has systemd enable or start a unit, on top of service_state.sh. It takes $unit and $steps, systemctl's words.

# shellcheck disable=SC2154  # set by whoever sends it

# A unit that hit its start limit would refuse, whatever the cause that has been corrected since.
systemctl reset-failed "$unit" 2>/dev/null || true
systemctl daemon-reload
for step in $steps; do
  systemctl "$step" "$unit" || {
    [ "$step" = enable ] || service_state "$unit"
    echo "gpunode: cause: systemd does not $step $unit" >&2
    echo "gpunode: remedy: see \`journalctl -u $unit -n 50\` on the node, correct what it names, and run again" >&2
    exit 1; }
done
