"""Docker: versions, daemon.json, and what the running daemon says of itself."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.docker.state import Docker as Reading
from gpunode.docker.state import parse_docker


class Docker(NodeFact[Reading]):
    """Read the client's version, and of the running unit's dockerd version, file, flags and answer.

    A daemon that does not run is not asked: its socket would start it.
    """

    probe = r"""
command -v docker >/dev/null && echo "docker=$(timeout -k 2 10 docker --version)"
unit=$(systemctl show docker.service -p ActiveState,UnitFileState,MainPID,ExecStart)
binary=$(printf '%s\n' "$unit" | sed -n 's/^ExecStart={ path=\([^ ;]*\).*/\1/p' | tail -n 1)
[ -n "$binary" ] || binary=$(command -v dockerd)
if [ -n "$binary" ]; then
  printf '%s\n' "$unit" | grep -E '^(ActiveState|UnitFileState)='
  process=$(printf '%s\n' "$unit" | sed -n 's/^MainPID=\([1-9][0-9]*\)$/\1/p')
  # The process' own arguments, where it runs: the unit's may name variables.
  arguments=$(if [ -n "$process" ]; then tr '\0' '\n' < "/proc/$process/cmdline"
    else printf '%s\n' "$unit" | sed -n 's/^ExecStart=//p' | tr ' ' '\n'; fi)
  config=$(printf '%s\n' "$arguments" | tr '=' '\n' | sed -n '/^--config-file$/{n;p;}' | tail -n 1)
  config=${config:-/etc/docker/daemon.json}
  echo "binary=$binary"; echo "config=$config"
  [ -x "$binary" ] && echo "dockerd=$("$binary" --version)"
  printf '%s\n' "$arguments" | grep -oE '^--(default-runtime|add-runtime|exec-opt|feature)s?' | sed 's/^/flag=/'
  if [ -s "$config" ]; then echo "text=$(base64 -w0 "$config")"; elif [ -e "$config" ]; then echo empty=yes; fi
  if printf '%s\n' "$unit" | grep -q '^ActiveState=active'; then
    echo "info=$(timeout -k 2 10 docker info --format '{{json .}}' | base64 -w0)"
  fi
fi
"""
    parse = staticmethod(parse_docker)
