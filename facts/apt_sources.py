"""What apt is told beside gpunode's own sources."""

from __future__ import annotations

from gpunode import tables
from gpunode.apt_sources import AptSources as Reading
from gpunode.apt_sources import parse_apt_sources
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import PACKAGES
from gpunode.keyring import PRIMARY_KEYS
from gpunode.probe import Shared, shell_text


class AptSources(NodeFact[Reading]):
    """Read lists that name NVIDIA or CUDA, retired keys among the world-trusted ones, and whose archives apt reads."""

    probe = shell_text(
        "apt_sources", shared=(Shared(PRIMARY_KEYS), PACKAGES), RETIRED=" ".join(tables.drivers().retired_key_ids)
    )
    parse = staticmethod(parse_apt_sources)
