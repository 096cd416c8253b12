# Functions: containers by docker; smoke.sh says what each does.

# shellcheck disable=SC2154  # set by whoever sends it

# shellcheck disable=SC2086
start() {
  set -- "$1" "$2"; asks=
  case "$2" in
    variable) asks='--env NVIDIA_VISIBLE_DEVICES=all';;
    mount) asks="--volume /dev/null:$device";;
  esac
  named=; [ "$runtime" = default ] || named="--runtime $runtime"
  $limit docker run --detach --name "$1" --network none $named $asks gpunode-smoke /bin/sleep 300 > /dev/null
}
see() { $limit docker exec "$1" /bin/sh -c "$check"; }
stop() { $limit docker rm --force "$1"; }
prepare() { tar -C "$root" -c . | $limit docker import - gpunode-smoke; }
finish() { $limit docker rmi --force gpunode-smoke; }
