# Functions. A change and its undoing are one unit, of which systemd lets one begin at a time: no second controller and
# no cut connection meets either halfway. They take $folder, $name, $by, who runs this, and $image: `yes` where an image
# is made.
# The unit writes to a file, never to the connection: a broken pipe would kill it between two steps. A shutdown waits
# for it to put things back, which takes longer than systemd's 90 s where DKMS has to build. A change that hangs is
# ended after three hours, longer than a CUDA toolkit takes over a slow line, and put back.
# in_unit WORD LOG COMMAND runs a command as the unit, and prints its log. It leaves $code, and $ran where the unit
# began.

# shellcheck disable=SC2154,SC2034  # set by whoever sends it; read by what stands beside it

umask 077
# Its unit opens it anew, which nothing else does: where this says the same again, no unit was begun.
log_is() { stat -c '%i %s %z' "$folder/$name.$1" 2>/dev/null || echo none; }
# It leaves $code, and $ran where the unit was begun.
in_unit() {
  code=0; ran=''; before=$(log_is "$2"); began_at=$(date +%s)
  # No systemd has booted the root directory of an image that is made, and nothing of it runs.
  if [ "$image" = yes ]; then
    /bin/sh -c "exec > $folder/$name.$2 2>&1; $3" || code=$?
    ran=yes; cat "$folder/$name.$2"
    return
  fi
  said=$(LC_ALL=C systemd-run --quiet --wait --collect --unit="gpunode-$name" --property=TimeoutStopSec=900 \
    --property=RuntimeMaxSec=10800 \
    --description="gpunode's transaction $name, $1 by $by on $(date -u '+%F %T') UTC" \
    /bin/sh -c "exec > $folder/$name.$2 2>&1; $3" 2>&1) || code=$?
  [ -z "$said" ] || printf '%s\n' "$said" >&2
  case "$code $said" in
    0*) ;;
    *already*)
      # Of two runs at once, both of which found nothing at work, systemd lets one begin. The log is that one's.
      other=$(systemctl show "gpunode-$name" -p Description | sed 's/^Description=//')
      echo "gpunode: cause: another run is at work on this node: $other; this one changed nothing" >&2
      echo "gpunode: remedy: run again when it has ended: \`systemctl status gpunode-$name\` tells" >&2
      exit "$code";;
  esac
  if [ "$code" -ne 0 ] && [ $(($(date +%s) - began_at)) -ge 10800 ]; then
    echo "gpunode: cause: a program of the unit gpunode-$name did not end within 3 hours, and was ended" >&2
    echo "gpunode: remedy: look in $folder/$name.$2 for what hung; correct it or restart the node, and run again" >&2
  fi
  # Where systemd-run itself failed there is none, or an older one.
  [ "$(log_is "$2")" = "$before" ] || { ran=yes; cat "$folder/$name.$2"; }
}
