"""What brings the MIG layout back at a boot."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.mig.boot import NAME, RECORD, SCRIPT, UNIT, parse_mig_boot
from gpunode.mig.boot import MigBoot as Reading
from gpunode.reboot import RECORD as REBOOTS


class MigBoot(NodeFact[Reading]):
    """Read gpunode's unit for MIG, its script, and the layout that it brings back."""

    probe = f"""
for file in {UNIT} {SCRIPT}; do
  [ ! -f "$file" ] || echo "file=$file $(sha256sum < "$file" | cut -d' ' -f1)"
done
[ ! -f {RECORD} ] || echo "record=$(base64 -w0 {RECORD})"
[ ! -f {RECORD} ] || [ -s {RECORD} ] || echo empty=yes
[ ! -f {RECORD} ] || echo "recorded=$(stat -c %Y {RECORD})"
[ ! -f {REBOOTS} ] || echo "attempt=$(head -n 1 {REBOOTS})"
systemctl show {NAME} -p UnitFileState -p ActiveState | sed 's/^UnitFileState=/enabled=/; s/^ActiveState=/active=/'
"""
    parse = staticmethod(parse_mig_boot)
