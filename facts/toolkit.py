"""The NVIDIA container toolkit."""

from __future__ import annotations

from gpunode.base import tables
from gpunode.base.probe import shell_text
from gpunode.components.toolkit.configuration import PATH
from gpunode.components.toolkit.specification import CDI_MARK
from gpunode.components.toolkit.state import PACKAGES as NAMES
from gpunode.components.toolkit.state import ContainerToolkit as Reading
from gpunode.components.toolkit.state import parse_toolkit
from gpunode.facts.base import UNITS, NodeFact
from gpunode.facts.packages import PACKAGES
from gpunode.node.own_files.holds import TOOLKIT_PREFERENCES
from gpunode.node.own_files.toolkit import LINK_RULE
from gpunode.packages.families.dnf import LOCKLIST

# Where the toolkit's own unit takes the path of its specification from, among others.
REFRESH_SETTINGS = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
_DAEMONS = ("containerd.service", "docker.service", "crio.service")


class ContainerToolkit(NodeFact[Reading]):
    """Read the toolkit's packages and configuration, where its runtime is, CDI specifications and links of devices."""

    probe = shell_text(
        "components/toolkit/state",
        shared=(PACKAGES, UNITS.of("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service", *_DAEMONS)),
        DAEMONS=" ".join(_DAEMONS),
        RUNTIMES=" ".join(tables.toolkit().runtimes),
        NAMES=" ".join(NAMES),
        HOLD=TOOLKIT_PREFERENCES,
        LOCKLIST=LOCKLIST,
        CONFIGURATION=PATH,
        CDI_MARK=CDI_MARK,
        LATER_HOOKS="|".join(tables.toolkit().hooks),
        REFRESH_SETTINGS=REFRESH_SETTINGS,
        LINK_RULE=LINK_RULE,
    )
    parse = staticmethod(parse_toolkit)
