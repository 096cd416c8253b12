# Prints what nvidia-smi answers as log=BASE64, whether it is the lab's (simulated=yes), the kernel; and what became of
# a CUDA client, and of one by an MPS daemon that is started for it alone in a folder of its own: cuda=, mps=, client=.
# Takes SOURCE, the client as base64. Changes no setting of a GPU.

command -v nvidia-smi > /dev/null || exit 0
# Without its module nvidia-smi would load it.
[ -d /sys/module/nvidia ] || exit 0
echo "kernel=$(uname -r)"
simulated=
if nvidia-smi -h | grep -q SIMULATED; then simulated=yes; echo simulated=yes; fi
echo "log=$(timeout -k 2 60 nvidia-smi -q -x | base64 -w0)"

folder=$(mktemp -d) || exit 0
trap 'rm -rf "$folder"' EXIT
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc)
if [ -n "$simulated" ]; then echo 'cuda=left out: the GPU is SIMULATED'
elif [ -z "$nvcc" ]; then echo 'cuda=left out: there is no nvcc'
else
  printf '%s' "$SOURCE" | base64 -d > "$folder/client.cu"
  if timeout -k 2 120 "$nvcc" -o "$folder/client" "$folder/client.cu" > "$folder/nvcc.log" 2>&1; then
    echo "cuda=$(timeout -k 2 60 "$folder/client" | tail -n 1)"
  else echo "cuda=nvcc failed: $(tail -n 1 "$folder/nvcc.log")"; fi
fi
program=$(command -v nvidia-cuda-mps-control) || { echo 'mps=left out: there is no nvidia-cuda-mps-control'; exit 0; }
if pidof nvidia-cuda-mps-control > /dev/null; then echo 'mps=left out: a daemon runs here already'; exit 0; fi
export CUDA_MPS_PIPE_DIRECTORY="$folder/pipe" CUDA_MPS_LOG_DIRECTORY="$folder/log"
mkdir "$folder/pipe" "$folder/log"
ask() { printf '%s\n' "$1" | timeout -k 2 10 "$program" 2>&1 | tail -n 1; }
timeout -k 2 10 "$program" -d > /dev/null 2>&1 || { echo 'mps=the daemon does not start'; exit 0; }
echo "mps=$(ask get_default_active_thread_percentage)"
if [ -x "$folder/client" ]; then
  timeout -k 2 60 "$folder/client" > "$folder/said" 2>&1 &
  client=$!
  sleep 2
  server=$(ask get_server_list)
  case "$server" in
    *[!0-9]*|'') seen='by no server';;
    *) seen="by a server, $(ask "get_client_list $server" | grep -c '[0-9]') client";;
  esac
  wait "$client"
  echo "client=$(tail -n 1 "$folder/said"), $seen"
fi
ask quit > /dev/null
