"""How findings about the cluster name their component, and the run that mends them; what of it is newer than known."""

from collections.abc import Iterator
from functools import partial

from gpunode.base import tables
from gpunode.base.comparison import finding_message
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.messages import Scope

COMPONENT = "device_plugin"
RUN_CLUSTER = "run deploys/device_plugin.py"
cluster_finding = partial(finding_message, COMPONENT, remedies=(RUN_CLUSTER,))
ANNOTATION = cluster_finding(
    "annotation",
    "An annotation that lists what gpunode owns on a node of the cluster is wrong.",
    "It lists labels or extended resources. With a wrong list a run would leave some of them, or not update them.",
    cause="it names what is gpunode's, and gpunode owns other ones",
)
_TAKEN = "{program} is newer than gpunode knows, and is taken for the newest known release"
NEWER = cluster_finding(
    "newer than known",
    "helm or Kubernetes is newer than gpunode knows.",
    "It is taken for the newest known release. A helm release that does not become ready is rolled back.",
    scope=Scope.CLUSTER,
    cause=_TAKEN,
)


def newer(**versions: str) -> Iterator[Finding]:
    """Yield each program (of releases.yaml) whose version is newer than all known releases; it is no difference."""
    for program, version in versions.items():
        known = tables.releases()[program]
        if known.is_newer(version):
            cause = _TAKEN.format(program=known.name)
            yield NEWER.finding(FindingClass.OK, version, known.newest, of=program, cause=cause)
