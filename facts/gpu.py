"""GPUs by nvidia-smi."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.gpu import QUERY, parse_gpus
from gpunode.gpu import Gpus as Reading
from gpunode.probe import WEDGED


class Gpus(NodeFact[Reading]):
    """Read nvidia-smi's rows; a wedged GPU hangs nvidia-smi, so that it runs under a limit of 15 seconds.

    Where it hung, its last status says so to the probes after this one, which need not wait as long again (WEDGED).
    """

    probe = rf"""
if command -v nvidia-smi >/dev/null; then
  printed=$(timeout -k 2 15 nvidia-smi --query-gpu={",".join(QUERY)} --format=csv,noheader,nounits); rc=$?
  echo "rc=$rc"
  printf '%s\n' "$printed" | sed 's/^/smi=/'
  case "$rc" in 124|137) {WEDGED};; esac
else
  echo absent=yes
fi
"""
    parse = staticmethod(parse_gpus)
