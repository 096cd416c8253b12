"""The NVIDIA driver: packages, module on disk, loaded modules, library."""

from __future__ import annotations

from facts.base import NodeFact
from facts.driver_packages import ASKED
from facts.families import by_manager, pacman
from facts.families.dnf import DRIVER_PACKAGES
from facts.families.zypper import DRIVER_PACKAGES as ZYPPER_DRIVER_PACKAGES
from gpunode.driver import DriverState as Reading
from gpunode.driver import parse_driver
from gpunode.reboot import RECORD


class Driver(NodeFact[Reading]):
    """Read every place where a driver version shows, and whether nvidia_uvm is loaded.

    Debian's own packages name the module nvidia-current or nvidia-current-open, hence the further names for modinfo.
    """

    probe = (
        by_manager(
            apt=rf"""
  dpkg-query -W -f '${{db:Status-Status}} ${{db:Status-Want}} ${{Package}} ${{Version}}\n' {ASKED} |
    awk '$1 == "installed" {{print "package=" $3 " " $4; if ($2 == "hold") print "held=" $3}}'
""",
            dnf=rf"""
{DRIVER_PACKAGES.strip()}
of_driver | awk '{{print "package=" $2 " " $3; if ($1 == "hold") print "held=" $2}}'
""",
            zypper=rf"""
{ZYPPER_DRIVER_PACKAGES.strip()}
of_driver | awk '{{print "package=" $2 " " $3; if ($1 == "hold") print "held=" $2}}'
""",
            pacman=rf"""
{pacman.DRIVER_PACKAGES.strip()}
of_driver | awk '{{print "package=" $2 " " $3; if ($1 == "hold") print "held=" $2}}'
""",
        )
        + f"""
[ -f {RECORD} ] && echo "attempt=$(head -n 1 {RECORD})"
"""
        + r"""
for module in nvidia nvidia-current nvidia-current-open; do
  version=$(modinfo -F version "$module") && {
    echo "module_version=$version"; echo "module_license=$(modinfo -F license "$module")"; break; }
done
[ -r /sys/module/nvidia/version ] && echo "loaded=$(cat /sys/module/nvidia/version)"
[ -d /sys/module/nvidia_uvm ] && echo uvm=loaded
sed -n 's/^\([A-Za-z0-9_]*\): \(.*\)$/parameter=\1 \2/p' /proc/driver/nvidia/params
[ -r /proc/driver/nvidia/version ] && echo "proc=$(head -n 1 /proc/driver/nvidia/version)"
for library in /usr/lib/*-linux-gnu/libnvidia-ml.so.1 /usr/lib64/libnvidia-ml.so.1 /usr/lib/libnvidia-ml.so.1; do
  [ -e "$library" ] && { echo "library=$(readlink -f "$library")"; break; }
done
# No package brings the uninstaller: only NVIDIA's own installer leaves it.
[ -f /usr/bin/nvidia-uninstall ] || [ -f /usr/bin/nvidia-installer ] && echo runfile=yes
for sources in /var/lib/dkms/nvidia/*/source; do
  sources=${sources%/source}; [ -e "$sources/source" ] && echo "dkms=${sources##*/}"
done
[ -e /var/lib/gpunode/transactions/driver/unproven ] && echo unproven=yes
[ -d /sys/module/nouveau ] && echo nouveau=yes
for service in nvidia-fabricmanager nvidia-persistenced; do
  [ -e "/lib/systemd/system/$service.service" ] || [ -e "/usr/lib/systemd/system/$service.service" ] || continue
  echo "service=$service $(systemctl show -p ActiveState,UnitFileState "$service" | sort | sed 's/^[^=]*=//' |
    paste -s -d ' ')"
done
"""
    )
    parse = staticmethod(parse_driver)
