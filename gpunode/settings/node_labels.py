"""Labels of yours on a node of the cluster: names and values that there can be, and names that others set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from gpunode.settings.component import LABEL

_WORD = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = re.compile(_WORD, re.ASCII)
_NAME = re.compile(rf"((?=[^/]{{1,253}}/){LABEL}(\.{LABEL})*/)?{_WORD}", re.ASCII)
# How names begin that are no person's to set, or what they are as a whole, and whose they are: the other one would set
# them back, and gpunode again, for ever.
_OF_OTHERS: Mapping[str, str] = {
    "gpunode/": "belongs to gpunode",
    "gpushare": "belongs to gpunode (device_plugin.method)",
    "nvidia.com/": "belongs to NVIDIA's device plugin, feature discovery and operator",
    "feature.node.kubernetes.io/": "belongs to node feature discovery",
    "kubernetes.io/hostname": "belongs to the kubelet",
    "kubernetes.io/os": "belongs to the kubelet",
    "kubernetes.io/arch": "belongs to the kubelet",
    "beta.kubernetes.io/os": "belongs to the kubelet",
    "beta.kubernetes.io/arch": "belongs to the kubelet",
}


def node_label(text: str) -> str:
    """Return a label's name as it is; raise ValueError where a node cannot have it, or others set it."""
    if _NAME.fullmatch(text) is None:
        raise ValueError(
            "must be NAME or DOMAIN/NAME such as 'example.com/rack': the domain in lower case, the name of letters, "
            "digits, '-', '_' and '.' inside, 63 at most"
        )
    for name, whose in _OF_OTHERS.items():
        if text == name or (name.endswith("/") and text.startswith(name)):
            raise ValueError(f"{whose}, which would set it back; leave it out")
    return text


def label_value(text: str) -> str:
    """Return a label's value as it is, which may be empty as a role's is; raise ValueError where it can be none."""
    if text and _VALUE.fullmatch(text) is None:
        raise ValueError("must be a label's value: letters, digits, '-', '_' and '.' inside, 63 at most, or empty")
    return text


NodeLabel = Annotated[str, AfterValidator(node_label)]
LabelValue = Annotated[str, AfterValidator(label_value)]
