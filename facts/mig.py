"""Multi-Instance GPU on a node."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.mig.smi import LISTS, QUERY, parse_mig
from gpunode.mig.state import Mig as Reading
from gpunode.probe import WEDGED

_QUESTIONS = " && ".join(f"list {key} {arguments}" for key, arguments in LISTS.items())


class Mig(NodeFact[Reading]):
    """Read MIG's modes, instances and own lists by nvidia-smi.

    The lists are asked for only where MIG mode is on somewhere, one after the other: they must tell of one state. Each
    call has a limit of 15 seconds; after one that hung, none is made. Where a GPU is lost, it is told which.
    """

    probe = rf"""
list() {{
  key=$1; shift
  printed=$(timeout -k 2 15 nvidia-smi "$@"); rc=$?
  echo "$key.rc=$rc"; printf '%s\n' "$printed" | sed "s/^/$key=/"
  [ "$rc" -ne 124 ] && [ "$rc" -ne 137 ]
}}
if [ -n "${{wedged:-}}" ]; then
  echo rc=124
elif command -v nvidia-smi >/dev/null; then
  printed=$(timeout -k 2 15 nvidia-smi --query-gpu={",".join(QUERY)} --format=csv,noheader,nounits); rc=$?
  echo "rc=$rc"
  printf '%s\n' "$printed" | sed 's/^/gpu=/'
  case "$rc $printed" in
    "0 "*", Enabled, "*) {_QUESTIONS} || {{ {WEDGED}; }};;
    124*|137*) {WEDGED};;
    # One lost GPU costs the answer of all: each is asked by itself.
    "15 "*) for gpu in /proc/driver/nvidia/gpus/*; do
      timeout -k 2 15 nvidia-smi -i "${{gpu##*/}}" --query-gpu=index --format=csv,noheader >/dev/null ||
        echo "lost=${{gpu##*/}}"
    done;;
  esac
else
  echo absent=yes
fi
"""
    parse = staticmethod(parse_mig)
