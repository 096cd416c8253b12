# Has a program check its new configuration before the node is drained for a restart; it changes nothing. It follows the
# program's functions (operations/runtime.py) and takes $program, $config, $files and $staged as runtime.sh does.

# shellcheck disable=SC2154  # operations/runtime.py sends them

umask 077
checkpoint=$(mktemp -d)
trap 'rm -rf "$checkpoint"' EXIT
trap 'exit 143' HUP INT TERM PIPE
new=$config
if [ -n "$files" ]; then
  new=$checkpoint/staged
  printf '%s' "$staged" | base64 -d > "$new"
  # The staged root file imports a new drop-in by the name that it will be staged by.
  printf '%s\n' "$files" | while read -r path encoded _; do
    if [ -z "$path" ] || [ "$encoded" = - ]; then continue; fi
    printf '%s' "$encoded" | base64 -d > "$checkpoint/${path##*/}"
    sed -i "s|$path\.gpunode-new|$checkpoint/${path##*/}|" "$new"
  done
fi
[ -e "$new" ] || exit 0
check "$new" || {
  echo "gpunode: $program refuses the new configuration${refused:+: $refused}; nothing was changed" >&2; exit 1; }
