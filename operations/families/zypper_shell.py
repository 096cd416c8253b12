"""Shell text that every operation on zypper's packages shares: what waits for its lock, and reads repositories."""

from __future__ import annotations

from gpunode.base.shell_file import script_file
from gpunode.facts.families.zypper import WAITS

ZYPP = WAITS + script_file("zypper")
READ = script_file("zypper_read")
REFRESH = READ + script_file("zypper_refresh")
