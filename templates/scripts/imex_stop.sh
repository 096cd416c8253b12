# Ends IMEX before its list of nodes changes, or goes. Takes $unit; $disable, yes or nothing: whether it starts no more
# at boot; $nodes, and $record where both go: the list goes where it still says what the record says.

# shellcheck disable=SC2154  # set by whoever sends it

if [ -n "$disable" ]; then systemctl disable --quiet "$unit" 2>/dev/null || true; fi
case "$(systemctl show "$unit" -p ActiveState)" in *=inactive|*=failed) ;; *) systemctl stop "$unit";; esac
[ -n "$record" ] || exit 0
if [ -f "$nodes" ] && cmp -s "$nodes" "$record"; then rm -f "$nodes"
elif [ -f "$nodes" ]; then echo "gpunode: $nodes stays: somebody has changed it since" >&2; fi
rm -f "$record"
rmdir "${record%/*}" 2>/dev/null || true
