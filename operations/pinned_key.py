"""The shell functions by which a repository's key is fetched and judged, for the families that keep keyrings."""

from __future__ import annotations

from gpunode.base.shell_file import script_file
from gpunode.packages.keyring import PRIMARY_KEYS

PINNED_KEY = f"{PRIMARY_KEYS}{script_file('pinned_key')}"
