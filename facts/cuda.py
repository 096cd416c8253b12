"""CUDA toolkits."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.cuda import CudaToolkits as Reading
from gpunode.cuda import parse_cuda


class CudaToolkits(NodeFact[Reading]):
    """Read the toolkits under /usr/local and in /opt/cuda, the default link, nvcc, the profile script, an interruption.

    No package brings the uninstaller: only NVIDIA's own installer leaves it. What Arch's package puts into
    /etc/profile.d is not ours.
    """

    probe = r"""
for toolkit in /usr/local/cuda-*; do
  [ -d "$toolkit" ] && [ ! -L "$toolkit" ] || continue
  # NVIDIA's uninstaller leaves what is not its own.
  [ "$(ls -A "$toolkit")" = .gpunode-release ] && continue
  echo "toolkit=$toolkit"
  [ -e "$toolkit/bin/cuda-uninstaller" ] && echo "runfile=$toolkit"
  # NVIDIA's version.json may tell a date (12.6.20241114): what gpunode installed bears a record, good for that file.
  sum=$(cat "$toolkit/version.json" | sha256sum | cut -d' ' -f1)
  if [ -e "$toolkit/.gpunode-release" ] && read -r release recorded < "$toolkit/.gpunode-release" &&
    [ "$recorded" = "$sum" ]; then echo "release=$toolkit $release"; fi
  told=$(sed -n '/"cuda"[[:space:]]*:/,/}/s/.*"version"[[:space:]]*:[[:space:]]*"\([0-9.]*\)".*/\1/p' \
    "$toolkit/version.json" | head -n 1)
  [ -n "$told" ] && echo "told=$toolkit $told"
done
[ -x /opt/cuda/bin/nvcc ] && [ ! -L /opt/cuda ] &&
  echo "arch=$(/opt/cuda/bin/nvcc --version | sed -n 's/.*release [0-9.]*, V\([0-9.]*\)$/\1/p')"
[ -e /usr/local/cuda ] && echo "default=$(readlink -f /usr/local/cuda)"
[ -x /usr/local/cuda/bin/nvcc ] && echo "nvcc=$(/usr/local/cuda/bin/nvcc --version | grep release)"
script=/etc/profile.d/cuda.sh; [ -d /opt/cuda ] && script=/etc/profile.d/gpunode-cuda.sh
[ -e "$script" ] && echo profile=yes
transaction=/var/lib/gpunode/transactions/cuda
grep -qF '"state": "began"' "$transaction.json" &&
  sed -n 's/^version=\([0-9.]*\)$/interrupted=\1/p' "$transaction.sh" | head -n 1
"""
    parse = staticmethod(parse_cuda)
