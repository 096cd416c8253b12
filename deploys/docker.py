"""docker with the nvidia runtime."""

from deploys import runtime_packages
from deploys.component import component, distribution, drain, settings
from deploys.drain import returned
from gpunode.runtime_packages import docker_packages
from operations import docker as runtime
from operations import systemd


@component("docker", own_files=True)
def docker() -> None:
    """Install docker, give it the nvidia runtime, and restart it only where a reload is not enough."""
    asked = settings().docker
    if not asked.enabled:
        return
    runtime_packages.installed(runtime="docker", asked=asked, names=docker_packages(asked, distribution()))
    runtime.configuration(
        name=f"Configure docker: default runtime {asked.default_runtime}",
        default_runtime=asked.default_runtime,
        systemd_cgroup=asked.systemd_cgroup,
        nvidia=settings().toolkit.enabled,
        restart_allowed=settings().disruption.allow != "nothing",
        cdi=asked.cdi,
        drain=drain(),
        _parallel=settings().disruption.max_parallel,
    )
    systemd.running(name="Run docker, now and at boot", unit="docker.service")


# pyinfra runs the file by itself, where gpu_node.py and `deploys.docker.docker` import it.
if __name__ != "deploys.docker":
    docker()
    returned()
