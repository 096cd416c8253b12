"""Three ways to start a container on a node, as shell functions of one shape, for facts/smoke.py.

prepare: make an image of $root where one is needed. start NAME [MOUNT|VARIABLE|'']: run it as $runtime, asking for all
GPUs by a mount at $device, by the variable, or not. see NAME: what it sees. stop NAME: also what an earlier run left.
finish: take the image away.
"""

from __future__ import annotations

BY_DOCKER = r"""
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
"""

# A pod in the node's own network: it needs no CNI.
BY_CRICTL = r"""
in_cri() {
  socket=unix:///run/containerd/containerd.sock
  $limit crictl --runtime-endpoint "$socket" --image-endpoint "$socket" --timeout 50s "$@"
}
image=docker.io/library/gpunode-smoke:latest
prepare() {
  case "$(uname -m)" in aarch64) architecture=arm64;; *) architecture=amd64;; esac
  tar -C "$root" -cf "$work/layer.tar" .
  printf '{"architecture": "%s", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
    "$architecture" "$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)" > "$work/config.json"
  printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]' "$image" > "$work/manifest.json"
  tar -C "$work" -c manifest.json config.json layer.tar | $limit ctr --namespace k8s.io images import --no-unpack -
  tries=0; until in_cri inspecti "$image" || [ "$tries" -ge 20 ]; do tries=$((tries + 1)); sleep 0.2; done
}
start() {
  asks=
  case "$2" in
    variable) asks='"envs": [{"key": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],';;
    mount) asks='"mounts": [{"host_path": "/dev/null", "readonly": true, "container_path": "'$device'"}],';;
  esac
  cat > "$work/pod.json" <<POD
{"metadata": {"name": "$1", "uid": "$1", "namespace": "gpunode-smoke", "attempt": 1}, "log_directory": "$work",
  "linux": {$parent "security_context": {"namespace_options": {"network": 2}}}}
POD
  cat > "$work/container.json" <<CONTAINER
{"metadata": {"name": "$1"}, "image": {"image": "$image"}, "command": ["/bin/sleep", "300"], $asks
  "log_path": "$1.log", "linux": {}}
CONTAINER
  named=; [ "$runtime" = default ] || named="--runtime $runtime"
  pod=$(in_cri runp $named "$work/pod.json") &&
    in_cri create "$pod" "$work/container.json" "$work/pod.json" > "$work/$1.container" &&
    in_cri start "$(cat "$work/$1.container")" > /dev/null
}
see() { in_cri exec --sync "$(cat "$work/$1.container")" /bin/sh -c "$check"; }
stop() { for pod in $(in_cri pods --quiet --name "$1"); do in_cri stopp "$pod"; in_cri rmp --force "$pod"; done; }
finish() { in_cri rmi "$image"; }
"""

BY_CTR = r"""
in_ctr() { $limit ctr --namespace gpunode-smoke "$@"; }
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
"""
