# Prints the running unit's CRI-O: its version, each of its files, and what the daemon says that it runs by. Asks for
# the unit crio.service (gpunode/system/unit.sh).
#
# A daemon that does not run is not asked. CRI-O reads every file below its folder, whatever its name is.

unit crio.service
says ExecStart
started=$SAID binary=
case "$SAID" in '{ path='*) binary=${SAID#'{ path='}; binary=${binary%%[ ;]*};; esac
[ -n "$binary" ] || binary=$(command -v crio)
[ -n "$binary" ] || exit 0

tell_service crio.service
for name in UnitFileState ActiveState; do says "$name"; [ -z "$SAID" ] || echo "$name=$SAID"; done
active=$SAID
says MainPID
# The process' own arguments, where it runs: the unit's may name variables.
case "$SAID" in
  ''|0) set -f; arguments=; for word in $started; do arguments=$arguments$word$NL; done; set +f;;
  *) arguments=$(tr '\0' '\n' < "/proc/$SAID/cmdline");;
esac
root=/etc/crio/crio.conf folder=/etc/crio/crio.conf.d before=
set -f; IFS=$NL
for word in $arguments; do
  case "$before" in --config|-c) root=$word;; --config-dir|-d) folder=$word;; esac
  before=$word
  case "$word" in
    --config=*|-c=*) root=${word#*=};;
    --config-dir=*|-d=*) folder=${word#*=};;
    --default-runtime*|--runtimes*|--cgroup-manager*) echo "flag=${word%%=*}";;
  esac
done
unset IFS; set +f
echo "binary=$binary"; echo "root=$root"; echo "folder=$folder"
[ -x "$binary" ] || exit 0

printed crio "$("$binary" --version)"
set -f; IFS=$NL
for file in $root $(find "$folder" ! -type d); do
  [ ! -f "$file" ] || echo "file=$file $(base64 -w0 "$file")"
done
unset IFS; set +f
if [ "$active" = active ]; then
  says=$(timeout -k 2 10 "$binary" status config || timeout -k 2 10 crio-status config)
  echo "running=$(printf %s "$says" | base64 -w0)"
fi
# podman's containers have a conmon, too.
pods=0
set --
for process in /proc/[0-9]*/comm; do
  # One that ended meanwhile cannot be read.
  read -r name < "$process" || continue
  case "$name" in conmon) set -- "$@" "${process%comm}cmdline";; conmonrs) pods=$((pods + 1));; esac
done
[ "$#" -eq 0 ] || pods=$((pods + $(grep -las /crio/exits "$@" | wc -l)))
echo "containers=$pods"
