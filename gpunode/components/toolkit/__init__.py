"""The NVIDIA container toolkit on a node: its packages, its configuration, CDI specifications, device links."""

from gpunode.components.toolkit.state import (
    LEGACY,
    PACKAGES,
    PACMAN_PACKAGES,
    CdiSpecification,
    ContainerToolkit,
    parse_toolkit,
)

__all__ = ["LEGACY", "PACKAGES", "PACMAN_PACKAGES", "CdiSpecification", "ContainerToolkit", "parse_toolkit"]
