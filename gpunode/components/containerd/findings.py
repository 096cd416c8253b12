"""The findings about containerd, with what `gpunode explain` prints of each."""

from __future__ import annotations

from functools import partial

from gpunode.base.comparison import AS_DESIRED, BY_HAND, DRAIN_FIRST, RUN, finding_message
from gpunode.base.findings import Finding, FindingClass

RESTART_FORBIDDEN = "{containers} containers run and disruption.allow is nothing"
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
    "Without it no container starts on this node. It is stopped, has failed, is masked, or restarts over and over; the "
    "cause quotes systemd.",
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
    "The default runtime starts every container that names none. With runc in place of nvidia, containers see no GPU; "
    "with nvidia in place of runc, all containers get NVIDIA's hook.",
    causes=(DEPRECATED_TABLE, MERGED_DIFFERS, RESTART_FORBIDDEN),
)
SYSTEMD_CGROUP = _declared(
    "SystemdCgroup of",
    "SystemdCgroup of a containerd runtime is not as in the settings.",
    "It decides who owns the cgroups of containers, systemd or the runtime. It has to agree with the kubelet's "
    "cgroupDriver, else pods fail under load.",
    name="systemdcgroup",
)
RUNNING_CONFIGURATION = finding_message(
    "containerd",
    "running configuration",
    "containerd runs by an older configuration than its files have.",
    "The files are right, but the daemon has not read them since it started. A restart may disturb the containers of "
    "the node; disruption.allow decides when it is done.",
    causes=(FILE_NEWER,),
    classes=(FindingClass.RESTART_PENDING,),
)
CDI = _declared(
    "CDI",
    "CDI of containerd is not as in the settings.",
    "With CDI (Container Device Interface) a runtime reads from a file which devices a GPU consists of. Where it is "
    "off, containers that request a GPU by its CDI name do not start.",
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
    "The kubelet talks to this plugin alone. containerd runs without it where the plugin is disabled or could not be "
    "loaded, and the node then starts no pods.",
)
SYSCTL = finding_message(
    "containerd",
    "sysctl",
    "A kernel setting that containers need has another value.",
    "Container networks need it, ip_forward for example: without it, pods reach no other node.",
)


def not_editable(reason: str) -> Finding:
    """Return the finding about files that no run may edit."""
    return CONFIGURATION_FILES.finding(
        FindingClass.ERROR, "not editable by a run", AS_DESIRED, cause=reason, remedy=BY_HAND
    )
