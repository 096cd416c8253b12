# Prints the MPS daemons of NVIDIA's device plugin, which run in its pods: their sockets and logs are in a folder of the
# node. Takes ROOT, that folder; asks for nvidia-smi's answer ($SMI, gpunode/system/smi.sh). Where there is no daemon,
# no program is started. program=PATH; percentage=, limit= INDEX LIMIT, server= PID STATE, client= and daemon= with
# cells divided by tabs, the resource first (gpunode/components/mps/plugin.py); smi= lines of nvidia-smi's processes;
# mps_process= numbers of MPS processes, of any origin, where a GPU is in the mode that is meant for them.
#
# The sockets stay when a daemon ends: whether it lives is told by its answer alone. Its processes have the numbers of
# their pod, those of nvidia-smi the node's.

tab='	'
case "$SMI" in *Exclusive_Process*)
  # The kernel keeps 15 characters of a name.
  for file in /proc/[0-9]*/comm; do
    { read -r name < "$file"; } 2> /dev/null || continue
    [ "$name" != nvidia-cuda-mps ] || { number=${file#/proc/}; echo "mps_process=${number%/comm}"; }
  done;;
esac
set --
for socket in "$ROOT"/*/*/pipe/control; do [ ! -S "$socket" ] || set -- "$@" "${socket%/pipe/control}"; done
[ "$#" -gt 0 ] || exit 0
ask() { printf '%s\n' "$1" | CUDA_MPS_PIPE_DIRECTORY="$pipe" timeout -k 2 5 "$program" 2> /dev/null; }
if program=$(command -v nvidia-cuda-mps-control); then echo "program=$program"; fi
indices=
set -f; IFS=$NL
for line in $SMI; do
  case "$line" in gpu=[0-9]*,*) line=${line#gpu=}; indices="$indices ${line%%,*}";; esac
done
unset IFS; set +f

lives=
for folder in "$@"; do
  pipe=$folder/pipe; resource=${folder#"$ROOT"/}; answers=no
  if [ -n "$program" ] && list=$(ask get_server_list); then
    answers=yes; lives=yes
    answer=$(ask get_default_active_thread_percentage)
    printf 'percentage=%s\t%s\n' "$resource" "${answer##*"$NL"}"
    for index in $indices; do
      answer=$(ask "get_default_device_pinned_mem_limit $index")
      printf 'limit=%s\t%s\t%s\n' "$resource" "$index" "${answer##*"$NL"}"
    done
    for server in $list; do
      answer=$(ask "get_server_status $server")
      printf 'server=%s\t%s\t%s\n' "$resource" "$server" "${answer##*"$NL"}"
      for client in $(ask "get_client_list $server"); do
        case "$client" in [0-9]*) printf 'client=%s\t%s\n' "$resource" "$client";; esac
      done
    done
  fi
  log=$folder/log/control.log; read=
  [ "$answers" = no ] || [ ! -r "$log" ] || read=$(awk '/Starting control daemon/ {n = 0; last = ""; users = ""}
    /fatal exception|[Ff]ail|[Ee]rror|exited with status [1-9]/ {n++; last = $0; gsub(/\t/, " ", last)}
    /NEW CLIENT .* from user / {
      user = $0; sub(/.* from user /, "", user); sub(/[^0-9].*/, "", user)
      if (user != "" && index(" " users " ", " " user " ") == 0) users = users (users == "" ? "" : " ") user
    }
    END {print n + 0 "\t" last "\t" users}' "$log")
  printf 'daemon=%s\t%s\t%s\n' "$resource" "$answers" "${read:-0$tab$tab}"
done
# Of clients it says M+C. A GPU that hangs would hang it.
[ -z "$lives" ] || [ -z "$indices" ] || printed smi "$(timeout -k 2 15 nvidia-smi -q -d PIDS 2> /dev/null)"
