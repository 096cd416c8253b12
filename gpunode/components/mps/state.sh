# Prints the daemons of gpunode's units; whether one lives is told by its answer alone, for its sockets stay behind.
# Takes FOLDER of their settings; FILES, the paths of gpunode's own; asks for the units nvidia-mps.service and
# nvidia-mps@*.service as far as systemd has loaded them (gpunode/system/unit.sh). file=PATH SHA-256, foreign=PATH,
# reading=UNIT QUESTION ANSWER and daemon= with cells divided by tabs (gpunode/components/mps/state.py).
#
# What a daemon is asked are the questions of the file that its unit applies.

if program=$(command -v nvidia-cuda-mps-control); then echo "program=$program"; fi
tab='	'
# begins FILE START TEXT: whether a line of a file begins with START, and has TEXT behind it.
begins() {
  [ -f "$1" ] && [ -r "$1" ] || return 1
  while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in "$2"*"$3"*) return 0;; esac
  done < "$1"
  return 1
}
ours() { begins "$1" '# Written by gpunode' ''; }

set --
for file in $FILES; do
  if ours "$file"; then set -- "$@" "$file"; elif [ -e "$file" ]; then echo "foreign=$file"; fi
done
own=" $* "; names=' '
for file in "$FOLDER"/*.settings; do
  [ -f "$file" ] || continue
  set -- "$@" "$file"; name=${file##*/}; names="$names${name%.settings} "
done
# By their settings and by systemd: a daemon may run whose settings' file is gone.
set -f; IFS=$NL
for line in $SHOWN; do
  case "$line" in
    Names=nvidia-mps.service) name=node;;
    Names=nvidia-mps@*.service) name=${line#Names=nvidia-mps@}; name=${name%%.service*};;
    *) continue;;
  esac
  case "$names" in *" $name "*) ;; *) names="$names$name ";; esac
done
unset IFS; set +f
digests=
if [ "$#" -gt 0 ]; then
  digests=$NL$(sha256sum -- "$@")$NL
  set -f; IFS=$NL
  for line in $digests; do
    file=${line#*  }
    case "$own" in *" $file "*) echo "file=$file ${line%% *}";; esac
  done
  unset IFS; set +f
fi

set --
for name in $names; do
  case "$name" in node) name=nvidia-mps.service;; *[!0-9]*) continue;; *) name=nvidia-mps@$name.service;; esac
  unit "$name" || set -- "$@" "$name"
done
# What has settings and was not loaded.
[ "$#" -eq 0 ] || show_units "$@"

ask() { printf '%s\n' "$1" | CUDA_MPS_PIPE_DIRECTORY="$pipe" timeout -k 2 5 "$program" 2> /dev/null; }
known=
for name in $names; do
  case "$name" in node) service=nvidia-mps.service;; *[!0-9]*) continue;; *) service=nvidia-mps@$name.service;; esac
  settings=$FOLDER/$name.settings
  unit "$service"
  says FragmentPath; fragment=$SAID
  of_us=; ! ours "$fragment" || of_us=yes
  [ -f "$settings" ] || [ -n "$of_us" ] || continue
  says ActiveState; active=$SAID
  says UnitFileState; enabled=$SAID
  says ActiveEnterTimestamp; started=$SAID
  says Environment; pipe=; log=
  set -f
  for word in $SAID; do
    case "$word" in
      CUDA_MPS_PIPE_DIRECTORY=*) pipe=${word#*=};;
      CUDA_MPS_LOG_DIRECTORY=*) log=${word#*=};;
    esac
  done
  set +f
  # Whoever does not answer may have clients all the same.
  answers=no; servers=0; clients=0; [ "$active" != active ] || clients='?'
  if [ -n "$program" ] && [ -n "$pipe" ] && list=$(ask get_server_list); then
    answers=yes; clients=0
    for server in $list; do
      servers=$((servers + 1))
      for client in $(ask "get_client_list $server"); do case "$client" in [0-9]*) clients=$((clients + 1));; esac; done
    done
    [ ! -f "$settings" ] || while IFS="$tab" read -r command question answer; do
      case "$command" in ''|'#'*) continue;; esac
      answer=$(ask "$question")
      printf 'reading=%s\t%s\t%s\n' "$service" "$question" "${answer##*"$NL"}"
    done < "$settings"
  fi
  written=
  if [ "$active" != active ] || [ ! -f "$fragment" ]; then started=; fi
  if [ -n "$started" ]; then
    # By ctime: any mtime can be set. Those of single GPUs have one unit between them.
    [ "$fragment" = "$known" ] || { known=$fragment; changed=$(stat -c %.6Z "$fragment"); }
    written=$changed
  fi
  exclusive=
  if [ -n "$of_us" ]; then
    exclusive=no; ! begins "$fragment" ExecStartPre= EXCLUSIVE_PROCESS || exclusive=yes
  fi
  digest=; case "$digests" in *"  $settings$NL"*) digest=${digests%%"  $settings$NL"*}; digest=${digest##*"$NL"};; esac
  failures=
  [ ! -r "$log/control.log" ] || failures=$(awk '/Starting control daemon/ {n = 0; last = ""}
    /[Ff]ail|[Ee]rror|exited with status [1-9]/ {n++; last = $0; gsub(/\t/, " ", last)}
    END {print n + 0 "\t" last}' "$log/control.log")
  printf 'daemon=%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$service" "$active" "$enabled" "$answers" "$started" \
    "$written" "$exclusive" "$digest" "$servers" "$clients" "${failures:-0$tab}"
done
