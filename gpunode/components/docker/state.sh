# Prints the client's version, and of the running unit's dockerd version, file, flags and answer. Asks for the unit
# docker.service (gpunode/system/unit.sh).
#
# A daemon that does not run is not asked: its socket would start it.

if command -v docker > /dev/null; then printed docker "$(timeout -k 2 10 docker --version)"; fi
unit docker.service
says ExecStart
started=$SAID binary=
case "$SAID" in '{ path='*) binary=${SAID#'{ path='}; binary=${binary%%[ ;]*};; esac
[ -n "$binary" ] || binary=$(command -v dockerd)
[ -n "$binary" ] || exit 0

tell_service docker.service
for name in UnitFileState ActiveState; do says "$name"; [ -z "$SAID" ] || echo "$name=$SAID"; done
active=$SAID
says MainPID
# The process' own arguments, where it runs: the unit's may name variables.
case "$SAID" in
  ''|0) set -f; arguments=; for word in $started; do arguments=$arguments$word$NL; done; set +f;;
  *) arguments=$(tr '\0' '\n' < "/proc/$SAID/cmdline");;
esac
config=/etc/docker/daemon.json before=
set -f; IFS=$NL
for word in $arguments; do
  [ "$before" != --config-file ] || config=$word
  case "$word" in --config-file=*) config=${word#*=};; esac
  before=$word
  for flag in default-runtime add-runtime exec-opt feature; do
    case "$word" in --${flag}s*) echo "flag=--${flag}s";; --"$flag"*) echo "flag=--$flag";; esac
  done
done
unset IFS; set +f
echo "binary=$binary"; echo "config=$config"
[ ! -x "$binary" ] || printed dockerd "$("$binary" --version)"
if [ -s "$config" ]; then echo "text=$(base64 -w0 "$config")"; elif [ -e "$config" ]; then echo empty=yes; fi
[ "$active" != active ] || echo "info=$(timeout -k 2 10 docker info --format '{{json .}}' | base64 -w0)"
