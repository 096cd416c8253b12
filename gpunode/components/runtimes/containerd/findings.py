"""The findings about containerd, with what `gpunode explain` prints of each."""

from __future__ import annotations

from functools import partial

from gpunode.base.comparison import RESTART, RUN, finding_message
from gpunode.base.findings import FindingClass
from gpunode.base.messages import REMEDY
from gpunode.components.runtimes.judge import RuntimeFindings
from gpunode.components.runtimes.runtime import RESTART_FORBIDDEN, runtime_finding

NOT_MERGED = "`containerd config dump` printed no configuration"
MERGED_DIFFERS = "the merged configuration (`containerd config dump`) has another value"
DEPRECATED_TABLE = "a deprecated table of that name has a runtime_type, and wins over default_runtime_name"
FILE_NEWER = "a configuration file was written after containerd started"
VALUES_DIFFER = "in the merged configuration (`containerd config dump`) {value}"
NOT_LOADED = "containerd could not load its CRI plugin: {reason}"
FILES_DIFFER = "the files lack values of the settings, or have them elsewhere"

_declared = partial(finding_message, "containerd", causes=(RESTART_FORBIDDEN,), classes=RESTART)

DEFAULT_RUNTIME = runtime_finding("containerd", "default runtime", DEPRECATED_TABLE, MERGED_DIFFERS, RESTART_FORBIDDEN)
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
CDI = runtime_finding("containerd", "CDI", RESTART_FORBIDDEN)
FILES = _declared(
    "configuration files",
    "The configuration files of containerd are not what a run would write.",
    "gpunode edits its own keys in these files and keeps the rest. As an error: no run may edit them, since they "
    "cannot be parsed, or a drop-in that is not gpunode's overrides its keys.",
    causes=(FILES_DIFFER, VALUES_DIFFER, RESTART_FORBIDDEN),
    classes=(*RESTART, FindingClass.ERROR),
)
FINDINGS = RuntimeFindings("containerd", files=FILES)
CRI_PLUGIN = _declared(
    "CRI plugin",
    "containerd's CRI plugin does not work.",
    "The kubelet starts pods through this plugin alone. It is disabled, or containerd could not load it: no restart "
    "helps where it refuses its settings, such as `mirrors` next to `config_path`.",
    causes=(RESTART_FORBIDDEN, f"{NOT_LOADED}{REMEDY}correct {{keys}} in {{file}}, and {RUN}"),
)
SYSCTL = finding_message(
    "containerd",
    "sysctl",
    "A kernel setting that containers need has another value.",
    "Container networks need it, ip_forward for example: without it, pods reach no other node.",
)
