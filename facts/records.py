"""What runs left on a node: the record of what was applied, interrupted changes, the agent's report."""

from __future__ import annotations

from gpunode.agent import collected
from gpunode.agent.files import PLACES
from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.facts.transaction import FOLDER
from gpunode.node.components import PATHS as OWN
from gpunode.system import applied, transaction


class Applied(NodeFact[applied.Applied]):
    """Read the record, and digest, mode and owners of each own file, recorded or not: one process for all of them."""

    probe = shell_text("system/applied", RECORD=applied.PATH, FOLDERS=" ".join(applied.FOLDERS), OWN=" ".join(OWN))
    parse = staticmethod(applied.parse_applied)


# Where gpunode writes files by way of one beside them, which it renames; whoever is killed between leaves it there.
_FOLDERS = (
    "/etc", "/etc/apt/apt.conf.d", "/etc/apt/keyrings", "/etc/apt/preferences.d", "/etc/apt/sources.list.d",
    "/etc/cdi", "/etc/containerd", "/etc/containerd/conf.d", "/etc/crio", "/etc/dnf/plugins", "/etc/docker",
    "/etc/dracut.conf.d", "/etc/environment.d", "/etc/gpunode", "/etc/modprobe.d", "/etc/modules-load.d",
    "/etc/nvidia-container-runtime", "/etc/nvidia-imex", "/etc/nvidia-mps", "/etc/pacman.d", "/etc/pki/rpm-gpg",
    "/etc/profile.d", "/etc/slurm", "/etc/sysctl.d", "/etc/systemd/system", "/etc/systemd/system/*.d",
    "/etc/yum.repos.d", "/etc/zypp", "/etc/zypp/repos.d", "/usr/local", "/usr/local/lib/gpunode",
    "/usr/share/keyrings", "/var/lib/gpunode", "/var/lib/gpunode/mig",
)  # fmt: skip
LEFT = (
    *(f"{folder}/*.gpunode-new" for folder in _FOLDERS),
    "/etc/kubernetes/manifests/.*.gpunode-new",
    "/etc/kubernetes/gpunode/.*.gpunode-new",
    "/boot/*.gpunode-new",
    "/boot/*.gpunode-old",
    "/etc/.gpunode-cdi.*",
)


class Interrupted(NodeFact[transaction.Interrupted]):
    """Read which transactions of gpunode's have begun and not ended, and what others left that were cut off."""

    probe = shell_text("system/interrupted", FOLDER=FOLDER, LEFT=" ".join(LEFT), AGED="-cmin +1")
    parse = staticmethod(transaction.parse_interrupted)


class AgentReport(NodeFact[collected.Collected]):
    """Read the report, and whether there is an agent."""

    probe = shell_text("agent/report", REPORT=str(PLACES.report), CONFIG=str(PLACES.config))
    parse = staticmethod(collected.parse_report)
