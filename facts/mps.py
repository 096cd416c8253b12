"""The Multi-Process Service on a node."""

from __future__ import annotations

from facts.base import NodeFact
from facts.started import STARTED
from gpunode.mps import Mps as Reading
from gpunode.mps import parse_mps
from gpunode.mps.daemon import FOLDER, UNITS

APPLY = "/usr/local/lib/gpunode/nvidia-mps-settings"


class Mps(NodeFact[Reading]):
    """Read the daemons of gpunode's units; whether one lives is told by its answer alone, for its sockets stay behind.

    What a daemon is asked are the questions of the file that its unit applies.
    """

    probe = rf"""{STARTED}
program=$(command -v nvidia-cuda-mps-control) && echo "program=$program"
ours() {{ [ -f "$1" ] && grep -q '^# Written by gpunode' "$1"; }}
for file in {" ".join(UNITS)} {APPLY}; do
  if ours "$file"; then echo "file=$file $(sha256sum < "$file" | cut -d' ' -f1)"
  elif [ -e "$file" ]; then echo "foreign=$file"; fi
done
tab=$(printf '\t')
# By their settings and by systemd: a daemon may run whose settings' file is gone.
names=$({{ for settings in {FOLDER}/*.settings; do
    [ -f "$settings" ] || continue; name=${{settings##*/}}; echo "${{name%.settings}}"; done
  systemctl list-units --all --plain --no-legend 'nvidia-mps.service' 'nvidia-mps@*.service' | awk '$2 != "not-found" {{
    sub(/\.service$/, "", $1); print (($1 ~ /@/) ? substr($1, index($1, "@") + 1) : "node")}}'; }} | sort -u)
for name in $names; do
  case "$name" in node) unit=nvidia-mps.service;; *[!0-9]*) continue;; *) unit=nvidia-mps@$name.service;; esac
  settings={FOLDER}/$name.settings
  shown=$(show_unit "$unit" -p ActiveState,UnitFileState,ActiveEnterTimestamp,Environment,FragmentPath)
  of() {{ printf '%s\n' "$shown" | sed -n "s/^$1=//p"; }}
  [ -f "$settings" ] || ours "$(of FragmentPath)" || continue
  environment=$(of Environment | tr ' ' '\n')
  pipe=$(printf '%s\n' "$environment" | sed -n 's/^CUDA_MPS_PIPE_DIRECTORY=//p')
  log=$(printf '%s\n' "$environment" | sed -n 's/^CUDA_MPS_LOG_DIRECTORY=//p')
  ask() {{ printf '%s\n' "$1" | CUDA_MPS_PIPE_DIRECTORY="$pipe" timeout -k 2 5 "$program" 2>/dev/null; }}
  # Whoever does not answer may have clients all the same.
  answers=no; servers=0; clients=0; [ "$(of ActiveState)" != active ] || clients=?
  if [ -n "$program" ] && [ -n "$pipe" ] && list=$(ask get_server_list); then
    answers=yes; clients=0
    for server in $list; do
      servers=$((servers + 1)); clients=$((clients + $(ask "get_client_list $server" | grep -c '^[0-9]')))
    done
    [ ! -f "$settings" ] || while IFS="$tab" read -r command question answer; do
      case "$command" in ''|'#'*) continue;; esac
      echo "reading=$unit$tab$question$tab$(ask "$question" | tail -n 1)"
    done < "$settings"
  fi
  stale=no; started=$(of ActiveEnterTimestamp); fragment=$(of FragmentPath)
  if [ "$(of ActiveState)" = active ] && [ -n "$started" ] && [ -f "$fragment" ]; then
    # By ctime: any mtime can be set.
    awk -v a="$(seconds "$started")" -v b="$(stat -c %.6Z "$fragment")" 'BEGIN {{exit !(b > a)}}' && stale=yes
  fi
  exclusive=''
  if ours "$fragment"; then
    exclusive=no; ! grep -q '^ExecStartPre=.*EXCLUSIVE_PROCESS' "$fragment" || exclusive=yes
  fi
  digest=''; [ ! -f "$settings" ] || digest=$(sha256sum < "$settings" | cut -d' ' -f1)
  failures=$(awk '/Starting control daemon/ {{n = 0; last = ""}}
    /[Ff]ail|[Ee]rror|exited with status [1-9]/ {{n++; last = $0; gsub(/\t/, " ", last)}}
    END {{print n + 0 "\t" last}}' "$log/control.log" 2>/dev/null)
  printf 'daemon=%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$unit" "$(of ActiveState)" "$(of UnitFileState)" \
    "$answers" "$stale" "$exclusive" "$digest" "$servers" "$clients" "${{failures:-0$tab}}"
done
"""
    parse = staticmethod(parse_mps)
