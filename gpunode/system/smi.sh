# Asks nvidia-smi once for all parts of a question.
# A driver below $DRIVER_ROOT answers by its own nvidia-smi, with its own libnvidia-ml in front: so does the GPU
# Operator's validator ask it (NVIDIA/gpu-operator, cmd/nvidia-validator/main.go and internal/driver/root.go).
# Takes QUERY and REMAPPED, the columns of its two queries, LEAST, those of QUERY that every driver has: they are
# asked for alone where it does not know one of the others, for it refuses a query with such a column whole; and
# ALSO, `remapped` where the second is wanted, too.
# Sets $SMI: absent=yes (it is not installed), unloaded=yes (it was not asked), or of each query KEY.rc=STATUS and its
# lines as KEY=LINE, where KEY is gpu and remapped.
#
# Without its module nvidia-smi loads it: a reading would change the node. So there it is not asked.
# A wedged GPU hangs it, which is why it runs under a limit; 124 and 137 are the statuses of that.
# remapped_rows.* are fields of --query-remapped-rows alone: --query-gpu does not know them, and would refuse the whole
# query (the tables in the binaries of 535.261.03 and 550.163.01). Both run at the same time.
#
# shellcheck disable=SC2034  # The parts read $SMI.

smi=nvidia-smi; library=${LD_PRELOAD-}
if [ -n "$DRIVER_ROOT" ]; then
  smi=
  for file in "$DRIVER_ROOT"/nvidia-smi "$DRIVER_ROOT"/usr/bin/nvidia-smi "$DRIVER_ROOT"/usr/sbin/nvidia-smi \
    "$DRIVER_ROOT"/bin/nvidia-smi "$DRIVER_ROOT"/sbin/nvidia-smi; do
    [ ! -x "$file" ] || { smi=$file; break; }
  done
  for folder in '' /usr/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /lib64 /lib/x86_64-linux-gnu \
    /lib/aarch64-linux-gnu; do
    file=$DRIVER_ROOT$folder/libnvidia-ml.so.1
    [ ! -e "$file" ] || { library=$file; break; }
  done
fi
answer() {
  printed=$(LD_PRELOAD=$library timeout -k 2 15 "$smi" "--query-$1" --format=csv,noheader,nounits)
}
asked() {
  answer "$2"; status=$?
  case "$1$printed" in gpu*'is not a valid field to query'*) answer "gpu=$LEAST"; status=$?;; esac
  printf '%s.rc=%s\n' "$1" "$status"
  printed "$1" "$printed"
}
if ! command -v "$smi" > /dev/null; then SMI=absent=yes
elif [ ! -d /sys/module/nvidia ]; then SMI=unloaded=yes
else
  SMI=$(
    [ "$ALSO" != remapped ] || asked remapped "remapped-rows=$REMAPPED" &
    asked gpu "gpu=$QUERY"
    wait
  )
fi
# Prints minor= UUID NUMBER of each GPU's device.
minors() {
  for file in /proc/driver/nvidia/gpus/*/information; do
    [ -r "$file" ] || continue
    uuid=; minor=
    while read -r line; do
      case "$line" in
        'GPU UUID:'*) words "${line#*:}"; uuid=$WORDS;;
        'Device Minor:'*) words "${line#*:}"; minor=$WORDS;;
      esac
    done < "$file"
    printf 'minor=%s\t%s\n' "$uuid" "$minor"
  done
}
