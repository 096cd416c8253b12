# Waits for the transaction $name of another run, 5 minutes at most.

# shellcheck disable=SC2154  # set by whoever sends it

other=$(systemctl show "gpunode-$name" -p Description | sed 's/^Description=//')
tries=0
while [ "$tries" -lt 600 ]; do
  case $(systemctl is-active "gpunode-$name" || true) in active|activating|deactivating|reloading) ;; *) exit 0;; esac
  tries=$((tries + 1)); sleep 0.5
done
echo "gpunode: the unit gpunode-$name of another run is still at work after 5 minutes ($other); nothing was changed" >&2
echo "gpunode: remedy: look at \`systemctl status gpunode-$name\` and run again when it has ended" >&2
exit 1
