"""docker with the nvidia runtime."""

from gpunode.components.runtimes.docker.decide import desired_of
from gpunode.components.runtimes.packages import docker_packages
from gpunode.deploys import repositories
from gpunode.deploys.component import component, distribution, drain, run_alone, settings
from gpunode.deploys.drain import uncordon
from gpunode.operations import docker as runtime
from gpunode.operations import systemd


@component("docker", own_files=True)
def docker() -> None:
    """Install docker, give it the nvidia runtime, and restart it only where a reload is not enough."""
    if not settings().docker.enabled:
        return
    desired, source = desired_of(settings()), settings().docker.source
    packages: dict[str, str | None] = dict.fromkeys(docker_packages(source, distribution()), desired.version)
    repositories.installed("docker", source, packages, lambda: runtime.packages_now(desired))
    runtime.configuration(
        name=f"Configure docker: default runtime {desired.runtimes.default}",
        desired=desired,
        drain=drain(),
        _parallel=settings().disruption.max_parallel,
    )
    systemd.running(name="Run docker, now and at boot", unit=desired.unit or "docker.service")


run_alone(__name__, docker, uncordon)
