# Prints a node's part in an IMEX domain: file=PATH BASE64 of its list of nodes and of gpunode's record of it, the unit
# (cells divided by tabs), when the list was written, two keys of config.cfg, what `nvidia-imex-ctl -N -j` says, and
# whether channel 0 is there. Takes NODES, RECORD, CONFIG and CHANNEL, paths; asks for the unit nvidia-imex.service.
#
# A node without IMEX starts no program here. A daemon that does not run is not asked.

# shellcheck disable=SC2153  # set by whoever sends it

for file in "$NODES" "$RECORD"; do [ ! -f "$file" ] || echo "file=$file $(file_base64 "$file")"; done
# By ctime: any mtime can be set.
[ ! -f "$NODES" ] || echo "written=$(stat -c %.6Z "$NODES")"
[ ! -c "$CHANNEL" ] || echo "channel0=yes"

unit nvidia-imex.service || exit 0
says LoadState; load=$SAID
case "$load" in loaded|masked) ;; *) exit 0;; esac
says ActiveState; active=$SAID
says UnitFileState; enabled=$SAID
started=; [ "$active" != active ] || { says ActiveEnterTimestamp; started=$SAID; }
printf 'unit=%s\t%s\t%s\t%s\n' "$load" "$active" "$enabled" "$started"
[ -f "$NODES" ] || [ "$active" = active ] || exit 0
[ ! -f "$CONFIG" ] || printed config "$(grep -E '^(IMEX_NODE_CONFIG_FILE|IMEX_CMD_ENABLED)=' "$CONFIG")"
[ "$active" = active ] || exit 0
# Nodes that are down take it some seconds.
echo "answer=$(timeout -k 2 20 nvidia-imex-ctl -N -j 2>&1 | to_base64 nvidia-imex-ctl)"
