"""CUDA toolkits."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.cuda import CudaToolkits as Reading
from gpunode.cuda import parse_cuda


class CudaToolkits(NodeFact[Reading]):
    """Read the toolkits under /usr/local, the default link, its nvcc, the profile script, and what was interrupted.

    No package brings the uninstaller: only NVIDIA's own installer leaves it.
    """

    probe = r"""
for toolkit in /usr/local/cuda-*; do
  [ -d "$toolkit" ] && [ ! -L "$toolkit" ] || continue
  echo "toolkit=$toolkit"
  [ -e "$toolkit/bin/cuda-uninstaller" ] && echo "runfile=$toolkit"
  release=$(sed -n '/"cuda"[[:space:]]*:/,/}/s/.*"version"[[:space:]]*:[[:space:]]*"\([0-9.]*\)".*/\1/p' \
    "$toolkit/version.json" | head -n 1)
  [ -n "$release" ] && echo "release=$toolkit $release"
done
[ -e /usr/local/cuda ] && echo "default=$(readlink -f /usr/local/cuda)"
[ -x /usr/local/cuda/bin/nvcc ] && echo "nvcc=$(/usr/local/cuda/bin/nvcc --version | grep release)"
[ -e /etc/profile.d/cuda.sh ] && echo profile=yes
transaction=/var/lib/gpunode/transactions/cuda
grep -qF '"state": "began"' "$transaction.json" &&
  sed -n 's/^version=\([0-9.]*\)$/interrupted=\1/p' "$transaction.sh" | head -n 1
"""
    parse = staticmethod(parse_cuda)
