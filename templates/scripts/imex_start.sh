# Starts IMEX, now and at boot, and waits until it is ready, and then a while for its domain, which may lack nodes that
# come later: the verdict names them. Takes $unit, $ready and $up, IMEX' words; $ready_seconds and $domain_seconds.

# shellcheck disable=SC2154  # set by whoever sends it

systemctl daemon-reload
systemctl reset-failed "$unit" 2>/dev/null || true
systemctl enable --quiet "$unit"
systemctl start "$unit" || {
  service_state "$unit"
  echo "gpunode: cause: $unit does not start: its words stand above, more in /var/log/nvidia-imex.log" >&2
  echo "gpunode: remedy: see that its version is the loaded driver's, and the node's address in the list; run again" >&2
  exit 1; }
said=; waited=0
while [ "$waited" -lt "$ready_seconds" ]; do
  said=$(timeout -k 2 5 nvidia-imex-ctl -q 2>&1) || true
  [ "$said" != "$ready" ] || break
  # It says nothing by itself where config.cfg does not let it.
  systemctl is-active --quiet "$unit" || break
  sleep 1; waited=$((waited + 1))
done
systemctl is-active --quiet "$unit" || {
  service_state "$unit"
  echo "gpunode: $unit does not stay up: its words stand above, more in /var/log/nvidia-imex.log" >&2
  echo "gpunode: remedy: see that its version is the loaded driver's, and the node's address in the list; run again" >&2
  exit 1; }
[ "$said" = "$ready" ] || { echo "gpunode: caution: nvidia-imex-ctl says after $waited s: $said" >&2; exit 0; }
waited=0
while [ "$waited" -lt "$domain_seconds" ]; do
  # Of all that it prints, the domain's status alone has this word.
  case "$(timeout -k 2 10 nvidia-imex-ctl -N -j 2>/dev/null)" in *"\"$up\""*) exit 0;; esac
  sleep 1; waited=$((waited + 1))
done
echo "gpunode: caution: the domain is not $up after $waited s; the verdict names who is missing" >&2
