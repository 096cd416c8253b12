"""The shell functions by which a repository's key is fetched and judged, for the families that keep keyrings."""

from __future__ import annotations

from gpunode.keyring import PRIMARY_KEYS
from gpunode.shell_file import script_file

PINNED_KEY = f"{PRIMARY_KEYS}{script_file('pinned_key')}"

__all__ = ["PINNED_KEY"]
