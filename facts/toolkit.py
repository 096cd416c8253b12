"""The NVIDIA container toolkit."""

from __future__ import annotations

from facts.base import NodeFact
from facts.families import by_manager
from gpunode.toolkit import ContainerToolkit as Reading
from gpunode.toolkit import parse_toolkit


class ContainerToolkit(NodeFact[Reading]):
    """Read the toolkit's packages, what nvidia-ctk says and where the runtime is."""

    probe = (
        by_manager(
            apt=r"""
dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' 'nvidia-container-*' 'libnvidia-container*' \
  nvidia-docker2 | sed -n 's/^installed /package=/p'
""",
            dnf=r"""
rpm -qa --qf 'package=%{NAME} %{VERSION}-%{RELEASE}\n' 'nvidia-container-*' 'libnvidia-container*' nvidia-docker2
""",
        )
        + r"""
command -v nvidia-ctk >/dev/null && echo "ctk=$(nvidia-ctk --version | head -n 1)"
echo "runtime=$(command -v nvidia-container-runtime)"
"""
    )
    parse = staticmethod(parse_toolkit)
