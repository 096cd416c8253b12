# Prints the version, the files and the answer of the running unit's CRI-O. It needs the unit crio.service
# (gpunode/system/unit.sh).
#
# CRI-O reads every file below its folder, whatever its name is.

daemon crio.service crio || exit 0
root=/etc/crio/crio.conf folder=/etc/crio/crio.conf.d before=
set -f; IFS=$NL
for word in $ARGUMENTS; do
  case "$before" in --config|-c) root=$word;; --config-dir|-d) folder=$word;; esac
  before=$word
  case "$word" in
    --config=*|-c=*) root=${word#*=};;
    --config-dir=*|-d=*) folder=${word#*=};;
    --default-runtime*|--runtimes*|--cgroup-manager*) echo "flag=${word%%=*}";;
  esac
done
unset IFS; set +f
echo "binary=$BINARY"; echo "root=$root"; echo "folder=$folder"
[ -x "$BINARY" ] || exit 0

printed crio "$("$BINARY" --version)"
set -f; IFS=$NL
for file in $root $(find "$folder" ! -type d); do
  [ ! -f "$file" ] || echo "file=$file $(file_base64 "$file")"
done
unset IFS; set +f
if [ "$ACTIVE" = active ]; then
  says=$(timeout -k 2 10 "$BINARY" status config || timeout -k 2 10 crio-status config)
  echo "running=$(printf %s "$says" | to_base64 "crio status config")"
fi
# The containers of podman have a conmon, too.
pods=0
set --
for process in /proc/[0-9]*/comm; do
  # A process that ended meanwhile cannot be read.
  read -r name < "$process" || continue
  case "$name" in conmon) set -- "$@" "${process%comm}cmdline";; conmonrs) pods=$((pods + 1));; esac
done
[ "$#" -eq 0 ] || pods=$((pods + $(grep -las /crio/exits "$@" | wc -l)))
echo "containers=$pods"
