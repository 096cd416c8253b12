# Prints kubelet=VERSION; of one that runs its arguments, how many pods it has, when it started, and in base64 the texts
# that it read, each with when it was written: of --config, then of the drop-ins of --config-dir, in its order; and
# where gpunode started it, its process (PID START) and what $NOTED has of that. Asks for the unit kubelet.service
# (gpunode/system/unit.sh).

if command -v kubelet > /dev/null; then printed kubelet "$(timeout -k 2 10 kubelet --version)"; fi
unit kubelet.service || exit 0
says MainPID
process=$SAID
case "$process" in ''|0) exit 0;; esac
arguments=$(tr '\0' '\n' < "/proc/$process/cmdline")
config='' folder='' root=/var/lib/kubelet before=''
set -f; IFS=$NL
for word in $arguments; do
  case "$before" in --config) config=$word;; --config-dir) folder=$word;; --root-dir) root=$word;; esac
  case "$word" in
    --config=*) config=${word#*=};; --config-dir=*) folder=${word#*=};; --root-dir=*) root=${word#*=};;
  esac
  before=$word
done
unset IFS; set +f
printed argument "$arguments"
says ActiveEnterTimestamp; echo "started=$SAID"
pods=0
for pod in "$root"/pods/*; do [ ! -d "$pod" ] || pods=$((pods + 1)); done
echo "pods=$pods"
if [ -r "$NOTED" ] && read -r stat < "/proc/$process/stat"; then
  # shellcheck disable=SC2086  # words of numbers, behind a name that may hold anything
  set -- ${stat##*) }
  echo "process=$process ${20}"
  while IFS= read -r line; do echo "noted=$line"; done < "$NOTED"
fi
read_file() { echo "file=$1 $(file_base64 "$1")"; echo "written=$(stat -L -c %.6Z "$1")"; }
[ -z "$config" ] || read_file "$config"
[ -n "$folder" ] || exit 0
for file in "$folder"/*.conf; do [ ! -f "$file" ] || read_file "$file"; done
