"""Helpers and data for the tests of dnf5."""

from __future__ import annotations

# As `dnf5 versionlock add dkms` wrote it: without the epoch where it is 0.
HEAD = 'version = "1.0"\n\n'


ENTRY = """[[packages]]
name = "dkms"
comment = "Added by 'versionlock add' command on 2026-11-25 19:37:51"

[[packages.conditions]]
key = "evr"
comparator = "="
value = "3.4.3-2.el9"

"""


THEIRS = HEAD + ENTRY
