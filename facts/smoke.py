"""Containers, started on the node to see what they see of its GPUs, and removed again."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, changing_command
from facts.smoke_ways import BY_CRICTL, BY_CTR, BY_DOCKER
from gpunode.smoke import Smoke as Reading
from gpunode.smoke import parse_smoke
from gpunode.toolkit.configuration import ENVVAR, PATH

ACCEPTED = ENVVAR[0]

# Without an image: the root file system is the node's own shell with its libraries. In /etc the toolkit's hook
# update-ldcache writes ld.so.conf, ld.so.conf.d and ld.so.cache (from 1.18 on whether or not they are there): it makes
# files and folders below it, but not /etc itself.
_ROOT = r"""
work=$(mktemp -d /var/tmp/gpunode-smoke.XXXXXX); root=$work/root
for folder in bin dev etc proc sys tmp run var; do mkdir -p "$root/$folder"; done
for program in sh sleep; do
  file=$(readlink -f "$(command -v "$program")"); cp "$file" "$root/bin/$program"
  for library in $(ldd "$file" | grep -o '/[^ )]*'); do
    mkdir -p "$root${library%/*}"; cp -L "$library" "$root$library"
  done
done
"""

# Opening tells what seeing does not: whether the device cgroup lets it. What else keeps a device shut is no refusal.
_CHECK = (
    'for device in /dev/nvidia[0-9]* /dev/nvidiactl; do [ -c "$device" ] || continue; '
    'case "$( (exec 3<"$device") 2>&1 )" in *"not permitted"*|*"ermission denied"*) echo "denied $device";; '
    '*) echo "open $device";; esac; done'
)

_RUNTIMES = "{{.DefaultRuntime}} {{range $name, $_ := .Runtimes}}{{$name}} {{end}}"

# Whether the kubelet's own way to containerd can be gone: crictl is there, and the image that each pod starts with. Not
# beside a kubelet, which ends pods that it does not know.
_CRICTL = r"""
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
"""

_TRIALS = r"""
record() { echo "$1=$2"; echo "$1_said=$(printf '%s' "$3" | base64 -w0)"; }
trial() {
  stop "gpunode-smoke-$1" > /dev/null 2>&1
  said=$({ start "gpunode-smoke-$1" "$2" && see "gpunode-smoke-$1"; } 2>&1); record "$1" "$?" "$said"
}
prepare > /dev/null
trap 'for name in asking silent envvar; do stop "gpunode-smoke-$name"; done > /dev/null 2>&1
  finish > /dev/null 2>&1; rm -rf "$work"' EXIT
trial silent ''
[ -z "$forbidden" ] || trial envvar variable
trial asking "$way"
if [ "$reload" = yes ] || [ "$others" -eq 0 ]; then
  systemctl daemon-reload
  # systemd sets the rules of devices anew when it next has a moment.
  sleep 1
  said=$(see gpunode-smoke-asking 2>&1); record reloaded "$?" "$said"
fi
"""


class Smoke(NodeFact[Reading]):
    """Start containers and read what they see: one that asks for all GPUs, one that does not, one by a way forbidden.

    By docker where it has a runtime nvidia, else by crictl where it can start a pod, else by ctr with the runtime
    named, for ctr knows no default. What is asked of the runtime goes by what config.toml allows. The node is left as
    it was; the operation asks in execution alone.
    """

    parse = staticmethod(parse_smoke)

    def command(self, reload: bool) -> str:  # type: ignore[override]
        """Return the command; with `reload` False, systemd is not reloaded on a node where other containers run.

        It is no Probe: containers come and go by it, so that it ends what was read before, and is asked alone and once.
        """
        return changing_command(
            f"""
reload={shlex.quote("yes" if reload else "no")}
limit='timeout -k 5 60'
check='{_CHECK}'
others=$(ps -eo comm= | grep -c '^containerd-shim')
for node in /dev/nvidia[0-9]* /dev/nvidiactl; do [ -c "$node" ] && echo "device=$node"; done
value() {{ sed -n "s/^$1 *= *\\([a-z]*\\).*/\\1/p" {PATH}; }}
way=variable; forbidden=
[ "$(value {ACCEPTED})" != false ] || {{ way=mount; forbidden=yes; }}
# Mode cdi takes mounts that name a device as CDI does; before 1.18 no others.
device=/var/run/nvidia-container-devices/all
if grep -qE '^[[:space:]]*mode *= *.cdi[^a-z]' {PATH}; then
  device=/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/all
fi
by=; runtime=
known=$($limit docker info --format '{_RUNTIMES}')
case "$known" in
  "nvidia "*) by=docker; runtime=default;;
  *" nvidia "*) by=docker; runtime=nvidia;;
  *)
    {BY_CRICTL}
    {_CRICTL}
    if by_crictl > /dev/null; then by=crictl
    else runtime=$(command -v nvidia-container-runtime) && systemctl is-active --quiet containerd && by=ctr
    fi;;
esac
echo "by=$by"; echo "runtime=$runtime"
if [ -n "$by" ] && [ -c /dev/nvidia0 ]; then
{_ROOT}
case "$by" in
  docker) {BY_DOCKER};;
  ctr) {BY_CTR};;
esac
{_TRIALS}
fi
echo tested=yes
"""
        )
