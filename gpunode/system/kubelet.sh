# Prints kubelet=VERSION; of one that runs its arguments, and in base64 the texts that it read: of --config, then of the
# drop-ins of --config-dir, in its order. Asks for the unit kubelet.service (gpunode/system/unit.sh).

if command -v kubelet > /dev/null; then printed kubelet "$(timeout -k 2 10 kubelet --version)"; fi
unit kubelet.service || exit 0
says MainPID
case "$SAID" in ''|0) exit 0;; esac
arguments=$(tr '\0' '\n' < "/proc/$SAID/cmdline")
config='' folder='' before=''
set -f; IFS=$NL
for word in $arguments; do
  case "$before" in --config) config=$word;; --config-dir) folder=$word;; esac
  case "$word" in --config=*) config=${word#*=};; --config-dir=*) folder=${word#*=};; esac
  before=$word
done
unset IFS; set +f
printed argument "$arguments"
[ -z "$config" ] || echo "file=$config $(base64 -w0 "$config")"
[ -n "$folder" ] || exit 0
for file in "$folder"/*.conf; do [ ! -f "$file" ] || echo "file=$file $(base64 -w0 "$file")"; done
