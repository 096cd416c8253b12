# Asks nvidia-smi once for all parts of a question.
# Takes QUERY and REMAPPED, the columns of its two queries; and ALSO, `remapped` where the second is wanted, too.
# Sets $SMI: absent=yes (it is not installed), unloaded=yes (it was not asked), or of each query KEY.rc=STATUS and its
# lines as KEY=LINE, where KEY is gpu and remapped.
#
# Without its module nvidia-smi loads it: a reading would change the node. So there it is not asked.
# A wedged GPU hangs it, which is why it runs under a limit; 124 and 137 are the statuses of that.
# remapped_rows.* are fields of --query-remapped-rows alone: --query-gpu does not know them, and would refuse the whole
# query (the tables in the binaries of 535.261.03 and 550.163.01). Both run at the same time.
#
# shellcheck disable=SC2034  # The parts read $SMI.

asked() {
  printed=$(timeout -k 2 15 nvidia-smi "--query-$2" --format=csv,noheader,nounits)
  printf '%s.rc=%s\n' "$1" "$?"
  printed "$1" "$printed"
}
if ! command -v nvidia-smi > /dev/null; then SMI=absent=yes
elif [ ! -d /sys/module/nvidia ]; then SMI=unloaded=yes
else
  SMI=$(
    [ "$ALSO" != remapped ] || asked remapped "remapped-rows=$REMAPPED" &
    asked gpu "gpu=$QUERY"
    wait
  )
fi
