"""Helpers and data for the tests of runtime transaction."""

from __future__ import annotations

_SLEEP = """#!/bin/sh
read -r up _ < "$LAB/uptime"; echo "$((${up%%.*} + 5)).25 1.00" > "$LAB/uptime"
if [ -e "$LAB/ending" ]; then rm "$LAB/ending"; touch "$LAB/dead"; fi
"""


# Folders are root's alone, but for those that are named: tests run below /tmp.
_STAT = """#!/bin/sh
case "$*" in
  *'%u %g %A'*)
    for last; do :; done
    if grep -sqxF "$last" "$LAB/open"; then echo '0 0 drwxrwxrwt'; else echo '0 0 drwxr-xr-x'; fi;;
  *) PATH=/usr/bin:/bin exec stat "$@";;
esac
"""
