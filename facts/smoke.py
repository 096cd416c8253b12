"""Containers, started on the node to see what they see of its GPUs, and removed again."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from gpunode.probe import Probe
from gpunode.smoke import Smoke as Reading
from gpunode.smoke import parse_smoke
from gpunode.toolkit.configuration import ENVVAR, PATH

ACCEPTED = ENVVAR[0]

# Without an image: the root file system is the node's own shell with its libraries.
_ROOT = r"""
work=$(mktemp -d /var/tmp/gpunode-smoke.XXXXXX); root=$work/root
for folder in bin dev proc sys tmp run var; do mkdir -p "$root/$folder"; done
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

# start NAME [MOUNT|VARIABLE|''], see NAME: what the container sees, stop NAME.
_BY_DOCKER = r"""
start() {
  set -- "$1" "$2"; asks=
  case "$2" in
    variable) asks='--env NVIDIA_VISIBLE_DEVICES=all';;
    mount) asks='--volume /dev/null:/var/run/nvidia-container-devices/all';;
  esac
  named=; [ "$runtime" = default ] || named="--runtime $runtime"
  $limit docker run --detach --name "$1" --network none $named $asks gpunode-smoke /bin/sleep 300 > /dev/null
}
see() { $limit docker exec "$1" /bin/sh -c "$check"; }
stop() { $limit docker rm --force "$1"; }
prepare() { tar -C "$root" -c . | $limit docker import - gpunode-smoke; }
finish() { $limit docker rmi --force gpunode-smoke; }
"""
_BY_CTR = r"""
in_ctr() { $limit ctr --namespace gpunode-smoke "$@"; }
start() {
  set -- "$1" "$2"; asks=
  case "$2" in
    variable) asks='--env NVIDIA_VISIBLE_DEVICES=all';;
    mount) asks='--mount type=bind,src=/dev/null,dst=/var/run/nvidia-container-devices/all,options=rbind:ro';;
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

    By docker where it has a runtime nvidia, else by ctr with the runtime named, for ctr knows no default. What is asked
    of the runtime goes by what config.toml allows. The node is left as it was; the operation asks in execution alone.
    """

    parse = staticmethod(parse_smoke)

    def command(self, reload: bool) -> Probe:  # type: ignore[override]
        """Return the probe; with `reload` False, systemd is not reloaded on a node where other containers run."""
        return probe_command(
            f"""
reload={shlex.quote("yes" if reload else "no")}
limit='timeout -k 5 60'
check='{_CHECK}'
others=$(ps -eo comm= | grep -c '^containerd-shim')
for device in /dev/nvidia[0-9]* /dev/nvidiactl; do [ -c "$device" ] && echo "device=$device"; done
value() {{ sed -n "s/^$1 *= *\\([a-z]*\\).*/\\1/p" {PATH}; }}
way=variable; forbidden=
[ "$(value {ACCEPTED})" != false ] || {{ way=mount; forbidden=yes; }}
by=; runtime=
known=$($limit docker info --format '{_RUNTIMES}')
case "$known" in
  "nvidia "*) by=docker; runtime=default;;
  *" nvidia "*) by=docker; runtime=nvidia;;
  *) runtime=$(command -v nvidia-container-runtime) && systemctl is-active --quiet containerd && by=ctr;;
esac
echo "by=$by"; echo "runtime=$runtime"
if [ -n "$by" ] && [ -c /dev/nvidia0 ]; then
{_ROOT}
if [ "$by" = docker ]; then {_BY_DOCKER}
else {_BY_CTR}
fi
{_TRIALS}
fi
echo tested=yes
"""
        )
