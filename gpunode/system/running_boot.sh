# Which boot of the node is running, and whether its packages are being changed.
# Prints boot_id=ID, systemd's UserspaceTimestampMonotonic and SystemState, container=yes, packaging=busy,
# attempt=DIGEST.
# Takes RECORD, the file that tells what the last boot of gpunode's was for; one that is older than the module on disk
# is of another installation, and no longer counts.

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
{ [ -z "$module" ] || [ "$RECORD" -nt "$module" ]; } && [ -e "$RECORD" ] && echo "attempt=$(head -n 1 "$RECORD")"
