# Prints what nvidia-smi answers as log=BASE64, whether it is the lab's (simulated=yes), the kernel; and what became of
# a CUDA client, and of one by an MPS daemon that is started for it alone in a folder of its own: cuda=, mps=, client=.
# The daemon is told what the device plugin tells its own with 10 replicas, and its folders lie as the plugin's do: what
# gpunode reads of it while the client runs is plugin=BASE64. labels=SHARING BASE64: what GPU feature discovery
# writes where the GPUs are not shared, in 4 slices, and by MPS with 10 replicas.
# Takes SOURCE, the client as base64, and READING, gpunode's own question, where @ROOT@ stands for the folder.
# Changes no setting of a GPU.

command -v nvidia-smi > /dev/null || exit 0
# Without its module nvidia-smi would load it.
[ -d /sys/module/nvidia ] || exit 0
limited() { timeout -k 2 60 nvidia-smi "$@"; }
echo "kernel=$(uname -r)"
simulated=
if limited -h | grep -q SIMULATED; then simulated=yes; echo simulated=yes; fi
echo "log=$(limited -q -x | base64 -w0)"

# A blank would end the words of its path.
folder=$(TMPDIR=/tmp mktemp -d) || exit 0
started=
ask() { printf '%s\n' "$1" | timeout -k 2 10 "$program" 2>&1 | tail -n 1; }
# Nothing breaks it off between the daemon and the folder.
ended() { trap '' HUP INT TERM PIPE; [ -z "$started" ] || ask quit > /dev/null; rm -rf "$folder"; }
trap ended EXIT
# Else sh ends without a word to the daemon: by the signal, or since nobody reads any more what it says.
trap 'exit 1' HUP INT TERM PIPE
if [ -n "$simulated" ]; then echo 'cuda=left out: the GPU is SIMULATED'
elif ! command -v cc > /dev/null; then echo 'cuda=left out: there is no C compiler (cc)'
else
  printf '%s' "$SOURCE" | base64 -d > "$folder/client.c"
  if timeout -k 2 120 cc -std=gnu11 -O1 -o "$folder/client" "$folder/client.c" -ldl > "$folder/cc.log" 2>&1; then
    echo "cuda=$(timeout -k 2 60 "$folder/client" | tail -n 1)"
  else echo "cuda=cc failed: $(tail -n 1 "$folder/cc.log")"; fi
fi
# discover WAY [CONFIGURATION]: what it writes where GPUs are shared so.
discover() {
  timeout -k 2 60 gpu-feature-discovery --oneshot --no-timestamp --use-node-feature-api=false ${2:+--config-file="$2"} \
    --output-file="$folder/labels" > "$folder/discovery.log" 2>&1 || return
  echo "labels=$1 $(base64 -w0 "$folder/labels")"
}
shares() {
  printf 'version: v1\nsharing:\n  %s:\n    resources:\n    - {name: nvidia.com/gpu, replicas: %s}\n' "$1" "$2"
}
if ! command -v gpu-feature-discovery > /dev/null; then echo 'discovery=left out: there is no gpu-feature-discovery'
else
  shares timeSlicing 4 > "$folder/slices"; shares mps 10 > "$folder/mps"
  if discover none && discover time-slicing "$folder/slices" && discover mps "$folder/mps"; then echo 'discovery=asked'
  else echo "discovery=failed: $(tail -n 1 "$folder/discovery.log")"; fi
fi
program=$(command -v nvidia-cuda-mps-control) || { echo 'mps=left out: there is no nvidia-cuda-mps-control'; exit 0; }
if pidof nvidia-cuda-mps-control > /dev/null; then echo 'mps=left out: a daemon runs here already'; exit 0; fi
of=$folder/nvidia.com/gpu
export CUDA_MPS_PIPE_DIRECTORY="$of/pipe" CUDA_MPS_LOG_DIRECTORY="$of/log"
mkdir -p "$of/pipe" "$of/log"
started=yes
timeout -k 2 10 "$program" -d > /dev/null 2>&1 || { started=; echo 'mps=the daemon does not start'; exit 0; }
echo "mps=$(ask get_default_active_thread_percentage)"
for gpu in $(limited --query-gpu=index,memory.total --format=csv,noheader,nounits | tr -d ' '); do
  # One that shares the machine's memory has none of its own.
  case "${gpu#*,}" in *[!0-9]*|'') continue;; esac
  ask "set_default_device_pinned_mem_limit ${gpu%,*} $((${gpu#*,} / 10))M" > /dev/null
done
ask 'set_default_active_thread_percentage 10' > /dev/null
[ -x "$folder/client" ] || exit 0
# It stays while the file is there.
: > "$folder/stay"
timeout -k 2 120 "$folder/client" "$folder/stay" > "$folder/said" 2>&1 &
client=$!; seen='by no server'; tries=0
while [ "$seen" != 'by a server, 1 client' ] && [ "$tries" -lt 60 ] && kill -0 "$client"; do
  sleep 0.5; tries=$((tries + 1))
  server=$(ask get_server_list)
  case "$server" in
    *[!0-9]*|'') seen='by no server';;
    *) seen="by a server, $(ask "get_client_list $server" | grep -c '[0-9]') client";;
  esac
done 2> /dev/null
echo "plugin=$(printf '%s' "$READING" | base64 -d | sed "s,@ROOT@,$folder," | sh | base64 -w0)"
rm "$folder/stay"; wait "$client"
echo "client=$(tail -n 1 "$folder/said"), $seen"
