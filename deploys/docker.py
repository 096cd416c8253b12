"""docker with the nvidia runtime."""

from gpunode.components.runtime_packages import docker_packages
from gpunode.deploys import runtime_packages
from gpunode.deploys.component import component, distribution, drain, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.operations import docker as runtime
from gpunode.operations import systemd


@component("docker", own_files=True)
def docker() -> None:
    """Install docker, give it the nvidia runtime, and restart it only where a reload is not enough."""
    desired = settings().docker
    if not desired.enabled:
        return
    allowed = settings().disruption.allow != "nothing"
    packages: dict[str, str | None] = dict.fromkeys(docker_packages(desired.source, distribution()), desired.version)
    runtime_packages.installed(
        "docker", desired.source, packages, lambda: runtime.packages_wait(desired.version, allowed)
    )
    runtime.configuration(
        name=f"Configure docker: default runtime {desired.default_runtime}",
        default_runtime=desired.default_runtime,
        systemd_cgroup=desired.systemd_cgroup,
        nvidia=settings().toolkit.enabled,
        restart_allowed=allowed,
        cdi=desired.cdi,
        drain=drain(),
        _parallel=settings().disruption.max_parallel,
    )
    systemd.running(name="Run docker, now and at boot", unit="docker.service")


run_alone(__name__, docker, uncordon)
