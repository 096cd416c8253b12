"""Changes that an earlier run began and did not end."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.facts.transaction import FOLDER
from gpunode.system.transaction import Interrupted as Reading
from gpunode.system.transaction import parse_interrupted

# Where gpunode writes files by way of one beside them, which it renames; whoever is killed between leaves it there.
_FOLDERS = (
    "/etc",
    "/etc/apt/apt.conf.d",
    "/etc/apt/keyrings",
    "/etc/apt/preferences.d",
    "/etc/apt/sources.list.d",
    "/etc/cdi",
    "/etc/containerd",
    "/etc/containerd/conf.d",
    "/etc/crio",
    "/etc/dnf/plugins",
    "/etc/docker",
    "/etc/dracut.conf.d",
    "/etc/environment.d",
    "/etc/gpunode",
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/etc/nvidia-container-runtime",
    "/etc/nvidia-imex",
    "/etc/nvidia-mps",
    "/etc/pacman.d",
    "/etc/pki/rpm-gpg",
    "/etc/profile.d",
    "/etc/slurm",
    "/etc/sysctl.d",
    "/etc/systemd/system",
    "/etc/systemd/system/*.d",
    "/etc/yum.repos.d",
    "/etc/zypp",
    "/etc/zypp/repos.d",
    "/usr/local",
    "/usr/local/lib/gpunode",
    "/usr/share/keyrings",
    "/var/lib/gpunode",
    "/var/lib/gpunode/mig",
)
LEFT = (
    *(f"{folder}/*.gpunode-new" for folder in _FOLDERS),
    "/etc/kubernetes/manifests/.*.gpunode-new",
    "/etc/kubernetes/gpunode/.*.gpunode-new",
    "/boot/*.gpunode-new",
    "/boot/*.gpunode-old",
    "/etc/.gpunode-cdi.*",
)


class Interrupted(NodeFact[Reading]):
    """Read which transactions of gpunode's have begun and not ended, and what others left that were cut off."""

    probe = shell_text("system/interrupted", FOLDER=FOLDER, LEFT=" ".join(LEFT), AGED="-cmin +1")
    parse = staticmethod(parse_interrupted)
