"""Names of extended resources: which a node's status can have, and which of them a device plugin serves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from gpunode.base.tables.reading import Row, table
from gpunode.settings.component import LABEL

ResourceCount = Annotated[int, Field(ge=1, le=1_000_000)]
# A quota names it `requests.DOMAIN/NAME`, which must be a label's key, too: 253 characters before the slash.
_NAME = re.compile(rf"(?=[^/]{{1,244}}/){LABEL}(\.{LABEL})*/[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?", re.ASCII)
# What NVIDIA's device plugin offers. Others have names with the same prefix: the network operator's nvidia.com/hostdev,
# KubeVirt's nvidia.com/GRID_T4-2Q.
OF_PLUGIN = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.+)")
# The kubelet's own resources; what stands under it is no extended one.
_NATIVE = "kubernetes.io/"


@dataclass(frozen=True)
class Served(Row):
    """Hold how the names of resources begin that a device plugin offers: by whom, and where that is said."""

    begins: str
    plugin: str
    source: str


served = table(tuple[Served, ...], "extended_resources.yaml")


def resource_name(text: str) -> str:
    """Return an extended resource's name as it is; raise ValueError where a node cannot have it."""
    if _NAME.fullmatch(text) is None or text.startswith("requests."):
        raise ValueError(
            "must be DOMAIN/NAME such as 'example.com/dongle': the domain in lower case, the name of letters, digits, "
            "'-', '_' and '.' inside, 63 at most"
        )
    if _NATIVE in text:
        raise ValueError("is in Kubernetes' own domain kubernetes.io; take one of yours")
    return text


def of_others(text: str) -> str:
    """Return the name of a resource of another device plugin; raise ValueError where it is none, or NVIDIA's plugin's.

    What that one offers follows from the node's GPUs, MIG layout and `sharing`.
    """
    resource_name(text)
    if OF_PLUGIN.fullmatch(text) is not None:
        raise ValueError("is what NVIDIA's device plugin offers, which the verdict expects by itself; leave it out")
    return text


def by_hand(text: str) -> str:
    """Return the name of a resource that is counted by hand; raise ValueError where it is none, or a plugin's."""
    resource_name(text)
    for each in served():
        if text.startswith(each.begins):
            raise ValueError(
                f"is served by {each.plugin}, and the kubelet would overwrite a count by hand; leave it out, and let "
                "the plugin count"
            )
    return text
