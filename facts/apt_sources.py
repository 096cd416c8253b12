"""What apt is told beside gpunode's own sources."""

from __future__ import annotations

from gpunode.base import tables
from gpunode.base.probe import Shared, shell_text
from gpunode.facts.base import NodeFact
from gpunode.facts.package_list import PACKAGES
from gpunode.packages.apt_sources import AptSources as Reading
from gpunode.packages.apt_sources import parse_apt_sources
from gpunode.packages.keyring import PRIMARY_KEYS


class AptSources(NodeFact[Reading]):
    """Read lists that name NVIDIA or CUDA, retired keys among the world-trusted ones, and whose archives apt reads."""

    probe = shell_text(
        "packages/apt_sources",
        shared=(Shared(PRIMARY_KEYS), PACKAGES),
        RETIRED=" ".join(tables.drivers().retired_key_ids),
    )
    parse = staticmethod(parse_apt_sources)
