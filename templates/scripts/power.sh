# Sets power limits, clocks and ECC of GPUs, and keeps the files that bring them back with the driver. It takes
# $tasks, lines ADDRESS KIND VALUE (power_apply.sh); $removed, paths; $unit and $unit_path; $note; $enable, yes where
# the unit is to start at boot; and on standard input lines PATH BASE64 of files. The GPUs come first: what they do not
# take is not to come at a boot.

# shellcheck disable=SC2154  # set by whoever sends it, $why by power_apply.sh

written=$(standard_input)
newline='
'
failed=
rest=$tasks$newline
while [ -n "$rest" ]; do
  task=${rest%%"$newline"*}; rest=${rest#*"$newline"}
  [ -n "$task" ] || continue
  # shellcheck disable=SC2086  # Three words.
  set -- $task
  if told "$@"; then echo "gpunode: GPU $1: $2 $3"; else echo "gpunode: $why" >&2; failed=yes; fi
done
if [ -n "$failed" ]; then
  echo "gpunode: a GPU does not take what the settings ask (power.*); nothing was kept for the next boot" >&2
  echo "gpunode: remedy: set what this GPU takes (\`nvidia-smi -q -d POWER,CLOCK,SUPPORTED_CLOCKS,ECC\` on the node)," \
    "or leave it out; run again" >&2
  exit 1
fi
if [ -n "$removed" ]; then
  [ ! -e "$unit_path" ] || systemctl disable --now --quiet "$unit" || true
  # shellcheck disable=SC2086  # They are paths without blanks.
  rm -f $removed "$note"
fi
printf '%s\n' "$written" | while read -r path text; do
  [ -n "$path" ] || continue
  mkdir -p "${path%/*}"
  printf '%s' "$text" | base64 -d > "$path.gpunode-new"
  chown root:root "$path.gpunode-new"; chmod 644 "$path.gpunode-new"
  mv -fT "$path.gpunode-new" "$path"
done
[ -z "$removed$written" ] || systemctl daemon-reload
[ -z "$enable" ] || systemctl enable --quiet "$unit"
