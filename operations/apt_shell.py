"""Shell text that every operation on apt's packages shares: what waits for locks, reads lists, finishes dpkg's work."""

from __future__ import annotations

from gpunode.base.shell_file import script_file

APT_GET = script_file("apt_get")
READ_LISTS = script_file("apt_lists")
FINISH = script_file("apt_finish")
# Refuses a repository's index that is older than the last that was read.
NOT_OLDER = script_file("index_date")
REFRESH = NOT_OLDER + script_file("apt_refresh")
MARK = script_file("apt_mark")
# The packages in $hold, and those in $unhold no more.
HOLD = f"""{APT_GET}{MARK}
unlocked
if [ -n "$hold" ]; then mark hold $hold; fi
if [ -n "$unhold" ]; then mark unhold $unhold; fi
"""
