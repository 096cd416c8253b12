"""The findings about containerd, with what `gpunode explain` prints of each."""

from __future__ import annotations

from functools import partial

from gpunode.base.comparison import BY_HAND, DRAIN_FIRST, RUN, finding_message
from gpunode.base.findings import FindingClass

RESTART_FORBIDDEN = "{containers} containers run and disruption.allow is nothing"
NOT_MERGED = "`containerd config dump` printed no configuration"
MERGED_DIFFERS = "the merged configuration (`containerd config dump`) has another value"
DEPRECATED_TABLE = "a deprecated table of that name has a runtime_type, and wins over default_runtime_name"
FILE_NEWER = "a configuration file was written after containerd started"
FILES_DIFFER = "the files lack values of the settings, or have them elsewhere"

_PENDING = (FindingClass.DRIFT, FindingClass.RESTART_PENDING)
_declared = partial(
    finding_message, "containerd", causes=(RESTART_FORBIDDEN,), remedies=(RUN, DRAIN_FIRST, BY_HAND), classes=_PENDING
)

VERSION = _declared(
    "version",
    "containerd is missing, or of another version than the settings desire.",
    "Its package is not installed, or its version is not `containerd.version` or within that branch.",
)
SERVICE = finding_message(
    "containerd",
    "service",
    "The service of containerd does not run.",
    "No container starts on this node. The service is stopped, has failed, is masked, or restarts over and over.",
    remedies=(f"see `systemctl status containerd` on the node, and {RUN}",),
)
STARTS_AT_BOOT = finding_message(
    "containerd",
    "starts at boot",
    "The service of containerd does not start at boot.",
    "It may run now, and will be missing after the next boot: its unit is disabled or masked.",
    remedies=(f"{RUN}; where the unit is masked, `systemctl unmask` it first",),
)
DEFAULT_RUNTIME = _declared(
    "default runtime",
    "The default runtime of containerd is not the one in the settings.",
    "It starts every container that names none: with runc, containers see no GPU; with nvidia, all get NVIDIA's hook.",
    causes=(DEPRECATED_TABLE, MERGED_DIFFERS, RESTART_FORBIDDEN),
)
SYSTEMD_CGROUP = _declared(
    "SystemdCgroup of",
    "SystemdCgroup of a containerd runtime is not as in the settings.",
    "It has to agree with the kubelet's cgroupDriver, else cgroups have two owners and pods fail under load.",
    name="systemdcgroup",
)
RUNNING_CONFIGURATION = finding_message(
    "containerd",
    "running configuration",
    "containerd runs by an older configuration than its files have.",
    "The daemon reads its files at its start. A restart may disturb containers: disruption.allow decides about it.",
    causes=(FILE_NEWER,),
    classes=(FindingClass.RESTART_PENDING,),
)
CDI = _declared(
    "CDI",
    "CDI of containerd is not as in the settings.",
    "With CDI (Container Device Interface), files describe the devices of a GPU. Where CDI is off, containers that "
    "request a GPU by its CDI name do not start.",
)
CONFIGURATION_FILES = _declared(
    "configuration files",
    "The configuration files of containerd are not what a run would write.",
    "gpunode edits its own keys in these files and keeps the rest. As an error: no run may edit them, since they "
    "cannot be parsed, or a drop-in that is not gpunode's overrides its keys.",
    causes=(FILES_DIFFER, RESTART_FORBIDDEN),
    classes=(*_PENDING, FindingClass.ERROR),
)
CRI_PLUGIN = _declared(
    "CRI plugin",
    "containerd's CRI plugin does not work.",
    "The kubelet starts pods through this plugin alone. It is disabled, or containerd could not load it.",
)
SYSCTL = finding_message(
    "containerd",
    "sysctl",
    "A kernel setting that containers need has another value.",
    "Container networks need it, ip_forward for example: without it, pods reach no other node.",
)
