"""containerd: version, merged configuration, CRI plugin, when it started."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.containerd.state import Containerd as Reading
from gpunode.containerd.state import parse_containerd


class Containerd(NodeFact[Reading]):
    """Read the running unit's own binary and file: a node may have two containerd binaries.

    Files and texts travel as base64, since they may hold any byte. Times have microseconds: a file written in the
    second in which the daemon started would else look older than it is.
    """

    probe = r"""
unit=$(systemctl show containerd.service --timestamp=us+utc \
  -p ActiveState,UnitFileState,ActiveEnterTimestamp,ExecStart)
printf '%s\n' "$unit" | grep -E '^(ActiveState|UnitFileState)='
started=$(printf '%s\n' "$unit" | sed -n 's/^ActiveEnterTimestamp=//p')
if printf '%s\n' "$unit" | grep -q '^ActiveState=active' && [ -n "$started" ]; then
  echo "started=$(date -d "$started" +%s.%6N)"
fi
binary=$(printf '%s\n' "$unit" | sed -n 's/^ExecStart={ path=\([^ ;]*\).*/\1/p' | tail -n 1)
config=$(printf '%s\n' "$unit" | sed -n 's/^ExecStart=.* \(-c\|--config\)[ =]\([^ ;]*\).*/\2/p' | tail -n 1)
config=${config:-/etc/containerd/config.toml}
[ -x "$binary" ] || binary=$(command -v containerd)
echo "binary=$binary"; echo "config=$config"
if [ -n "$binary" ]; then
  echo "version=$("$binary" --version)"
  [ -e "$config" ] && echo "text=$(base64 -w0 "$config")"
  echo "merged=$("$binary" --config "$config" config dump | base64 -w0)"
  # The folders too: a drop-in that was removed leaves no other trace. By ctime: `cp -p` sets any mtime that it likes.
  overrides=/etc/systemd/system/containerd.service.d
  imports=$("$binary" --config "$config" config dump | sed -n 's/^imports = \[\(.*\)\]$/\1/p')
  imports=$(printf '%s' "$imports" | tr -d "\"' " | tr , ' ')
  drop_ins=/etc/containerd/conf.d
  for file in "$config" $imports "$drop_ins" "$drop_ins"/*.toml "$overrides" "$overrides"/*.conf; do
    [ -e "$file" ] && echo "written=$(stat -c %.6Z "$file")"
  done
  timeout -k 2 10 ctr plugins ls | grep -E '^io\.containerd\.(grpc\.v1 +cri|cri\.v1 +runtime) ' | sed 's/^/plugin=/'
  echo "shims=$(ps -eo comm= | grep -c '^containerd-shim')"
fi
"""
    parse = staticmethod(parse_containerd)
