"""Which boot of a node is running."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.reboot import RECORD, parse_running_boot
from gpunode.reboot import RunningBoot as Reading


class RunningBoot(NodeFact[Reading]):
    """Read what tells this boot from another: the kernel's boot_id, and when pid 1 began, which tells a container's.

    A record that is older than the module on disk is of another installation, and no longer counts.
    """

    probe = rf"""
echo "boot_id=$(cat /proc/sys/kernel/random/boot_id)"
systemctl show -p UserspaceTimestampMonotonic -p SystemState
systemd-detect-virt --quiet --container && echo container=yes
[ -z "$(dpkg --audit; ls /var/lib/dpkg/updates)" ] && ! systemctl -q is-active apt-daily-upgrade.service ||
  echo packaging=busy
# A transaction of rpm's holds this lock, a question does not.
for lock in /var/lib/rpm/.rpm.lock /usr/lib/sysimage/rpm/.rpm.lock; do
  inode=$(stat -c %i "$lock") && grep -q " WRITE .*:$inode " /proc/locks && echo packaging=busy
done
module=$(modinfo -F filename nvidia || modinfo -F filename nvidia-current || modinfo -F filename nvidia-current-open)
{{ [ -z "$module" ] || [ {RECORD} -nt "$module" ]; }} && [ -e {RECORD} ] && echo "attempt=$(head -n 1 {RECORD})"
"""
    parse = staticmethod(parse_running_boot)
