# Functions: containers by crictl; smoke.sh says what each does. A pod in the node's own network: it needs no CNI.

# shellcheck disable=SC2154  # set by whoever sends it

# Without the node's crictl.yaml, by which crictl may pull images and print debug lines. `exec --sync` prints nothing of
# a command that fails: $check has to end with 0.
in_cri() {
  socket=unix:///run/containerd/containerd.sock
  $limit crictl --config /dev/null --runtime-endpoint "$socket" --image-endpoint "$socket" --timeout 50s "$@"
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
# shellcheck disable=SC2086
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
