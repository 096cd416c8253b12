"""The GPUs' health: memory errors, row remapping, Xids."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.health import ECC_QUERY, ROWS_QUERY, parse_health
from gpunode.health import Health as Reading


class Health(NodeFact[Reading]):
    """Read what the GPUs say of their memory, and the kernel log's Xids since the boot, one line per GPU and number.

    Both queries and the log are read at the same time, so that this costs no more than nvidia-smi's own start; a wedged
    GPU hangs nvidia-smi, which is why it runs under a limit, and not at all where it has just hung in another probe.
    The ring buffer forgets, the journal may not be kept: both are read.
    """

    probe = rf"""
query() {{
  if [ -n "${{wedged:-}}" ]; then echo "$1.rc=124"; return; fi
  printed=$(timeout -k 2 15 nvidia-smi "--query-$2=$3" --format=csv,noheader,nounits); echo "$1.rc=$?"
  printf '%s\n' "$printed" | sed "s/^/$1=/"
}}
if command -v nvidia-smi >/dev/null; then
  query ecc gpu {",".join(ECC_QUERY)} &
  query rows remapped-rows {",".join(ROWS_QUERY)} &
fi
{{ dmesg && echo 'log=read'
  timeout -k 1 5 journalctl -q -k -b -o cat --no-pager -g 'NVRM: Xid' && echo 'log=read'
}} | sed -n -e '/^log=read$/p' -e 's/^.*\(NVRM: Xid .*\)$/xid=\1/p' | cut -c 1-240 | sort -t , -k 1,1 -u | head -n 256
wait
"""
    parse = staticmethod(parse_health)
