"""A pattern behind --limit that names no host: of an inventory, or of a document that machines are taken from."""

from __future__ import annotations

from collections.abc import Iterable

from gpunode.base.errors import CodedError


class LimitError(CodedError):
    """Say which pattern names no host, and what it may be."""

    code = "limit.no-host"

    def __init__(self, pattern: str, source: str, groups: Iterable[str]) -> None:
        """Take the pattern, what the hosts are of, and that one's groups."""
        named = ", ".join(sorted(groups)) or "none"
        super().__init__(
            f"{pattern}: {source} has no such host or group; give a host's name, a glob such as 'gpu-*', or a group: "
            f"{named}"
        )
