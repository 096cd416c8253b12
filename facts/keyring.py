"""The keyrings of gpunode's package repositories."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.keyring import PRIMARY_KEYS, parse_keyrings
from gpunode.keyring import Keyrings as Reading
from gpunode.probe import Shared, shell_text


class Keyrings(NodeFact[Reading]):
    """Read the primary keys' fingerprints of each keyring that gpunode wrote, its mode, owner and group."""

    probe = shell_text("keyrings", shared=(Shared(PRIMARY_KEYS),))
    parse = staticmethod(parse_keyrings)
