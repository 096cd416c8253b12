# What gpunode set up for MIG goes, the instances stay: the unit $name with its files $unit, $script and $record.

# shellcheck disable=SC2154  # set by whoever sends it

systemctl disable --quiet "$name" 2>/dev/null || true
rm -f "$unit" "$script" "$record"
systemctl daemon-reload
systemctl reset-failed "$name" 2>/dev/null || true
