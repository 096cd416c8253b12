# Prints the client's version, and the version, file, flags and answer of the running unit's dockerd. It needs the unit
# docker.service (gpunode/system/unit.sh).
#
# Nothing is sent to a daemon that does not run: its socket would start it.

if command -v docker > /dev/null; then printed docker "$(timeout -k 2 10 docker --version)"; fi
daemon docker.service dockerd || exit 0
config=/etc/docker/daemon.json before=
set -f; IFS=$NL
for word in $ARGUMENTS; do
  [ "$before" != --config-file ] || config=$word
  case "$word" in --config-file=*) config=${word#*=};; esac
  before=$word
  for flag in default-runtime add-runtime exec-opt feature; do
    case "$word" in --${flag}s*) echo "flag=--${flag}s";; --"$flag"*) echo "flag=--$flag";; esac
  done
done
unset IFS; set +f
echo "binary=$BINARY"; echo "config=$config"
[ ! -x "$BINARY" ] || printed dockerd "$("$BINARY" --version)"
if [ -f "$config" ] && [ ! -s "$config" ]; then echo empty=yes
elif [ -e "$config" ]; then echo "text=$(file_base64 "$config")"; fi
[ "$ACTIVE" != active ] || echo "info=$(timeout -k 2 10 docker info --format '{{json .}}' | to_base64 'docker info')"
