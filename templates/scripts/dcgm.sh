# Brings DCGM's services to what is desired. Takes stopped (units, for good), removed (files of gpunode's that go),
# restart (units that are started anew), and watch (not empty: the host engine watches the GPUs' health). It has
# systemd read the units' files in any case.

# shellcheck disable=SC2154  # set by whoever sends it

for unit in $stopped; do systemctl disable --quiet --now "$unit"; done
for file in $removed; do
  rm -f "$file"
  rmdir "${file%/*}" 2> /dev/null || :
done
systemctl daemon-reload
for unit in $restart; do
  systemctl restart "$unit" || {
    service_state "$unit"
    echo "gpunode: cause: $unit does not start" >&2
    echo "gpunode: remedy: see \`journalctl -u $unit -n 50\` on the node, correct what it names, and run again" >&2
    exit 1; }
done
[ -n "$watch" ] || exit 0
# The host engine does not answer at once.
for each in 1 2 3 4 5 6 7 8 9 10; do
  if said=$(dcgmi health -s a 2>&1); then exit 0; fi
  [ "$each" = 10 ] || sleep 1
done
echo "gpunode: dcgmi cannot have the GPUs' health watched: $said" >&2
echo "gpunode: remedy: see \`journalctl -u nvidia-dcgm.service -n 50\` on the node, correct what it names, and run" \
  "again" >&2
exit 1
