"""containerd: version, merged configuration, CRI plugin, when it started."""

from __future__ import annotations

from facts.base import NodeFact
from facts.started import STARTED
from gpunode.containerd.state import Containerd as Reading
from gpunode.containerd.state import parse_containerd


class Containerd(NodeFact[Reading]):
    """Read the running unit's own binary and file: a node may have two containerd binaries.

    Files and texts travel as base64, since they may hold any byte. Times have microseconds: a file written in the
    second in which the daemon started would else look newer or older than it is (facts/started.py).
    """

    probe = (
        STARTED
        + r"""
unit=$(show_unit containerd.service -p ActiveState,UnitFileState,ActiveEnterTimestamp,ExecStart)
printf '%s\n' "$unit" | grep -E '^(ActiveState|UnitFileState)='
started=$(printf '%s\n' "$unit" | sed -n 's/^ActiveEnterTimestamp=//p')
if printf '%s\n' "$unit" | grep -q '^ActiveState=active' && [ -n "$started" ]; then
  echo "started=$(seconds "$started")"
fi
binary=$(printf '%s\n' "$unit" | sed -n 's/^ExecStart={ path=\([^ ;]*\).*/\1/p' | tail -n 1)
config=$(printf '%s\n' "$unit" | sed -n 's/^ExecStart=.* \(-c\|--config\)[ =]\([^ ;]*\).*/\2/p' | tail -n 1)
config=${config:-/etc/containerd/config.toml}
# A binary that the unit names and that is missing is told of; another one on the PATH is not what runs.
[ -n "$binary" ] || binary=$(command -v containerd)
echo "binary=$binary"; echo "config=$config"
if [ -x "$binary" ]; then
  echo "version=$("$binary" --version)"
  [ -e "$config" ] && echo "text=$(base64 -w0 "$config")"
  merged=$("$binary" --config "$config" config dump | base64 -w0)
  echo "merged=$merged"
  # The folders too: a drop-in that was removed leaves no other trace. By ctime: `cp -p` sets any mtime that it likes.
  drop_ins=/etc/containerd/conf.d; overrides=/etc/systemd/system/containerd.service.d
  for file in "$config" "$drop_ins"; do [ -e "$file" ] && echo "written=$(stat -c %.6Z "$file")"; done
  for file in "$overrides" "$overrides"/*.conf; do [ -e "$file" ] && echo "unit_written=$(stat -c %.6Z "$file")"; done
  # containerd 1 prints the files, containerd 2 the patterns.
  imports=$(printf '%s' "$merged" | base64 -d | sed -n 's/^imports = \[\(.*\)\]$/\1/p' | tr -d "\"' " | tr , ' ')
  seen=" $config "; imported=yes
  for file in $imports - "$drop_ins"/*.toml; do
    [ "$file" = - ] && imported=no
    case "$seen" in *" $file "*) continue;; esac
    seen="$seen$file "
    [ -f "$file" ] || continue
    echo "written=$(stat -c %.6Z "$file")"
    text=$(base64 -w0 "$file"); echo "drop_in=$imported ${text:--} $file"
  done
  ctr=${binary%/*}/ctr; [ -x "$ctr" ] || ctr=ctr
  timeout -k 2 10 "$ctr" plugins ls | grep -E '^io\.containerd\.(grpc\.v1 +cri|cri\.v1 +runtime) ' | sed 's/^/plugin=/'
  noted=/run/gpunode/containerd.loaded
  [ -e "$noted" ] && echo "loaded=$(cat "$noted") $(stat -c %.6Y "$noted")"
  echo "shims=$(ps -eo comm= | grep -c '^containerd-shim')"
fi
"""
    )
    parse = staticmethod(parse_containerd)
