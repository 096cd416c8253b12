"""CUDA toolkits, the NVIDIA container toolkit, and containers that show what they see of the GPUs."""

from __future__ import annotations

import shlex

from gpunode.base import tables
from gpunode.base.probe import Text, shell_text
from gpunode.base.shell_file import script_file
from gpunode.components import smoke
from gpunode.components.cuda import state as cuda
from gpunode.components.runtimes.toolkit import state as toolkit
from gpunode.components.runtimes.toolkit.configuration import ENVVAR, PATH
from gpunode.components.runtimes.toolkit.state import LINK_RULE
from gpunode.facts.base import UNITS, NodeFact, changing_command
from gpunode.facts.packages import PACKAGES
from gpunode.node.own_files.holds import TOOLKIT_PREFERENCES
from gpunode.packages.families.dnf import LOCKLIST
from gpunode.system.smi import SMI

ACCEPTED = ENVVAR[0]
# smoke_choose.sh uses the functions of crictl, which come before these.
_WAYS = ("docker", "ctr")
_DAEMONS = ("containerd.service", "docker.service", "crio.service")


class ContainerToolkit(NodeFact[toolkit.ContainerToolkit]):
    """Read the toolkit's packages and configuration, where its runtime is, CDI specifications and links of devices."""

    probe = shell_text(
        "components/runtimes/toolkit/state",
        shared=(PACKAGES, UNITS.of("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service", *_DAEMONS)),
        DAEMONS=" ".join(_DAEMONS),
        RUNTIMES=" ".join(tables.toolkit().runtimes),
        NAMES=" ".join(toolkit.PACKAGES),
        HOLD=TOOLKIT_PREFERENCES,
        LOCKLIST=LOCKLIST,
        CONFIGURATION=PATH,
        REFRESH_SETTINGS="/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",
        LINK_RULE=LINK_RULE,
    )
    parse = staticmethod(toolkit.parse_toolkit)


class CudaToolkits(NodeFact[cuda.CudaToolkits]):
    """Read the toolkits under /usr/local and in /opt/cuda, the default link, nvcc, and what an interruption left."""

    probe = shell_text("components/cuda/state")
    parse = staticmethod(cuda.parse_cuda)


class Smoke(NodeFact[smoke.Smoke]):
    """Start containers and read what they see: one that requests all GPUs, one that does not, one in a forbidden way.

    Use docker where it has a runtime nvidia, else crictl where it can start a pod, else ctr with the runtime named.
    config.toml decides how the container requests GPUs, which runs nvidia-smi and looks for libcuda. Read in execution
    alone.
    """

    parse = staticmethod(smoke.parse_smoke)

    def command(self, reload: bool) -> str:  # type: ignore[override]
        """Return the command; with `reload` False, systemd is not reloaded on a node where other containers run.

        It is no Probe, for it starts containers: other facts are read again after it.
        """
        ways = "".join(f"{way}) {script_file(f'smoke_{way}')};;\n" for way in _WAYS)
        trials = f'{script_file("smoke_root")}case "$by" in\n{ways}esac\n{script_file("smoke")}'
        values = f"reload={'yes' if reload else 'no'}; CONFIG={PATH}; ACCEPTED={ACCEPTED}"
        text = (
            f"{values}; check={shlex.quote(script_file('smoke_seen'))}\n"
            f"{script_file('smoke_crictl', 'smoke_choose')}"
            f'if [ -n "$by" ] && [ -c /dev/nvidia0 ]; then{trials}fi\necho tested=yes'
        )
        return changing_command(Text(text, shared=(SMI,)))
