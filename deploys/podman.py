"""podman, whose containers get GPUs by CDI."""

from gpunode.components.runtimes.podman.decide import PATH, desired_of, lacks
from gpunode.deploys.component import component, distribution, node, own_file, run_alone, settings
from gpunode.operations import packages


@component("podman", own_files=True)
def podman() -> None:
    """Install podman, and name the runtime that it takes by default; the CDI specification is the toolkit's."""
    desired = settings().podman
    if not desired.enabled:
        return
    program = lacks(desired_of(settings()), node().podman)
    if desired.source == "distribution":
        packages.installed(
            name="Install podman of the distribution",
            family=distribution().family,
            desired={"podman": desired.version, **dict.fromkeys(filter(None, [program]))},
            instead="set podman.source = 'present' to leave what is there",
        )
    own_file(PATH, keep="Set podman's default runtime", remove="Leave podman its own default runtime")


run_alone(__name__, podman)
