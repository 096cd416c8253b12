# Chooses how a test container is started, and what is asked of the runtime. It takes $CONFIG, the toolkit's
# config.toml, and $ACCEPTED, its key that says whether the variable is taken. On top of smoke_crictl.sh, with
# nvidia-smi's path and answer of gpunode/system/smi.sh ($smi, $library, $SMI).
# It leaves $by (docker, crictl, ctr or empty) and $runtime; $way by which a container asks for GPUs, $forbidden where
# the variable is refused, $device, the folder that is mounted to ask; $others, how many containers run already.

# shellcheck disable=SC2034,SC2154  # read, or set, by what stands beside it

limit='timeout -k 5 60'
# shellcheck disable=SC2009
others=$(ps -eo comm= | grep -c '^containerd-shim')
for node in /dev/nvidia[0-9]* /dev/nvidiactl; do [ -c "$node" ] && echo "device=$node"; done
# What the node has of what the toolkit hands in, and of which capabilities of the driver config.toml lets it.
case "$SMI" in absent*|unloaded*) ;; *)
  printed node "$(LD_PRELOAD=$library timeout -k 2 15 "$smi" -L)"
  read -r first < "$(command -v "$smi")"
  case "$first" in '#!'*) echo script=yes;; esac;;
esac
for folder in /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /usr/lib /lib64 /lib; do
  [ ! -s "$DRIVER_ROOT$folder/libcuda.so.1" ] || { echo "cuda=$DRIVER_ROOT$folder/libcuda.so.1"; break; }
done
# shellcheck disable=SC2153
sed -n 's/^supported-driver-capabilities *= *["'"'"']\([^"'"'"']*\).*/capabilities=\1/p' "$CONFIG"
# shellcheck disable=SC2153
value() { sed -n "s/^$1 *= *\([a-z]*\).*/\1/p" "$CONFIG"; }
way=variable; forbidden=
[ "$(value "$ACCEPTED")" != false ] || { way=mount; forbidden=yes; }
# Mode cdi takes mounts that name a device as CDI does; before 1.18 no others.
device=/var/run/nvidia-container-devices/all
if grep -qE '^[[:space:]]*mode *= *.cdi[^a-z]' "$CONFIG"; then
  device=/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/all
fi
# Whether the kubelet's own way to containerd can be gone: crictl is there, and the image that each pod starts with. Not
# beside a kubelet, which ends pods that it does not know.
by_crictl() {
  command -v crictl && systemctl is-active --quiet containerd && ! systemctl is-active --quiet kubelet || return 1
  unit=$(systemctl show containerd.service -p ExecStart)
  binary=$(printf '%s\n' "$unit" | sed -n 's/^ExecStart={ path=\([^ ;]*\).*/\1/p')
  config=$(printf '%s\n' "$unit" | sed -n 's/^ExecStart=.* \(-c\|--config\)[ =]\([^ ;]*\).*/\2/p')
  dump=$("$binary" --config "${config:-/etc/containerd/config.toml}" config dump)
  merged() { printf '%s\n' "$dump" | sed -n "s/^ *\($1\) = [\"']\([^\"']*\)[\"'].*/\2/p" | head -n 1; }
  pause=$(merged 'sandbox_image\|sandbox')
  runtime=nvidia; [ "$(merged default_runtime_name)" != nvidia ] || runtime=default
  # As the kubelet names a pod's cgroup to each of the two drivers.
  parent=; case "$dump" in *'SystemdCgroup = true'*) parent='"cgroup_parent": "system.slice",';; esac
  [ -n "$pause" ] && in_cri inspecti "$pause"
}
by=; runtime=
# shellcheck disable=SC2016
known=$($limit docker info --format '{{.DefaultRuntime}} {{range $name, $_ := .Runtimes}}{{$name}} {{end}}')
case "$known" in
  "nvidia "*) by=docker; runtime=default;;
  *" nvidia "*) by=docker; runtime=nvidia;;
  *)
    if by_crictl > /dev/null; then by=crictl
    else runtime=$(command -v nvidia-container-runtime) && systemctl is-active --quiet containerd && by=ctr
    fi;;
esac
echo "by=$by"; echo "runtime=$runtime"
