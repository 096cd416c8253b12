"""The NVIDIA driver: packages, module on disk, loaded modules, library."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.driver import DriverState as Reading
from gpunode.driver import parse_driver


class Driver(NodeFact[Reading]):
    """Read every place where a driver version shows, and whether nvidia_uvm is loaded.

    Debian's own packages name the module nvidia-current, hence the second name for modinfo.
    """

    probe = r"""
if command -v dpkg-query >/dev/null; then
  dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' 'nvidia-*' 'libnvidia-ml*' 'cuda-drivers*' |
    sed -n 's/^installed /package=/p'
fi
for module in nvidia nvidia-current; do
  version=$(modinfo -F version "$module") && {
    echo "module_version=$version"; echo "module_license=$(modinfo -F license "$module")"; break; }
done
[ -r /sys/module/nvidia/version ] && echo "loaded=$(cat /sys/module/nvidia/version)"
[ -d /sys/module/nvidia_uvm ] && echo uvm=loaded
[ -r /proc/driver/nvidia/version ] && echo "proc=$(head -n 1 /proc/driver/nvidia/version)"
for library in /usr/lib/*-linux-gnu/libnvidia-ml.so.1 /usr/lib64/libnvidia-ml.so.1 /usr/lib/libnvidia-ml.so.1; do
  [ -e "$library" ] && { echo "library=$(readlink -f "$library")"; break; }
done
"""
    parse = staticmethod(parse_driver)
