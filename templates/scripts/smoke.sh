# Starts containers and prints what they see, by $by as smoke_choose.sh chose it; $reload: whether systemd is reloaded
# where other containers run (yes or no). On top of the functions of that way, of one shape each:
# prepare: make an image of $root where one is needed. start NAME [MOUNT|VARIABLE|'']: run it as $runtime, asking for
# all GPUs by a mount at $device, by the variable, or not. see NAME: what it sees. stop NAME: also what an earlier run
# left.
# finish: take the image away.

# shellcheck disable=SC2154  # set by whoever sends it

record() { echo "$1=$2"; echo "$1_said=$(printf '%s' "$3" | base64 -w0)"; }
trial() {
  stop "gpunode-smoke-$1" > /dev/null 2>&1
  said=$({ start "gpunode-smoke-$1" "$2" && see "gpunode-smoke-$1"; } 2>&1); record "$1" "$?" "$said"
}
prepare > /dev/null
trap 'for name in asking silent envvar; do stop "gpunode-smoke-$name"; done > /dev/null 2>&1
  finish > /dev/null 2>&1; rm -rf "$work"' EXIT
trial silent ''
[ -z "$forbidden" ] || trial envvar variable
trial asking "$way"
if [ "$reload" = yes ] || [ "$others" -eq 0 ]; then
  systemctl daemon-reload
  # systemd sets the rules of devices anew when it next has a moment.
  sleep 1
  said=$(see gpunode-smoke-asking 2>&1); record reloaded "$?" "$said"
fi
