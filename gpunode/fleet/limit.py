"""A pattern behind --limit that names no host: of an inventory, or of a document that machines are taken from."""

from __future__ import annotations

from collections.abc import Iterable

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error


class LimitError(CodedError):
    """Say which pattern names no host, and what it may be."""

    code = command_error(
        "limit.no-host", "A pattern of --limit matches no host of the inventory.",
        "A pattern is a host's name, a glob such as gpu-* or a group; each has to match a host. No host was contacted.",
        remedy="correct the pattern; the message lists the groups, and `gpunode check INVENTORY` names the hosts",
        exit="64",
    )  # fmt: skip

    def __init__(self, pattern: str, source: str, groups: Iterable[str]) -> None:
        """Take the pattern, what the hosts are of, and that one's groups."""
        named = ", ".join(sorted(groups)) or "none"
        super().__init__(
            f"{pattern}: {source} has no such host or group; give a host's name, a glob such as 'gpu-*', or a group: "
            f"{named}"
        )
