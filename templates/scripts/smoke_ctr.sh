# Functions: containers by ctr; smoke.sh says what each does.

# shellcheck disable=SC2154  # set by whoever sends it

in_ctr() { $limit ctr --namespace gpunode-smoke "$@"; }
# shellcheck disable=SC2086
start() {
  set -- "$1" "$2"; asks=
  case "$2" in
    variable) asks='--env NVIDIA_VISIBLE_DEVICES=all';;
    mount) asks="--mount type=bind,src=/dev/null,dst=$device,options=rbind:ro";;
  esac
  in_ctr run --detach --runc-binary "$runtime" --runc-systemd-cgroup --cgroup "system.slice:gpunode:$1" $asks \
    --rootfs "$root" "$1" /bin/sleep 300
}
see() { in_ctr task exec --exec-id "see$(date +%N)" "$1" /bin/sh -c "$check"; }
stop() {
  in_ctr container info "$1" || return 0
  in_ctr task kill --signal KILL "$1"; tries=0
  until in_ctr container rm "$1" || [ "$tries" -ge 20 ]; do tries=$((tries + 1)); sleep 0.2; done
}
prepare() { :; }
finish() { in_ctr namespaces rm gpunode-smoke; }
