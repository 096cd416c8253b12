"""docker with the nvidia runtime."""

from deploys.component import component, distribution, settings
from deploys.repositories import trust
from operations import docker as runtime
from operations import packages, systemd

# By family; whoever has none is refused by preflight.
_OF_DISTRIBUTION = {"apt": "docker.io"}
_OF_DOCKER = ("docker-ce", "docker-ce-cli")


@component("docker")
def docker() -> None:
    """Install docker, give it the nvidia runtime, and restart it only where a reload is not enough."""
    asked = settings().docker
    if not asked.enabled:
        return
    _install()
    runtime.configuration(
        name=f"Configure docker: default runtime {asked.default_runtime}",
        default_runtime=asked.default_runtime,
        systemd_cgroup=asked.systemd_cgroup,
        nvidia=settings().toolkit.enabled,
        restart_allowed=settings().disruption.allow != "nothing",
        cdi=asked.cdi,
        _parallel=settings().disruption.max_parallel,
    )
    systemd.running(name="Run docker, now and at boot", unit="docker.service")


def _install() -> None:
    asked, family = settings().docker, distribution().family
    if asked.source == "distribution":
        wanted = {_OF_DISTRIBUTION[family]: asked.version}
        packages.installed(name="Install docker of the distribution", family=family, wanted=wanted, repository="")
    elif asked.source == "docker-repository":
        trust("docker")
        wanted = dict.fromkeys(_OF_DOCKER, asked.version)
        packages.installed(name="Install docker of Docker", family=family, wanted=wanted, repository="docker")
