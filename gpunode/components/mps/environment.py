"""The variable by which programs find the node's MPS daemon: one without it looks elsewhere, and passes it by."""

from __future__ import annotations

from gpunode.settings.mps import MpsSettings

VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
# Of the unit's template, too. CUDA's own default is /tmp/nvidia-mps.
PIPE_DIRECTORY = "/run/nvidia-mps"
# Login shells read the first, users' own services by systemd the second; system services read neither.
PROFILE, ENVIRONMENT = "/etc/profile.d/gpunode-mps.sh", "/etc/environment.d/50-gpunode-mps.conf"
PATHS = (PROFILE, ENVIRONMENT)
_HEAD = "# Written by gpunode; changes are overwritten. CUDA programs find the node's MPS daemon by this."


def environment_files(desired: MpsSettings) -> dict[str, str]:
    """Return path -> text of the files that set the variable; none where they are not asked for."""
    if not (desired.enabled and desired.environment):
        return {}
    # Whoever has one already means another daemon.
    value = f"${{{VARIABLE}:-{PIPE_DIRECTORY}}}"
    return {
        PROFILE: f'{_HEAD}\nexport {VARIABLE}="{value}"\n',
        ENVIRONMENT: f"{_HEAD}\n{VARIABLE}={value}\n",
    }
