"""The keyrings of gpunode's package repositories."""

from __future__ import annotations

from gpunode.base.probe import Shared, shell_text
from gpunode.facts.base import NodeFact
from gpunode.packages.keyring import PRIMARY_KEYS, parse_keyrings
from gpunode.packages.keyring import Keyrings as Reading


class Keyrings(NodeFact[Reading]):
    """Read the primary keys' fingerprints of each keyring that gpunode wrote, its mode, owner and group."""

    probe = shell_text("packages/keyrings", shared=(Shared(PRIMARY_KEYS),))
    parse = staticmethod(parse_keyrings)
