# Stop the agent of nodes that pull, and remove what it left: prints nothing. Takes $timer, $service and $gate, its
# units, and as arguments the paths.

# shellcheck disable=SC2154  # set by whoever sends it

systemctl disable --quiet --now "$timer" 2>/dev/null || true
for unit in "$service" "$gate"; do systemctl stop --quiet "$unit" 2>/dev/null || true; done
rm -rf -- "$@"
systemctl daemon-reload
systemctl reset-failed --quiet "$timer" "$service" "$gate" 2>/dev/null || true
rmdir --ignore-fail-on-non-empty /usr/local/lib/gpunode /etc/gpunode 2>/dev/null || true
