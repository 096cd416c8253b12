# Prints DCGM's packages, pods of an exporter in the cluster, gpunode's drop-ins, both units and by what the exporter
# runs, and what dcgmi says of the GPUs' health. Asks for the node's packages (facts/packages.py) and for the units
# nvidia-dcgm.service and nvidia-dcgm-exporter.service. Takes FILES, gpunode's drop-ins, ENGINE_FILE and EXPORTER_FILE;
# PODS, the folder of the kubelet's pods' logs.
#
# dcgmi is asked where gpunode has the health watched, and the host engine runs: no node pays for what nobody asked for.

# shellcheck disable=SC2153  # set by whoever sends it

set -f; IFS=$NL
for line in $PACKAGES; do
  package=${line#* }
  case "$package" in datacenter-gpu-manager*) echo "package=$package";; esac
  case "$package" in datacenter-gpu-manager-4-core\ *) ;; *) continue;; esac
  for program in /usr/bin/nv-hostengine$NL/usr/bin/dcgmi; do [ -x "$program" ] || echo "lost=$program"; done
done
unset IFS; set +f
# NAMESPACE_POD_UID: the kubelet keeps a folder of each pod that is on the node.
for pod in "$PODS"/*_*dcgm-exporter*_* "$PODS"/*_nvidia-dcgm-[!e]*_*; do
  [ -d "$pod" ] || continue
  pod=${pod##*/}; pod=${pod%_*}; echo "pod=${pod%%_*}/${pod#*_}"
done
for file in $FILES; do [ ! -f "$file" ] || echo "file=$file"; done

# told= is what gpunode's drop-in says, configured= what systemd makes of all, variable= by what the process runs.
if [ -f "$EXPORTER_FILE" ]; then
  while IFS= read -r line; do
    case "$line" in 'Environment="'*) line=${line#*\"}; printf 'told=%s\n' "${line%\"}";; esac
  done < "$EXPORTER_FILE"
fi
active=
for name in nvidia-dcgm nvidia-dcgm-exporter; do
  unit "$name.service" || continue
  says LoadState
  case "$SAID" in ''|not-found) continue;; esac
  echo "unit=$name.service"
  # What an idle unit of somebody else's said is in its log, and nobody's to read here.
  file=$ENGINE_FILE; [ "$name" = nvidia-dcgm ] || file=$EXPORTER_FILE
  [ ! -f "$file" ] || tell_service "$name.service"
  for property in ActiveState UnitFileState NeedDaemonReload; do says "$property"; echo "$property=$SAID"; done
  says ActiveState
  case "$name $SAID" in 'nvidia-dcgm active') active=yes;; esac
  [ "$name" = nvidia-dcgm-exporter ] || continue
  says ExecStart
  set -f
  for word in $SAID; do
    case "$word" in
      -a|-a=*|--address|--address=*|-r|-r=*|--remote-hostengine-info|--remote-hostengine-info=*|-c|-c=*|\
      --collect-interval|--collect-interval=*) echo "flag=${word%%=*}";;
    esac
  done
  set +f
  says Environment
  set -f
  for word in $SAID; do case "$word" in DCGM_*=*) printf 'configured=%s\n' "$word";; esac; done
  set +f
  says MainPID
  [ -f "$EXPORTER_FILE" ] || continue
  case "$SAID" in ''|0) continue;; esac
  set -f; IFS=$NL
  for word in $(tr '\0' '\n' < "/proc/$SAID/environ"); do
    case "$word" in DCGM_*=*) printf 'variable=%s\n' "$word";; esac
  done
  unset IFS; set +f
done

[ -n "$active" ] && [ -f "$ENGINE_FILE" ] && command -v dcgmi > /dev/null || exit 0
watched=
while IFS= read -r line; do case "$line" in *'dcgmi health -s'*) watched=yes;; esac; done < "$ENGINE_FILE"
[ -n "$watched" ] || exit 0
health=$(timeout -k 2 10 dcgmi health -c -j); echo "health.rc=$?"
echo "health=$(printf %s "$health" | to_base64 "dcgmi health")"
